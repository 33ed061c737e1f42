"""What the Linux kernel refuses a student's code for good, libraries written in C too (no section of the paper).

Landlock (Linux 6.2 and newer) refuses writing, making, renaming and deleting files outside one folder. A seccomp filter
(x86-64 and arm64) ends a process that tries to start another one, and refuses it sockets, signals to others, and
what System V and POSIX keep in the kernel after a process has gone. Neither needs rights, neither can be taken back.

Not refused: reading, threads, and changing the mode, owner or times of a file elsewhere, which Landlock does not know;
of these the audit hook (`vitlab.exercises.guard`) refuses what Python announces.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
from collections.abc import Sequence
from typing import Any

# Landlock: linux/landlock.h
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_WRITES = _WRITE_FILE | _TRUNCATE | sum(1 << bit for bit in range(4, 14))  # remove, make, link or rename elsewhere
_WHOLE = 3  # the version from which all of these are known

# seccomp: linux/seccomp.h, linux/filter.h, asm/unistd.h
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER, _PARENT_DEATH_SIGNAL = 38, 22, 2, 1
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16  # in the kernel's description of a call; the first argument
_CLONE_THREAD = 0x10000
_X32 = 0x40000000  # x86-64 has a second set of numbers from here
_CLONE3 = 435

# By machine: its number; fork, vfork, execve, execveat; what is refused (socket, kill, tkill, rt_sigqueueinfo,
# rt_tgsigqueueinfo, pidfd_send_signal, ptrace, process_vm_writev, io_uring_setup, shmget, semget, msgget, mq_open);
# clone and tgkill, which depend on their first argument.
_CALLS: dict[str, tuple[int, tuple[int, ...], tuple[int, ...], int, int]] = {
    "x86_64": (
        0xC000003E,
        (57, 58, 59, 322),
        (41, 62, 200, 129, 297, 424, 101, 311, 425, 29, 64, 68, 240),
        56,
        234,
    ),
    "aarch64": (
        0xC00000B7,
        (221, 281),
        (198, 129, 130, 138, 240, 424, 117, 271, 425, 194, 190, 186, 180),
        220,
        131,
    ),
}


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def kernel() -> dict[str, bool]:
    """What this system's kernel can refuse: "files" outside a folder, "processes" and sockets.

    >>> sorted(kernel())
    ['files', 'processes']
    """
    if sys.platform != "linux":
        return {"files": False, "processes": False}
    # Without a filter to read, a kernel that knows filters fails on the address, another one on the request.
    _, error = _call("prctl", _SET_SECCOMP, _FILTER, None, 0, 0)
    known = platform.machine() in _CALLS and sys.maxsize > 2**32
    return {"files": _landlock() >= _WHOLE, "processes": known and error == errno.EFAULT}


def to(folder: str) -> None:
    """Let this process write below `folder` only, start no other and open no socket: what `kernel` says of it."""
    able = kernel()
    if any(able.values()):
        _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if able["files"]:
        _write_only(folder)
    if able["processes"]:
        program = b"".join(_instructions(platform.machine(), os.getpid()))
        _sure(_call("prctl", _SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(program) // 8, program)), 0, 0))


def end_with_parent() -> None:
    """Let the kernel end this process when its parent ends, however it does: a check that is killed leaves nothing."""
    if sys.platform == "linux":
        _call("prctl", _PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def _landlock() -> int:
    """The kernel's version of Landlock, -1 where there is none."""
    return _call("syscall", _CREATE_RULESET, None, 0, _VERSION)[0]


def _write_only(folder: str) -> None:
    attributes = struct.pack("=Q", _WRITES)
    ruleset = _sure(_call("syscall", _CREATE_RULESET, attributes, len(attributes), 0))
    for path, allowed in {folder: _WRITES, os.devnull: _WRITE_FILE | _TRUNCATE}.items():
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", allowed, descriptor)
        _sure(_call("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
        os.close(descriptor)
    _sure(_call("syscall", _RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _instructions(machine: str, process: int) -> list[bytes]:
    """The filter: what the kernel answers to a call, by its number."""
    architecture, ends, refused, clone, signal = _CALLS[machine]
    made = [_step(_LOAD, _ARCHITECTURE_AT), *_unless(_EQUAL, architecture, _KILL), _step(_LOAD, _NUMBER_AT)]
    made += _when(_AT_LEAST, _X32, _KILL)
    for number in ends:
        made += _when(_EQUAL, number, _KILL)
    for number in refused:
        made += _when(_EQUAL, number, _ERRNO | errno.EPERM)
    made += _when(_EQUAL, _CLONE3, _ERRNO | errno.ENOSYS)  # its arguments cannot be seen: the C library takes clone
    # A new thread is no new process; and a process may signal itself, as abort() does.
    made += _by_argument(clone, _ANY_BIT, _CLONE_THREAD, _KILL)
    made += _by_argument(signal, _EQUAL, process, _ERRNO | errno.EPERM)
    return [*made, _step(_RETURN, _ALLOW)]


def _by_argument(number: int, code: int, value: int, answer: int) -> list[bytes]:
    """For a call that is allowed where its first argument holds a value, and answered so where not."""
    steps = [_step(_LOAD, _ARGUMENT_AT), *_unless(code, value, answer), _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, 0, len(steps)), *steps]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _when(code: int, value: int, answer: int) -> Sequence[bytes]:
    return _step(code, value, 0, 1), _step(_RETURN, answer)


def _unless(code: int, value: int, answer: int) -> Sequence[bytes]:
    return _step(code, value, 1, 0), _step(_RETURN, answer)


def _call(name: str, *arguments: Any) -> tuple[int, int]:
    """What a function of the C library returns, and its error number."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    function.restype = ctypes.c_long
    ctypes.set_errno(0)
    result = function(*(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments))
    return result, ctypes.get_errno()


def _sure(returned: tuple[int, int]) -> int:
    result, error = returned
    if result < 0:
        raise OSError(error, f"the kernel does not confine this process: {os.strerror(error)}")
    return result
