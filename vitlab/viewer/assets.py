"""What the viewer's page and its widget share: their files for a browser, and the views there are. No section."""

from __future__ import annotations

from importlib import resources

SHOWS = ("heads", "block", "head", "rollout")  # all heads of all blocks, one block's, one head, rollout


def asset(name: str) -> str:
    """One of the files of this folder that a browser reads.

    >>> "<script>" in asset("page.html")
    True
    """
    return (resources.files("vitlab.viewer") / name).read_text(encoding="utf-8")
