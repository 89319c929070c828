"""Processes of this Python that run a module of dgkit."""

from __future__ import annotations

import _thread
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping


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
    started: SimpleQueue[subprocess.Popen[bytes] | BaseException] = SimpleQueue()

    def run() -> None:
        try:
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-c", program, str(theirs.fileno()), search],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env=env,
                )
        except BaseException as error:
            started.put(error)
            return
        started.put(process)
        process.wait()

    # not threading.Thread: an interrupted start() may leave it in a table, with `theirs` open
    _thread.start_new_thread(run, ())
    result = started.get()
    if isinstance(result, BaseException):
        raise result
    return result
