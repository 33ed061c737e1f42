"""Sphinx's settings for the site: `sphinx-build -c docs/site . docs/_build/html` (`make site`)."""

import json
import re
import shutil
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from myst_nb import sphinx_ as cells
from sphinx import addnodes
from sphinx.util.osutil import relative_uri

import vitlab

project = "vitlab"
author = "The vitlab authors"
release = vitlab.__version__
language = "en"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/site/index"
include_patterns = ["*.md", "docs/*.md", "docs/site/index.md", "docs/api/*.rst", "notebooks/*.ipynb", "data/*.md"]
html_extra_path = ["index.html"]  # leads to the first page
suppress_warnings = ["myst.xref_missing", "toc.not_included"]  # links to folders of the checkout; model cards
linkcheck_timeout = 20

nb_execution_mode = "off"  # the notebooks come executed
nb_render_markdown_format = "myst"
nb_ipywidgets_js = {}  # would be loaded from a network; a widget's picture is in the page
myst_enable_extensions = ["dollarmath", "html_image"]
myst_heading_anchors = 4

# The API's pages, from the docstrings: Google's sections, `names` in single backticks, types as they are written.
default_role = "literal"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
nitpick_ignore_regex = [(r"py:.*", r".*")]  # types of torch and others, which have no page here

html_theme = "sphinx_book_theme"
html_title = "vitlab"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_sourcelink_suffix = ""  # the button gives a notebook, not a text
html_show_sourcelink = False
html_show_search_summary = False  # it is fetched, which pages on a disk may not do
html_use_index = False
html_domain_indices = False
html_context = {"default_mode": "light"}  # as the figures are
html_theme_options = {
    "home_page_in_toc": True,
    "show_toc_level": 2,
    "navbar_persistent": [],  # a second field for search
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

# What docutils' converter does not know: sizes without a side, dots that choose their height, \frac12 without braces.
_SIZES = re.compile(r"\\([bB]igg?)(?![a-zA-Z])\s*(\\[{}|]|.)")
_BARE = re.compile(r"\\([dt]?frac)\s*(\d)\s*(\d)")


def mathml(formula, block):
    """A formula in TeX as MathML, which browsers draw without a script."""
    formula = formula.replace("…", r"\ldots ").replace(r"\dots", r"\ldots")
    formula = _SIZES.sub(lambda found: rf"\{found[1]}{'r' if found[2][-1] in ')]}' else 'l'}{found[2]}", formula)
    formula = _BARE.sub(r"\\\1{\2}{\3}", formula)
    return tex2mathml(formula.strip(), as_block=block)


def _inline(translator, node):
    translator.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _displayed(translator, node):
    translator.body.append(f'<div class="formula">{mathml(node.astext(), block=True)}</div>\n')
    raise nodes.SkipNode


def words_for_pictures(app, document):
    """Give the pictures of a notebook's cells the words that were given with the figures."""
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix != ".ipynb":
        return
    outputs = [each for cell in json.loads(path.read_text())["cells"] for each in cell.get("outputs", ())]
    kinds = ("image/png", "image/jpeg")
    shown = [each["metadata"].get(kind, {}) for each in outputs for kind in kinds if kind in each.get("data", {})]
    words = [about.get("alt", "A figure of this notebook.") for about in shown]
    pictures = [node for node in document.findall(nodes.container) if node.get("mime_type") in kinds]
    for picture, alt in zip(pictures, words, strict=True):
        for image in picture.findall(nodes.image):
            image["alt"] = alt


def exercises_to_download(app, name, source):
    """Offer the exercises, which have no pages, as files."""
    source[0] = source[0].replace("](exercises/", "](path:exercises/")


SHOWN = "Show the code"  # of code that is open until it is folded; solutions are folded


def fold_code(app, document):
    """Let readers fold code of more than a few lines."""
    for cell in document.findall(nodes.container):
        if cell.get("nb_element") == "cell_code" and not cell.get("hide_mode") and cell[0].astext().count("\n") > 5:
            cell.update_all_atts({"hide_mode": "input", "prompt_show": SHOWN, "prompt_hide": "Hide the code"})


def _folded(translator, node):
    start = len(translator.body)
    cells.visit_HideCellInput(translator, node)
    if node["prompt_show"] == SHOWN:
        translator.body[start] = translator.body[start].replace("<details", "<details open")


GALLERY = "figures/reference/gallery"  # a page of its own, with pictures


def link_gallery(app, document):
    """Lead to the gallery's page, in place of a download of it without its pictures."""
    for link in list(document.findall(addnodes.download_reference)):
        if link["reftarget"].endswith(f"{GALLERY}/index.html"):
            there = relative_uri(app.builder.get_target_uri(app.env.docname), f"{GALLERY}/index.html")
            link.replace_self(nodes.reference("", "", *link.children, refuri=there, internal=True))


def words_for_folders(app, document, name):
    """Keep the words alone of links to folders, which a checkout has and the site has not."""
    for link in list(document.findall(nodes.reference)):
        if link.get("refid", "").endswith("/"):
            link.replace_self(link.children)


def copy_gallery(app, error):
    """Put the gallery's page and pictures where the site's link leads."""
    if not error and app.builder.format == "html":
        shutil.copytree(app.srcdir / GALLERY, app.outdir / GALLERY, dirs_exist_ok=True)


def setup(app):
    app.add_html_math_renderer("mathml", (_inline, None), (_displayed, None))
    app.connect("source-read", exercises_to_download)
    app.add_node(cells.HideCodeCellNode, override=True, html=(_folded, cells.depart_HideCellInput))
    app.connect("doctree-read", words_for_pictures)
    app.connect("doctree-read", fold_code)
    app.connect("doctree-read", link_gallery, priority=0)  # before downloads are gathered
    app.connect("doctree-resolved", words_for_folders)
    app.connect("build-finished", copy_gallery)
