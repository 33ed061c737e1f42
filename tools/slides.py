"""Chapters as slides that need no network: `python -m tools.slides [05 …]` → docs/_build/slides/NN.html.

nbconvert's exporter makes the sections. Its reveal.js, which would be loaded from a network, is left out: browsers snap
to sections by themselves, and the keys are a few lines here.
"""

from __future__ import annotations

import functools
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import SlidesExporter

from tools.notebooks import FOLDER, LINKS
from vitlab import paths

LONGEST = 14  # lines of code on a slide
SLIDES = paths.ROOT / "docs" / "_build" / "slides"
TEMPLATE = """\
{% extends "reveal/index.html.j2" %}
{% block html_head_js %}{% endblock %} {% block jupyter_widgets %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_css %}<style>
html { scroll-snap-type: y proximity } body { background: #fff }
:root { --jp-ui-font-size1: 18px; --jp-content-font-size1: 18px; --jp-code-font-size: 16px }
.slides section section { min-height: 100vh; box-sizing: border-box; padding: 3vh 6vw; scroll-snap-align: start;
  display: flex; flex-direction: column; justify-content: center; break-after: page }
.jp-InputPrompt, .jp-OutputPrompt, .jp-InputCollapser, .jp-OutputCollapser { display: none }
.jp-OutputArea-output img { max-height: 58vh; width: auto; display: block; margin: auto }
section section:has(.jp-OutputArea-child:nth-child(4)) img { max-height: 30vh } /* two, with their titles */
iframe + p { display: none } /* what to do where a frame is not shown */
.jp-OutputArea-output table { font-size: 72%; margin: auto } td, th { padding: 1px 8px !important }
</style>{% endblock %}
{% block footer_js %}<script>
const steps = {ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1};
const slides = [...document.querySelectorAll(".slides section section")];
document.addEventListener("keydown", (event) => {
  const here = slides.findLastIndex((slide) => slide.getBoundingClientRect().top < innerHeight / 2);
  const next = event.key in steps && slides[here + steps[event.key]];
  if (next) { event.preventDefault(); next.scrollIntoView(); }
});
</script>{% endblock %}
"""


@functools.cache  # the site's settings are run once, not for every text
def _site() -> dict[str, Any]:
    return runpy.run_path(str(paths.ROOT / "docs" / "site" / "conf.py"))


def with_formulas(text: str) -> str:
    """Write the formulas of a Markdown text, but not what is in its code, as MathML, the way the site does."""
    mathml = _site()["mathml"]

    def written(found: re.Match) -> str:
        if found[1]:
            return found[1]
        made = " ".join(mathml(found[2] or found[3], block=bool(found[2])).split())
        return made.replace("*", "&#42;").replace("_", "&#95;")  # Markdown would take them for emphasis

    return re.sub(r"(```.*?```|`[^`\n]*`)|\$\$(.+?)\$\$|\$([^$]+)\$", written, text, flags=re.DOTALL)


def with_slides(notebook: Any) -> Any:
    """Say where slides begin: at headings, and before a text that leads to code.

    Exercises, imports and references are left out, and so is code that is long or makes more than lines of text.
    """
    cells, skipped = [], False
    for cell in notebook.cells:
        texts = re.split(r"^(?=#{1,3} )", cell.source, flags=re.MULTILINE) if cell.cell_type == "markdown" else []
        cells += [nbformat.v4.new_markdown_cell(text) for text in texts if text.strip()] or [cell]
    for cell, after in zip(cells, [*cells[1:], cells[-1]], strict=True):
        kind, is_text = "-", cell.cell_type == "markdown"
        if is_text and re.match("#+ ", cell.source):
            skipped = bool(re.match(r"### \d+ · .*★|## References", cell.source))
            kind = "slide"
        elif is_text and after.cell_type == "code":
            kind = "subslide"
        set_up = any("\nimport " in f"\n{each.source}" or "parameters" in each.metadata.get("tags", ())
                     for each in (cell, after) if each.cell_type == "code" and kind != "slide")  # fmt: skip
        cell.metadata["slideshow"] = {"slide_type": "skip" if skipped or set_up else kind}
        if is_text:
            cell.source = with_formulas(cell.source)
        else:
            shown = {each for output in cell.outputs for each in output.get("data", {})}
            hidden = bool(shown - {"text/plain"}) or len(cell.source.splitlines()) > LONGEST
            cell.metadata["transient"] = {"remove_source": hidden}
    notebook.cells = cells
    return notebook


def make(*numbers: str, folder: Path = FOLDER, target: Path = SLIDES) -> list[Path]:
    """Write the slides of these chapters (none = all) from their executed notebooks."""
    target.mkdir(parents=True, exist_ok=True)
    made = []
    for path in sorted(folder.glob("*.ipynb")):
        number = path.stem.partition("_")[0]
        if not numbers or number in numbers:
            notebook = nbformat.read(path, as_version=4)
            notebook.cells[0].source = notebook.cells[0].source.replace(LINKS.format(path.stem), "")
            page, _ = SlidesExporter(raw_template=TEMPLATE).from_notebook_node(with_slides(notebook))
            page = re.sub(r'<link [^>]*href="https:[^>]*>', "", page)
            made.append(target / f"{number}.html")
            made[-1].write_text(page, encoding="utf-8")
    return made


if __name__ == "__main__":
    print("\n".join(map(str, make(*sys.argv[1:]))))
