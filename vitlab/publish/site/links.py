"""Checks a built site: links lead somewhere, nothing comes from a network, pictures have words (all sections)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LEADING = {"a": "href", "area": "href"}  # followed when somebody clicks
_LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}
_NOT_LOADED = {"canonical", "index", "search", "next", "prev", "alternate"}  # relations of <link>
_IN_STYLES = re.compile(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""")


@dataclass(frozen=True)
class Page:
    """What a page refers to, and what can be referred to in it."""

    anchors: set[str] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)
    wordless: list[str] = field(default_factory=list)  # pictures without a text


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()

    def handle_starttag(self, tag: str, attrs: Iterable[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.page.anchors.update(filter(None, (values.get("id"), values.get("name"))))
        if address := values.get(_LEADING.get(tag, "")):
            self.page.links.add(address)
        if address := values.get(_LOADED.get(tag, "")):
            relation = set(values.get("rel", "").split())
            (self.page.links if relation & _NOT_LOADED else self.page.loaded).add(address)
        if tag == "img" and not values.get("alt", "").strip():
            self.page.wordless.append(values.get("src", "")[:80])


def read(text: str) -> Page:
    """What an HTML page refers to; what is inside a frame's `srcdoc` is not looked at.

    >>> sorted(read('<h1 id="top">A</h1><a href="b.html#c">b</a><img src="d.png" alt="D">').links)
    ['b.html#c']
    """
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.page


def pages(folder: Path) -> dict[Path, Page]:
    """Every page of a built site; what the theme keeps in `_static` is no page."""
    paths = [path for path in sorted(folder.rglob("*.html")) if "_static" not in path.relative_to(folder).parts]
    return {path: read(path.read_text(encoding="utf-8")) for path in paths}


def problems(folder: Path, site: Mapping[Path, Page]) -> list[str]:
    """What is wrong with a built site, a line each: the page, what it refers to, what to do; empty if nothing is."""
    wrong = [line for path, page in site.items() for line in _of_page(path, page, folder, site)]
    for path in sorted(folder.rglob("*.css")):
        for address in (a or b for a, b in _IN_STYLES.findall(path.read_text(encoding="utf-8"))):
            if not address.startswith(("data:", "#")) and (said := _loaded_in_vain(path, address)):
                wrong.append(f"{path.relative_to(folder)}: {said}")
    return wrong


def _of_page(path: Path, page: Page, folder: Path, site: Mapping[Path, Page]) -> list[str]:
    said = [_loaded_in_vain(path, address) for address in sorted(page.loaded)]
    said += [_leads_nowhere(path, address, folder, site) for address in sorted(page.links)]
    said += [f"picture {source} has no text for those who cannot see it: give it one" for source in page.wordless]
    return [f"{path.relative_to(folder)}: {words}" for words in said if words]


def _loaded_in_vain(path: Path, address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme == "data":
        return ""
    if parts.scheme or parts.netloc:
        return f"loads {address} from a network: take the file into the site"
    if not (path.parent / unquote(parts.path)).is_file():
        return f"loads {address}, which is not there: correct it, or copy the file"
    return ""


def _leads_nowhere(path: Path, address: str, folder: Path, site: Mapping[Path, Page]) -> str:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return ""  # listed by `external`, never fetched
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
    if not target.is_relative_to(folder.resolve()):
        return f"link {address} leads out of the site: link to a page, or to a file to download"
    if not target.is_file():
        return f"link {address}: there is no such file in the site: correct it in the page's source"
    page = site.get(folder / target.relative_to(folder.resolve()))
    if parts.fragment and page and unquote(parts.fragment) not in page.anchors:
        return f"link {address}: {target.name} has no place #{parts.fragment}: correct it in the page's source"
    return ""


def external(site: Mapping[Path, Page]) -> list[str]:
    """The addresses outside the site that are linked to, each once: for a look, not for a test."""
    linked = {address for page in site.values() for address in page.links}
    return sorted(address for address in linked if urlsplit(address).scheme in ("http", "https"))
