"""Processes of this Python that run a module of dgkit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Mapping


def start(
    module: str, fd: int, *, stdout: int = subprocess.DEVNULL, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that calls `main(fd)` of a module and exits with what it returns.

    The process has this one's `sys.path`, so that both run the same dgkit, and a session of its
    own, so that Ctrl-C in the terminal does not reach it. It is to end by itself when the other end
    of `fd`, a socket, is closed.

    Args:
        module: Full name of the module.
        fd: Descriptor that the process inherits.
        stdout: Where its output goes.
        env: Its environment; default: this process's.
    """
    program = (  # not -m: a file in the working directory could shadow the module
        "import sys; sys.path[:] = sys.argv.pop().split(':'); "
        f"from {module} import main; sys.exit(main(int(sys.argv[1])))"
    )
    search = ":".join(path or str(Path.cwd()) for path in sys.path)
    return subprocess.Popen(
        [sys.executable, "-c", program, str(fd), search],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        pass_fds=(fd,),
        start_new_session=True,
        env=env,
    )
