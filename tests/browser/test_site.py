"""The site as people read it: built once, links checked, opened from the disk in a browser with no network, and axe."""

import re

import pytest

from vitlab import paths
from vitlab.publish.site import __main__ as site

from .viewers import pointed_at

pytestmark = pytest.mark.slow
pytest.importorskip("myst_nb", reason="myst-nb is not installed (extra `docs`)")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the site, and what is wrong with it."""
    out = tmp_path_factory.mktemp("site")
    wrong = site.build(paths.ROOT, out, "owner/vitlab")
    return out / "html", wrong


@pytest.fixture
def open_at(built, open_page):
    """A function that opens a page of the site, from the disk and without a network, and holds it to that."""
    pages = []

    def opened(name):
        page = open_page(viewport={"width": 1280, "height": 900})
        page.urls = []
        page.on("request", lambda request: page.urls.append(request.url))
        page.context.set_offline(True)
        page.goto(f"{built[0].as_uri()}/{name}", wait_until="load")
        pages.append(page)
        return page

    yield opened
    for page in pages:
        assert page.complaints == []
        assert all(url.startswith(("file:", "data:", "about:", "blob:")) for url in page.urls), page.urls


def test_no_link_is_broken(built):
    html, wrong = built
    assert wrong == []
    assert len(list((html / "notebooks").glob("*.html"))) >= 10


def test_formulas_are_drawn(open_at):
    page = open_at("notebooks/01_vit_from_scratch.html")
    heights = page.locator("math").evaluate_all("all => all.map(math => math.getBoundingClientRect().height)")
    assert len(heights) > 20 and all(8 <= height < 120 for height in heights)  # a lone x has 8 in some fonts
    assert "\\frac" not in page.locator("article").inner_text()


@pytest.mark.parametrize(
    ("name", "show"), [("08_attention_distance", "All heads"), ("09_attention_rollout", "Rollout")]
)
def test_the_viewers_answer(open_at, name, show):
    pointed_at(open_at(f"notebooks/{name}.html"), show)


def test_downloads_and_words(open_at, built):
    page = open_at("notebooks/07_position_embeddings.html")
    stem, here = "07_position_embeddings", built[0] / "notebooks"
    meant = {
        "this notebook": f"notebooks/{stem}.ipynb",
        "without the solutions": f"notebooks/exercises/{stem}.ipynb",
        "source": f"notebooks/source/{stem}.py",
        "results": f"figures/reference/quick/{stem}/result.json",
    }
    for words, name in meant.items():
        link = page.locator("a.download", has_text=re.compile(f"^{words}$")).first.get_attribute("href")
        assert (here / link).read_bytes() == (paths.ROOT / name).read_bytes()
    known = paths.read_json(paths.reference_dir("quick") / stem / "result.json")["figures"]
    shown = page.locator(".cell_output img").evaluate_all("all => all.map(image => image.alt)")
    assert {figure["alt"] for figure in known.values()} <= set(shown)
    assert page.get_by_role("link", name="Open in Colab").count() == 1


def test_search_finds(open_at):
    page = open_at("search.html?q=rollout")
    page.locator("#search-results li a", has_text="09").first.wait_for(timeout=15_000)


@pytest.mark.parametrize(
    "name", ["index.html", "notebooks/07_position_embeddings.html", "notebooks/08_attention_distance.html"]
)
def test_nothing_serious_for_axe(open_at, name):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_at(name)
    page.wait_for_timeout(500)  # until the viewer is drawn
    options = {"resultTypes": ["violations"], "preload": False}  # it would fetch styles, which a file may not
    found = axe.Axe().run(page, options=options).response["violations"]
    serious = [(it["id"], it["nodes"][0]["html"][:200]) for it in found if it["impact"] in ("serious", "critical")]
    assert serious == []
