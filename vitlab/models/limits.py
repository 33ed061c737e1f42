"""What a stranger's file, or a slip of the keyboard, asks for, looked at before there is memory for it. No section."""

import math
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

MAX_IMAGE_SIZE = 4096  # pixels a side, the paper's largest is 518: a ViT makes room for the position of every patch
# What an .npz may hold, in bytes, by its size on disk: trained weights hardly compress, and little is no danger.
MAX_EXPANSION = 16
SMALL = 2**28
# The last record of a zip: its mark, where in it the number of entries is, and its length with the longest comment.
_LAST_RECORD, _COUNT_AT, _LONGEST = b"PK\x05\x06", 10, 22 + 2**16
_COUNT_ELSEWHERE = 0xFFFF  # of archives with more entries than fit in two bytes


def check_image_size(settings: Mapping[str, Any]) -> None:
    """Raises ValueError where the settings of a model ask for larger images than `MAX_IMAGE_SIZE`.

    >>> check_image_size({"image_size": 99999})
    Traceback (most recent call last):
    ValueError: image_size 99999 is too large; models here take up to 4096 pixels a side
    """
    given = settings.get("image_size", 1)
    if any(side > MAX_IMAGE_SIZE for side in (given if isinstance(given, tuple | list) else (given,))):
        raise ValueError(f"image_size {given} is too large; models here take up to {MAX_IMAGE_SIZE} pixels a side")


def check_depth(settings: Mapping[str, Any], state: Mapping[str, Tensor], path: Path) -> None:
    """Raises ValueError where a description has more blocks than the file beside it has tensors.

    To build those would take for ever, even without memory for their weights.

    >>> check_depth({"depth": 1_000_000}, {"pos_embed": torch.zeros(1)}, Path("model.safetensors"))
    Traceback (most recent call last):
    ValueError: model.safetensors describes a model of depth 1000000, but has 1 tensors; it was made up
    """
    for name in ("depth", "depths", "layers"):
        value = settings.get(name, 0)
        if (sum(value) if isinstance(value, list | tuple) else value) > len(state):
            raise ValueError(
                f"{path} describes a model of {name} {value!r:.40}, but has {len(state)} tensors; it was made up"
            )


def shapes(build: Callable[[], nn.Module]) -> nn.Module:
    """The model that `build` makes, on PyTorch's meta device: its shapes without memory for its weights.

    >>> shapes(lambda: nn.Linear(10**6, 10**6)).weight.shape
    torch.Size([1000000, 1000000])
    """
    with torch.device("meta"):
        return build()


def check_archive(path: Path) -> None:
    """Raises OverflowError where an .npz says that it holds more than it can; passes what is no zip.

    Raises zipfile.BadZipFile where fewer entries can be read than the archive counts: damage in its list of entries
    hides those that follow.

    >>> check_archive(Path("nowhere.npz"))
    """
    if not zipfile.is_zipfile(path):
        return
    most = max(SMALL, MAX_EXPANSION * path.stat().st_size)
    with zipfile.ZipFile(path) as archive:
        if len(archive.infolist()) != (counted := _counted(path)) and counted != _COUNT_ELSEWHERE:
            raise zipfile.BadZipFile(f"it counts {counted:,} entries and {len(archive.infolist()):,} can be read")
        total = sum(info.file_size for info in archive.infolist())
        if total > most:
            raise OverflowError(
                f"it would unpack to {total:,} bytes, more than {most:,} ({MAX_EXPANSION} times its size, or "
                f"{SMALL:,} where that is more); trained weights do not compress like that: look where it comes from"
            )
        for info in archive.infolist():
            needed = _declared_bytes(archive, info)
            if needed > info.file_size:
                raise OverflowError(
                    f"it is corrupt or made up: {info.filename} has {info.file_size:,} bytes and says it needs "
                    f"{needed:,}; copy or download it again"
                )


def _counted(path: Path) -> int:
    """The number of entries that the last record of a zip gives."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LONGEST))
        end = file.read()
    return struct.unpack_from("<H", end, end.rindex(_LAST_RECORD) + _COUNT_AT)[0]


def _declared_bytes(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Bytes of the array that an entry of an archive begins to describe; 0 where it describes none."""
    with archive.open(info) as entry:
        try:
            version = np.lib.format.read_magic(entry)
        except ValueError:
            return 0
        first = version == (1, 0)
        header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(entry)
    return math.prod(shape) * dtype.itemsize
