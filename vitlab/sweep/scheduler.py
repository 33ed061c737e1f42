"""The address of a dask scheduler, and a client that connects to it or says why not. No section of the paper."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

_CONNECT = 5.0  # seconds that a scheduler has to answer


def address() -> str | None:
    """The scheduler in `$VITLAB_SCHEDULER`, as tcp://host:port; None where runs stay on this machine.

    Raises:
        ValueError: it is no address.

    >>> address() is None
    True
    """
    return checked_address(os.environ.get("VITLAB_SCHEDULER") or None)


def checked_address(given: str | None) -> str | None:
    """A scheduler's address as it was given.

    Raises:
        ValueError: it is no address.

    >>> checked_address("tcp://host")
    Traceback (most recent call last):
    ValueError: scheduler 'tcp://host': expected its address, such as tcp://host:8786
    """
    if given is None:
        return None
    try:
        parts = urlsplit(given)
        good = parts.hostname and (parts.port or parts.scheme == "inproc")  # inproc: in this very process
    except ValueError:  # a port that is no number, or above 65535
        good = False
    if not good:
        raise ValueError(f"scheduler {given!r}: expected its address, such as tcp://host:8786")
    return given


def client(at: str) -> Any:
    """A client of dask's, connected to the scheduler at an address.

    Raises:
        ModuleNotFoundError: dask.distributed is not installed.
        ConnectionError: no scheduler answers there within seconds; the message says what does, if anything.

    >>> client("nowhere://host")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ConnectionError: no scheduler answers at nowhere://host ...
    """
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"a scheduler ({at}) needs dask.distributed, which is not installed: pip install 'vitlab[cluster]'"
        ) from None
    try:
        if (kind := _kind_of_server(at)) != "Scheduler":
            raise ConnectionError(f"it is the address of dask's {kind}")
        return Client(at, timeout=_CONNECT, set_as_default=False, name="vitlab")
    except Exception as error:  # of any class: whatever another service says is read as a message of dask's
        raise ConnectionError(
            f"no scheduler answers at {at} ({_why_not(at, error)}): start one (dask scheduler), or correct the address"
        ) from error


def _kind_of_server(at: str) -> str:
    """What answers at an address, "Scheduler" or "Worker" of dask's; raises an exception of any class.

    Client() waits for ever for the answer of what accepts a connection and says nothing.
    """
    answer: Future[str] = Future()

    async def ask() -> str:
        from distributed import Security, rpc

        async with rpc(at, timeout=_CONNECT, connection_args=Security().get_connection_args("client")) as server:
            return (await asyncio.wait_for(server.identity(), _CONNECT))["type"]

    def life() -> None:
        try:
            answer.set_result(asyncio.run(ask()))
        except BaseException as error:
            answer.set_exception(error)

    # A thread of its own: a notebook's has a loop that runs already, and looking up a name cannot be interrupted.
    threading.Thread(target=life, daemon=True).start()
    return answer.result(timeout=_CONNECT + 1)


def _why_not(at: str, error: Exception) -> str:
    """Why no scheduler answers, in words."""
    if isinstance(error, TimeoutError) or "Timed out" in str(error):
        return f"no answer within {_CONNECT:g} s"
    if at.startswith("tls://") and isinstance(error, TypeError):
        return "dask has no certificates for tls:// here: set distributed.comm.tls in its configuration, or use tcp://"
    if isinstance(error, OSError | ValueError | ImportError):
        return " ".join(str(error).split())
    return "what answers there is no dask scheduler"
