# SPDX-License-Identifier: Apache-2.0
"""Run a command that can access only some files, and no process outside: Linux's Landlock.

    python landlock.py FOLDER PATH ... --names PATH ... -- COMMAND ...

The command can read and run what is below each PATH, list the names below those after --names, and
write in a new folder in FOLDER. It needs no rights. This module imports only the standard library,
because it runs as a file, before the search path of modules is known. Source: the kernel's
userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import tempfile
from collections.abc import Sequence

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on all architectures of Linux
_VERSION, _PATH_BENEATH, _NO_NEW_PRIVS = 1, 1, 38
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14  # execute, write, read, truncate
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, list a folder
_LIST = 1 << 3
# Rights over files that each version adds.
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_TCP_SINCE, _TCP = 4, 0b11
_SCOPES_SINCE, _SCOPES = 6, 0b11  # abstract sockets, signals
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))


def version() -> int:
    """Return the version of the kernel's Landlock, 0 if there is none."""
    return max(0, int(ctypes.CDLL(None).syscall(_CREATE, None, 0, _VERSION)))


def missing() -> tuple[str, ...]:
    """Return what Landlock of this kernel does not prevent."""
    found = version()
    network = "the network but for TCP" if found >= _TCP_SINCE else "the network"
    signals = () if found >= _SCOPES_SINCE else ("signals to other processes (Linux 6.12)",)
    return (network, "Unix sockets with a name", "the names of files", *signals)


def restrict(readable: Sequence[str], listed: Sequence[str], writable: Sequence[str]) -> None:
    """Restrict this thread, and what it will start, for ever.

    Raises:
        OSError: The kernel has no Landlock.
    """
    found = version()
    rights = sum(bits for since, bits in _RIGHTS.items() if found >= since)
    tcp = _TCP if found >= _TCP_SINCE else 0
    scopes = _SCOPES if found >= _SCOPES_SINCE else 0
    sizes = {_SCOPES_SINCE: 24, _TCP_SINCE: 16, 0: 8}
    size = next(size for since, size in sizes.items() if found >= since)
    attributes = struct.pack("=QQQ", rights, tcp, scopes)[:size]
    rules = _system_call(_CREATE, attributes, size, 0)
    for paths, wanted in ((readable, _READ), (listed, _LIST), (writable, ~0)):
        for path in paths:
            _allow_path(rules, path, rights & wanted)
    libc = ctypes.CDLL(None)
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    _system_call(_RESTRICT, rules, 0)
    os.close(rules)


def _allow_path(rules: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(path):  # noqa: PTH112
        rights &= _FILE
    _system_call(_ADD, rules, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    os.close(fd)


def _system_call(number: int, *arguments: int | bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if (result := int(libc.syscall(number, *arguments))) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result


def main() -> None:
    """Restrict this process, and become the command."""
    names, at = sys.argv.index("--names"), sys.argv.index("--")
    root, *readable = sys.argv[1:names]
    own = tempfile.mkdtemp(dir=root)
    os.chmod(own, 0o777)  # noqa: PTH101 - the command may change its user
    os.environ |= {"HOME": own, "TMPDIR": own}
    os.chdir(own)
    restrict(readable, sys.argv[names + 1 : at], [own, *_DEVICES])
    os.execvp(sys.argv[at + 1], sys.argv[at + 1 :])


if __name__ == "__main__":
    main()
