"""Builds the site and checks its links: `make site`, or python -m vitlab.publish.site (all sections)."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from vitlab import paths
from vitlab.publish.site import api, links, pages


def build(root: Path, out: Path, repository: str = "") -> list[str]:
    """Build the site of the checkout `root` into out/html; returns what is wrong with it, a line each.

    No notebook is executed, and nothing is asked of a network; modules are imported for their docstrings. The addresses
    outside are listed in out/external.txt.

    Raises:
        ValueError: a page cannot be made (`pages.gather`), or Sphinx has something to complain about.
        FileNotFoundError: Sphinx and its extensions are not installed.
    """
    if importlib.util.find_spec("myst_nb") is None:
        raise FileNotFoundError("myst-nb is not installed: pip install -e '.[docs]'")
    source, html = out / "source", out / "html"
    pages.gather(root, source, repository)
    api.write(root, source)
    shutil.rmtree(html, ignore_errors=True)
    command: list[str | Path] = [sys.executable, "-m", "sphinx", "-n", "-W", "--keep-going", "-q", "-E", "-b", "html"]
    command += ["-c", root / "docs" / "site", "-d", out / "doctrees", source, html]
    if subprocess.run([str(part) for part in command], cwd=root).returncode:
        raise ValueError(f"Sphinx complains (above); the lines it names are those of {source}, made from the checkout")
    site = links.pages(html)
    (out / "external.txt").write_text("\n".join([*links.external(site), ""]), encoding="utf-8")
    return links.problems(html, site)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 1 if the site has faults, 2 if it cannot be built."""
    parser = argparse.ArgumentParser(prog="python -m vitlab.publish.site", description=__doc__.splitlines()[0])
    parser.add_argument("--repository", metavar="OWNER/NAME", default="", help="link the notebooks to Colab")
    parser.add_argument("--out", metavar="DIR", default=paths.ROOT / "docs" / "_build", type=Path)
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    try:
        wrong = build(paths.ROOT, options.out.resolve(), options.repository)
    except (ValueError, OSError) as error:
        print(f"vitlab.publish.site: {error}", file=sys.stderr)
        return 2
    print("\n".join(wrong), file=sys.stderr, end="\n" * bool(wrong))
    count = len(links.pages(options.out / "html"))
    seconds = time.perf_counter() - started
    print(f"{options.out / 'html' / 'index.html'}: {count} pages in {seconds:.0f} s, {len(wrong)} faults")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
