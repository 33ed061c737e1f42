"""Which errors are told to the user in one line, and in which words (no section of the paper)."""

from __future__ import annotations

import linecache
import os
from pathlib import Path

import vitlab


def told(error: Exception) -> str | None:
    """What to tell the user of an error; None where it is not meant for them, or VITLAB_DEBUG asks for tracebacks.

    It is meant for them where a `raise` in vitlab raised it.

    >>> told(ValueError("not raised by vitlab")) is None
    True
    """
    if os.environ.get("VITLAB_DEBUG") or not _is_ours(error):
        return None
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"vitlab: {' '.join(text.split())}"


def _is_ours(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    path = Path(trace.tb_frame.f_code.co_filename)
    inside = path.is_relative_to(Path(vitlab.__file__).parent)
    return inside and linecache.getline(str(path), trace.tb_lineno).strip().startswith("raise ")
