"""Pages of the API for the site: one for each package, for Sphinx to fill from the docstrings (all sections)."""

from __future__ import annotations

from pathlib import Path

from vitlab import paths

PACKAGES = ("analysis", "models", "data", "training", "evaluation", "plots")


def write(root: Path, target: Path) -> list[Path]:
    """Write the sources of the API's pages of the checkout `root` into target/api; returns them.

    A package that the checkout does not have gets no page.

    >>> import tempfile
    >>> [path.name for path in write(paths.ROOT, Path(tempfile.mkdtemp()))][:2]
    ['analysis.md', 'models.md']
    """
    written = []
    for package in PACKAGES:
        modules = sorted(path.stem for path in (root / "vitlab" / package).glob("[!_]*.py"))
        if modules:
            written.append(target / "api" / f"{package}.md")
            with paths.writing(written[-1]) as temporary:
                temporary.write_text(page(package, modules), encoding="utf-8")
    return written


def page(package: str, modules: list[str]) -> str:
    """The source of a package's page: what it is for, then its modules with all that is public in them.

    >>> print(page("data", ["world"]).splitlines()[0])
    # vitlab.data
    """
    name = f"vitlab.{package}"
    parts = [f"# {name}", _filled(name, members=False)]
    for module in modules:
        parts += [f"## {module}", _filled(f"{name}.{module}", members=True)]
    return "\n\n".join(parts) + "\n"


def _filled(name: str, members: bool) -> str:
    option = "members" if members else "no-members"
    return f"```{{eval-rst}}\n.. automodule:: {name}\n   :{option}:\n```"
