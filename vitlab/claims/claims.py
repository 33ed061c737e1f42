"""The claims under test: C01 to C21 of the paper, L01 and L02 of later work; their text is in claims.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that can be true or false."""

    id: str
    short: str  # in at most six words, for tables
    statement: str
    where: str  # section, table or figure of the paper; of later work, which one
    study: str  # whose evidence judges it: the only place where that is said
    notebook: str
    paper: str = ""  # the paper's number, "" where it gives a picture only
    note: str = ""  # what else to know of our numbers
    condition: str = ""  # where it is not reproduced: under which condition the effect is there, or what it would take
    figure: str = ""  # of the notebook, that shows it


_TEXT = tomllib.loads(Path(__file__).with_name("claims.toml").read_text(encoding="utf-8"))
ALL = {name: Claim(name, **fields) for name, fields in _TEXT.items()}
CLAIMS = {name: claim for name, claim in ALL.items() if name.startswith("C")}  # the paper's
