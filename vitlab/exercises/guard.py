"""What Python refuses a student's code, and how much memory and output it may have (no section of the paper).

The audit hook refuses what plain Python announces, and says which: writing, renaming and deleting outside the working
folder, starting and killing processes, the network. Libraries written in C announce nothing; what they do is refused
by the kernel where it can (`vitlab.exercises.confine`). What grows is stopped by the limits set here and by the
parent, which watches (`vitlab.exercises.watch`).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

FILE_LIMIT = 10 * 2**20  # bytes, of every file it writes and of what it prints

# Audit events that change what a path names: where among the arguments the paths stand, and their folders' descriptors.
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),  # the old name too: what is written under the new one is written to it
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
    "shutil.rmtree": ((0, 1),),
    "sqlite3.connect": ((0, None),),
}
_PROCESSES = {"os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.startfile"}
_PROCESSES |= {"subprocess.Popen", "pty.spawn"}
_NETWORK = {"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"}
_NETWORK |= {"socket.gethostbyname", "socket.gethostbyaddr"}


class Refused(PermissionError):
    """What a student's code may not do here; the words say what it tried."""


class Guard:
    """The audit hook: refuses while `armed`; writing is allowed in `folder` only."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(os.path.realpath(folder))
        self.armed = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed:
            return
        if event == "open":
            path, _, flags = arguments
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
                self.check(path, "write to")
        elif event in _CHANGES:
            for place, descriptor in _CHANGES[event]:
                folder = arguments[descriptor] if descriptor is not None else -1
                verb = "delete" if event.endswith(("remove", "rmdir", "rmtree")) else "change"
                self.check(arguments[place], verb, folder)
        elif event in _PROCESSES:
            raise Refused("tried to start another process")
        elif event in ("os.kill", "os.killpg"):
            raise Refused("tried to end a process")
        elif event in _NETWORK:
            raise Refused("tried to use the network")

    def check(self, path: Any, verb: str, descriptor: int = -1) -> None:
        """Raise Refused if a path lies outside the folder."""
        if isinstance(path, int) or path == os.devnull:
            return
        name = os.fsdecode(path)
        with contextlib.suppress(OSError):  # no /proc: then the name is taken as it is
            name = name if descriptor == -1 else os.path.join(os.readlink(f"/proc/self/fd/{descriptor}"), name)
        if not Path(os.path.realpath(name)).is_relative_to(self.folder):
            raise Refused(f"tried to {verb} {name}, outside its working folder")


def limit(memory: int) -> None:
    """Set, for good, what the operating system will stop: bytes of memory and of a file. On Windows there is none."""
    with contextlib.suppress(ImportError):
        import resource

        limits = {resource.RLIMIT_DATA: memory, resource.RLIMIT_FSIZE: FILE_LIMIT, resource.RLIMIT_CORE: 0}
        for which, most in limits.items():
            with contextlib.suppress(ValueError, OSError):  # a system that does not have this limit
                resource.setrlimit(which, (most, most))
