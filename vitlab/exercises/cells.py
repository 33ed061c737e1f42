"""Where the exercises stand in a notebook's source and in a student's copy of it (all sections)."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path

from vitlab import notebooks

MARKER = re.compile(r"^(?P<indent>[ \t]*)### (?P<edge>BEGIN|END) SOLUTION[ \t]*$")
_HEADING = re.compile(
    r"^### (?:Exercise )?(?P<number>\d+) · (?P<title>.+?) \((?P<stars>★+), (?P<minutes>\d+) min(?:utes)?\)[ \t]*$", re.M
)
_TITLE = re.compile(r"^# (\d\d) · (.+)$", re.M)
_ANY_HEADING = re.compile(r"^#{1,3} ", re.M)
_FENCED = re.compile(r"^```.*?^```", re.M | re.S)


@dataclass(frozen=True)
class Section:
    """An exercise: its heading's words, the text under it, its code cells, and the code cells before it."""

    number: int
    title: str
    stars: int
    minutes: int
    text: str
    code: tuple[str, ...]
    earlier: tuple[str, ...]

    @property
    def parts(self) -> Parts:
        return _parts(self.code)


@dataclass(frozen=True)
class Parts:
    """The statements of an exercise's source: before the solution, in it, after it; and the names it has to define."""

    before: tuple[str, ...]
    solution: tuple[str, ...]
    checks: tuple[str, ...]
    asked: frozenset[str]


@dataclass(frozen=True)
class Original:
    """A notebook's source: its name, its title, its exercises with solutions."""

    stem: str
    title: str
    exercises: tuple[Section, ...]


Cells = list[tuple[str, str]]  # "markdown" or "code", and the text


def percent(text: str) -> Cells:
    """The cells of a source in the percent format, text without its comment signs.

    Read here and not by jupytext, which students need not have.

    >>> percent('# %% [markdown]\\n# # A title\\n\\n# %% tags=["parameters"]\\nSEED = 0\\n')
    [('markdown', '# A title'), ('code', 'SEED = 0')]
    """
    cells: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("# %%"):
            cells.append(("markdown" if "[markdown]" in line else "code", []))
        elif cells:
            kind, lines = cells[-1]
            lines.append(line.removeprefix("#").removeprefix(" ") if kind == "markdown" else line)
    return [(kind, "\n".join(lines).strip("\n")) for kind, lines in cells]


def of_notebook(path: Path | str) -> Cells:
    """The cells of a notebook file, outputs left aside.

    A cell without a source is an empty one.

    Raises:
        ValueError: the file is no notebook, or cannot be read; the message says so.
    """
    try:
        cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
        texts = [(cell["cell_type"], "".join(cell.get("source", ""))) for cell in cells]
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}): save the notebook again") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: expected a Jupyter notebook (format 4), with a list of cells") from error
    return [(kind, text) for kind, text in texts if kind in ("markdown", "code")]


def sections(cells: Cells) -> tuple[Section, ...]:
    """The exercises among cells, in their order: everything from such a heading to the next heading of any kind.

    >>> exercises = sections([("markdown", "### 1 · Add (★★, 5 minutes)"), ("code", "a = 1"), ("markdown", "## End")])
    >>> exercises[0].title, exercises[0].stars, exercises[0].minutes, exercises[0].code
    ('Add', 2, 5, ('a = 1',))
    """
    exercises: list[Section] = []
    current: tuple[re.Match[str], list[str], list[str], tuple[str, ...]] | None = None
    code: list[str] = []
    for kind, text in [*cells, ("markdown", "## End")]:
        if kind == "code":
            code.append(text)
            if current:
                current[2].append(text)
            continue
        bare = _FENCED.sub("", text)
        heading = _HEADING.search(bare)
        if current and (heading or _ANY_HEADING.search(bare)):
            exercises.append(_section(*current))
            current = None
        if heading:
            current = heading, [text], [], tuple(code)
        elif current:
            current[1].append(text)
    return tuple(exercises)


