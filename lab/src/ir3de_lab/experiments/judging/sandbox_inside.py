"""The inner side of `sandbox`: a script with nothing but the standard library, started by it, never imported.

Two processes: an outer one that waits and reports, and an inner one that is limited and runs the program. They share a
group, which `sandbox` kills; with namespaces, the inner one is the first process of a world of its own, and what is
started in there dies with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG = 1
_LONGEST = 300  # characters of a reason
_THREADS = 32  # threads and processes, where they can be counted for the program alone
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# where the paths stand among the arguments of an audit event, each with the folder descriptor it starts from
_CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
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
_REFUSED = {
    *("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn"),
    *("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo"),
    *("socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo", "resource.setrlimit", "resource.prlimit"),
}


def main() -> NoReturn:
    """Read what to run from the standard input, run it, and write how it ended to the descriptor given."""
    reports = int(sys.argv[1])
    order = json.load(sys.stdin)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    apart = order["namespaces"] and leave()
    child = os.fork()
    if child == 0:
        die_with_parent()
        os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")  # or numpy's threads take all the memory
        limit(order, apart)
        sys.argv[1:] = []
        say(reports, execute(order["parts"], order["nonce"]))
        os._exit(0)
    die_with_parent()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    say(reports, f"killed ({signal.Signals(-status).name})" if status < 0 else f"exited early (status {status})")
    os._exit(0)


def say(reports: int, text: str) -> None:
    """Write a line to the pipe; only the first is read: the outer process is heard where the inner was silent."""
    with contextlib.suppress(OSError):
        os.write(reports, f"{text}\n".encode("utf-8", "replace"))


def leave() -> bool:
    """Step into namespaces of our own: no network, and processes that die with the first of them."""
    if not sys.platform.startswith("linux"):
        return False
    apart = _CLONE_NEWNET | _CLONE_NEWPID | _CLONE_NEWIPC
    # root may at once; others in a user namespace, where the kernel lets them. Root would be an ordinary user there,
    # and a Python that belongs to somebody else would stop working.
    unshare = ctypes.CDLL(None).unshare
    return any(unshare(flags) == 0 for flags in (apart, apart | _CLONE_NEWUSER))


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent ends, so that nothing stays behind one that was killed."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def limit(order: dict[str, Any], apart: bool) -> None:
    """Set the limits that the kernel holds, hard and soft alike."""
    # outside of namespaces the kernel counts all processes of the user, and only "no more" can be said
    wanted = {
        resource.RLIMIT_CPU: order["cpu_seconds"],
        resource.RLIMIT_AS: order["memory"],
        resource.RLIMIT_FSIZE: order["file_bytes"],
        resource.RLIMIT_NOFILE: order["open_files"],
        resource.RLIMIT_NPROC: _THREADS if apart else 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS refuses some
            resource.setrlimit(kind, (bound, bound))


def execute(parts: list[str], nonce: str) -> str:
    """Run the parts in one module: the nonce if all came to their end, the reason if not."""
    module = types.ModuleType("answer")  # not __main__: what is meant for a script is left out
    sys.modules["answer"] = module
    try:
        codes = [compile(part, "<answer>", "exec", dont_inherit=True) for part in parts]
        sys.addaudithook(guard(Path.cwd()))
        for code in codes:
            exec(code, module.__dict__)
    except MemoryError:
        module.__dict__.clear()  # or there may not be enough left to say so
        return "killed (memory)"
    except BaseException as error:  # SystemExit and KeyboardInterrupt too
        return reason(error)
    return nonce


def reason(error: BaseException) -> str:
    """An error in one line; the text of an error is code of the program, and may fail itself."""
    try:
        text = " ".join(str(error).split())
    except BaseException:
        text = ""
    return f"failed: {type(error).__name__}{': ' if text else ''}{text}"[:_LONGEST]


def guard(home: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that refuses other processes, connections, and changes to files outside of home."""
    home, null, me = home.resolve(), Path(os.devnull).resolve(), os.getpid()

    def inside(path: Any, folder: int | None) -> bool:
        if isinstance(path, int):  # a descriptor that is open already
            return True
        start = Path() if folder is None or folder < 0 else Path(f"/proc/self/fd/{folder}").readlink()
        real = (start / os.fsdecode(path)).resolve()
        return real == null or real.is_relative_to(home)

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if flags & _WRITING and not inside(path, None):
                raise PermissionError(f"writing {path!r} outside of the working directory is refused")
        elif event in _CHANGES:
            for path, folder in _CHANGES[event]:
                start = None if folder is None or folder >= len(arguments) else arguments[folder]
                if not inside(arguments[path], start):
                    raise PermissionError(f"{event} outside of the working directory is refused")
        elif event in _REFUSED or (event in ("os.kill", "os.killpg") and arguments[0] != me):
            raise PermissionError(f"{event} is refused")

    return check


if __name__ == "__main__":
    main()
