"""What a piece of a notebook needs of the cells before it, found by names, without running any (all sections)."""

from __future__ import annotations

import ast
import functools
import symtable
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vitlab.exercises.cells import bound_names, outside_functions

_MAYBE = ast.For | ast.While | ast.If | ast.Try | ast.Match  # their bodies may not run
_AT_ONCE = {"listcomp", "setcomp", "dictcomp", "genexpr"}


@dataclass(frozen=True)
class Statement:
    """A statement's text and names: read when it runs, read later by functions it defines, set, perhaps changed."""

    text: str
    now: frozenset[str]
    later: frozenset[str]
    binds: frozenset[str]
    touches: frozenset[str]


@functools.lru_cache(maxsize=1000)  # the cells before an exercise are those before the next one too
def statements(text: str) -> tuple[Statement, ...]:
    """The statements of a cell, an import of several names as several; none for a cell that is no Python.

    >>> [s.text for s in statements("import os, sys\\nx = os.sep + y")]
    ['import os', 'import sys', 'x = os.sep + y']
    >>> sorted(statements("x = os.sep + y")[0].now), statements("x += 1")[0].touches
    (['os', 'y'], frozenset({'x'}))
    """
    try:
        return tuple(_split(text))
    # What cannot be compiled, a character that is no Unicode, nesting beyond what Python takes: running it says which.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _split(text: str) -> list[Statement]:
    lines = text.split("\n")
    split = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                one = ast.unparse(type(node)(**{**dict(ast.iter_fields(node)), "names": [alias]}))
                split.append(_statement(one, node, {alias.asname or alias.name.split(".")[0]}))
        else:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
            split.append(_statement("\n".join(lines[first - 1 : node.end_lineno]), node, bound_names(node)))
    return split


def _statement(text: str, node: ast.stmt, bound: set[str]) -> Statement:
    now, later = _reads(symtable.symtable(text, "cell", "exec"), at_once=True)
    changed = _changed(node)
    if isinstance(node, _MAYBE):
        bound, changed = set(), changed | bound
    return Statement(text, frozenset(now), frozenset(later), frozenset(bound - changed), frozenset(changed))


def _reads(table: symtable.SymbolTable, at_once: bool) -> tuple[set[str], set[str]]:
    top = table.get_type() == "module"
    mine = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())}
    now, later = (mine, set()) if at_once else (set(), mine)
    for child in table.get_children():
        runs_now = at_once and (child.get_type() == "class" or child.get_name() in _AT_ONCE)
        more_now, more_later = _reads(child, runs_now)
        now, later = now | more_now, later | more_later
    return now, later


def _changed(node: ast.stmt) -> set[str]:
    """Names whose values a statement changes in place: `x += 1`, `x[0] = 1`, `x.a = 1`, `x.append(1)`."""
    names = set()
    for each in outside_functions(node):
        target: ast.AST | None = None
        match each:
            case ast.AugAssign(target=target) | ast.Expr(value=ast.Call(func=ast.Attribute() as target)):
                pass
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                target = each
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name):
            names.add(target.id)
    return names


def needed(earlier: Sequence[Statement], wanted: Sequence[Statement], given: Iterable[str] = ()) -> set[int]:
    """Which of the earlier statements must run before the wanted ones can, by index.

    From the last statement to the first: one that sets or changes a name still wanted is taken, and what it reads is
    wanted in turn. What functions read when they are called is wanted at the end as well. Names `given` from elsewhere
    are not wanted.

    >>> before = statements("a = 1\\nb = 2\\na = b\\nprint(a)")
    >>> sorted(needed(before, statements("print(a)")))
    [1, 2]
    """
    modules = {name for each in earlier if each.text.startswith(("import ", "from ")) for name in each.binds}
    at_end: set[str] = set()
    while True:
        names, taken = set(at_end), set()
        for each in reversed(wanted):
            names = (names - each.binds) | each.now | each.later
        names -= set(given)
        later = {name for each in wanted for name in each.later}
        for index in reversed(range(len(earlier))):
            each = earlier[index]
            if names & each.binds or (names & each.touches) - modules:
                taken.add(index)
                names = (names - each.binds) | each.now | each.later
                later |= each.later
        if later <= at_end:
            return taken
        at_end |= later
