"""The checksum that the file of a run's result holds of itself, stored or committed. No section of the paper."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a file holds, with the SHA-256 of all else in it.

    >>> with_checksum({"rows": []})["sha256"][:8]
    '0fc3c38b'
    """
    return {**content, "sha256": _checksum(content)}


def is_whole(result: Mapping[str, Any]) -> bool:
    """Whether what was read from a file is what was written.

    >>> is_whole(with_checksum({"size": 1})), is_whole(with_checksum({"size": 1}) | {"size": 2}), is_whole({"size": 1})
    (True, False, False)
    """
    return result.get("sha256") == _checksum(result)


def _checksum(content: Mapping[str, Any]) -> str:
    """Of the values, not of the file's bytes: JSON gives back every number to the last digit."""
    text = json.dumps({name: value for name, value in content.items() if name != "sha256"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
