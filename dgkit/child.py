# SPDX-License-Identifier: Apache-2.0
"""Processes that end with this one: of this Python, which run a module of dgkit, or others."""

from __future__ import annotations

import _thread
import os
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

from .threads import starting

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO

_PDEATHSIG = 1  # of prctl(2)
_EXECUTE = f"""
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl({_PDEATHSIG}, signal.SIGKILL, 0, 0, 0)
for number in (signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
if os.getppid() == int(sys.argv[1]):
    try:
        os.execv(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{{sys.argv[2]}}: {{error.strerror}}")
"""


def end_with_starter() -> None:
    """Have the kernel kill this process when the thread that started it ends (prctl(2))."""
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def bound(command: Sequence[str | os.PathLike[str]], path: str | None = None) -> list[str]:
    """Return a command that runs a program until the thread that starts it ends.

    The kernel kills it then, also after SIGKILL; but not what it has started itself.

    Raises:
        FileNotFoundError: There is no such program.
    """
    import errno
    import shutil

    name, *arguments = [os.fspath(part) for part in command]
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "no such program that may be executed", name)
    return [sys.executable, "-I", "-S", "-c", _EXECUTE, str(os.getpid()), found, *arguments]


def start_program(
    command: Sequence[str | os.PathLike[str]], stdout: IO[str], env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program without input that is killed when this process ends: see bound().

    Raises:
        FileNotFoundError: There is no such program.
    """

    def process() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            bound(command, env.get("PATH")),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stdout,
            env=env,
        )

    return _start(process)


def start(
    module: str,
    theirs: socket.socket,
    *,
    stdout: int = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that calls `main(fd)` of a module and exits with what it returns.

    The process has this one's `sys.path`, so that both run the same dgkit, and a session of its
    own, so that signals of the terminal do not reach it. It must end by itself when the other end
    of `theirs` is closed. A thread starts it and waits for its end, so that it is never a zombie.

    Args:
        module: Full name of the module.
        theirs: Socket that the process inherits; closed in this process.
        stdout: Where its output goes.
        env: Its environment; default: this process's.
    """
    program = (  # not -m: a file in the working directory could shadow the module
        "import sys; sys.path[:] = sys.argv.pop().split(':'); "
        f"from {module} import main; sys.exit(main(int(sys.argv[1])))"
    )
    search = ":".join(path or str(Path.cwd()) for path in sys.path)

    def process() -> subprocess.Popen[bytes]:
        with theirs:
            return subprocess.Popen(
                [sys.executable, "-c", program, str(theirs.fileno()), search],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=env,
            )

    return _start(process)


def _start(starts: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Call a function that starts a process, in a thread that waits for the process's end."""
    started: SimpleQueue[subprocess.Popen[bytes] | BaseException] = SimpleQueue()

    def run() -> None:
        try:
            process = starts()
        except BaseException as error:
            started.put(error)
            return
        started.put(process)
        process.wait()

    # not threading.Thread: an interrupted start() may leave it in a table, with a socket open
    with starting("a process of dgkit"):
        _thread.start_new_thread(run, ())
    result = started.get()
    if isinstance(result, BaseException):
        raise result
    return result
