"""How many threads a computation has: one where bits count, one for each of several at a time. No part of the paper."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_SIDE_BY_SIDE = 8  # at most: each computation has memory of its own


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and the numerical libraries use one thread: with more, sums are taken in another order.

    >>> import torch
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    import threadpoolctl
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpoolctl.threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def mapped(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """What `function` returns for each of `items`, worked out in as many threads as torch may use, eight at most.

    For NumPy's work on small matrices, of which many at once on one thread each are done sooner than one after the
    other on all: NumPy lets other threads run meanwhile. The numerical libraries have one thread until all are done.
    A single item, and where torch may use one thread, is worked out as without this function.

    The first exception is raised.

    >>> mapped(abs, [-1, 2, -3])
    [1, 2, 3]
    """
    import threadpoolctl
    import torch

    n_threads = min(torch.get_num_threads(), len(items), _SIDE_BY_SIDE)
    if n_threads < 2:
        return [function(item) for item in items]
    with threadpoolctl.threadpool_limits(1, "blas"), ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(function, items))