def _section(heading: re.Match[str], texts: list[str], code: list[str], earlier: tuple[str, ...]) -> Section:
    number, title, stars, minutes = heading.groups()
    return Section(int(number), title, len(stars), int(minutes), "\n\n".join(texts), tuple(code), earlier)


def _title(cells: Cells) -> re.Match[str] | None:
    return next((match for kind, text in cells if kind == "markdown" and (match := _TITLE.search(text))), None)


def original(which: str | int) -> Original:
    """The source of a notebook, by number or name, from `notebooks/source`.

    Raises:
        ValueError: there is no such notebook; the message lists those there are.
        FileNotFoundError: there are no sources: this vitlab came without notebooks.
    """
    folder = notebooks.sources_dir()
    known = sorted(folder.glob("[0-9][0-9]_*.py"))
    if not known:
        raise FileNotFoundError(f"no notebook sources in {folder}: install vitlab's wheel, or clone the repository")
    wanted = str(which).removesuffix(".ipynb")
    for path in known:
        if wanted == path.stem or wanted.isdecimal() and int(wanted) == int(path.stem[:2]):
            cells = percent(path.read_text(encoding="utf-8"))
            title = _title(cells)
            exercises = tuple(section for section in sections(cells) if section.parts.solution)
            return Original(path.stem, title[2] if title else path.stem, exercises)
    raise ValueError(f"unknown notebook {which!r}: choose from {', '.join(path.stem for path in known)}")


def original_of(path: Path, cells: Cells) -> Original:
    """The source that a student's file is a copy of: its title says so ("# 08 · …"), else the file's name.

    Raises:
        ValueError: neither does, or there is no such notebook; the message names the file.
    """
    title, name = _title(cells), re.search(r"(?<!\d)(\d\d)_", path.name)
    number = title[1] if title else name[1] if name else None
    if number is None:
        raise ValueError(
            f"{path}: cannot tell which notebook this is a copy of: expected its title ('# 08 · …') in a text cell, "
            "or its number in the file's name (08_….ipynb)"
        )
    try:
        return original(number)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _parts(code: tuple[str, ...]) -> Parts:
    before: list[str] = []
    solution: list[str] = []
    checks: list[str] = []
    asked: set[str] = set()
    for text in code:
        inside = _solution_lines(text)
        for node in ast.parse(text).body:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            lines = range(first, (node.end_lineno or first) + 1)
            words = "\n".join(text.split("\n")[lines.start - 1 : lines.stop - 1])
            if inside & set(lines):
                solution.append(words)
                asked |= bound_names(node)
            else:
                (checks if solution else before).append(words)
    return Parts(tuple(before), tuple(solution), tuple(checks), frozenset(asked))


def _solution_lines(text: str) -> set[int]:
    numbers, inside = set(), False
    for number, line in enumerate(text.split("\n"), 1):
        if edge := MARKER.match(line):
            inside = edge["edge"] == "BEGIN"
        elif inside:
            numbers.add(number)
    return numbers


def bound_names(node: ast.stmt) -> set[str]:
    """Names that a statement gives a value to, in the namespace it stands in.

    >>> sorted(bound_names(ast.parse("for i in x: a, (b, c[0]) = f(i)").body[0]))
    ['a', 'b', 'i']
    """
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    names = {alias.asname or alias.name.split(".")[0] for each in outside_functions(node) for alias in _aliases(each)}
    for each in outside_functions(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            names.add(each.id)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(each.name)
    return names


def _aliases(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else []


_OWN_NAMES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.ListComp | ast.SetComp
_OWN_NAMES |= ast.DictComp | ast.GeneratorExp


def outside_functions(node: ast.AST) -> list[ast.AST]:
    """A node and those below it, but not inside functions, classes, comprehensions: these have names of their own."""
    nodes = [node]
    if not isinstance(node, _OWN_NAMES):
        for child in ast.iter_child_nodes(node):
            nodes += outside_functions(child)
    return nodes
