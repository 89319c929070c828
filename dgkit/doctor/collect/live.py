# SPDX-License-Identifier: Apache-2.0
"""Reader of this machine. It changes nothing and needs no privileges."""

from __future__ import annotations

import errno
import glob
import itertools
import os
import platform
import re
import resource
import shlex
import socket
import stat
import sys
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...unique import Closable
from ..executor import Executor, Job
from .commands import Commands
from .reader import KINDS, Reader, Reading, note

FULL_S, FAST_S = 10.0, 0.7  # time limits for all checks together
# A recording is not waited for at a terminal, and the Arm cores of a BlueField are slow: a probe of
# dgkit itself, which imports it, takes there what the whole run takes on a host.
RECORD_S, RECORD_COMMAND_S = 60.0, 30.0
_PROGRAM_S = 3.0  # a process older than this was not started for this run
_LEAST_S = 0.3
FILE_S = 3.0  # time limit for one file: the driver may have to wake a GPU first
_MAX_TEXT = 1 << 20
_MAX_RAW = 4096
_MAX_NAMES = 1 << 16


def fast_limit() -> float:
    """Return FAST_S, less the age of this process if it is a program that was just started."""
    age = _age()
    return max(FAST_S - age, _LEAST_S) if age < _PROGRAM_S else FAST_S


def _age() -> float:
    """Return the seconds since this process was started (proc_pid_stat(5), starttime)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def _limit(which: int) -> dict[str, int | None]:
    """Return a resource limit; None means unlimited."""
    soft, hard = resource.getrlimit(which)
    return {
        "soft": None if soft == resource.RLIM_INFINITY else soft,
        "hard": None if hard == resource.RLIM_INFINITY else hard,
    }


def _dgkit_versions() -> dict[str, str | int]:
    from ..._version import __version__
    from ...wire.messages import VERSION

    return {"version": __version__, "wire": VERSION}


_PACKAGES = (
    *("jupyterlab", "ipython", "ipywidgets", "anywidget", "bokeh", "matplotlib", "numpy"),
    *("cupy-cuda13x", "cupy-cuda12x", "cupy", "cuda-core", "cuda-bindings"),
)


def _packages() -> dict[str, str]:
    """Return the versions of installed packages, "" for those that are not installed."""
    from importlib import metadata

    def version(name: str) -> str:
        try:
            return str(metadata.version(name))
        except metadata.PackageNotFoundError:
            return ""

    return {name: version(name) for name in _PACKAGES}


# Device files that are opened and closed: none of them wakes a GPU.
_OPENED = (
    *("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/gdrdrv", "/dev/infiniband/uverbs*"),
    "/dev/nvidia-caps-imex-channels/channel*",
)
_MAX_OPENED = 64


def _device_files() -> dict[str, str]:
    """Try to open device files; return the error name for each path, "" if it was opened."""
    found = {}
    paths = (path for pattern in _OPENED for path in sorted(glob.glob(pattern)))  # noqa: PTH207
    for path in itertools.islice(paths, _MAX_OPENED):
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
            found[path] = ""
        except OSError as error:
            found[path] = errno.errorcode.get(error.errno or 0, "?")
    return found


_ENVIRON = ("CUDA_VISIBLE_DEVICES", "GDRCOPY_PATH_L", "SOFTDOCA_LIB")
_UNAME = ("system", "node", "release", "version", "machine")
# The system queries of `ask`.
QUERIES: dict[str, Callable[[], Any]] = {
    "uname": lambda: dict(zip(_UNAME, map(_printable, os.uname()), strict=True)),
    "page-size": lambda: os.sysconf("SC_PAGE_SIZE"),
    "memlock": lambda: _limit(resource.RLIMIT_MEMLOCK),
    "open-files": lambda: _limit(resource.RLIMIT_NOFILE),
    "address-space": lambda: _limit(resource.RLIMIT_AS),
    "euid": os.geteuid,
    "device-files": _device_files,
    "cpus": lambda: sorted(os.sched_getaffinity(0)),
    "libc": lambda: list(platform.libc_ver()),
    "python": platform.python_version,
    "dgkit": _dgkit_versions,
    "packages": _packages,
    "hostname": lambda: _printable(socket.gethostname()),
    "environ": lambda: {n: _printable(os.environ[n]) for n in _ENVIRON if n in os.environ},
}


class LiveReader(Reader, Closable):
    """Reader of this machine; reads each key only once and returns the same reading afterwards.

    All reads end at most `limit_s` seconds after construction, and each command after `command_s`,
    by default 5. close() stops running commands; it is called when the process exits.
    """

    def __init__(self, limit_s: float = FULL_S, command_s: float | None = None) -> None:
        self.until = time.monotonic() + limit_s
        self.limit_s, self._command_s = limit_s, command_s
        self._files = Executor("dgkit-doctor-read", spawn_delay_s=0.05)
        self._runs = Executor("dgkit-doctor-run")
        self._commands = Commands()
        self._lock = threading.Lock()
        self._jobs: dict[str, Job[Reading]] = {}
        self._late: dict[str, Reading] = {}
        self._finalizer = weakref.finalize(self, Commands.close, self._commands)

    def close(self) -> None:
        """Stop running commands. Reads after this return the fault "late"."""
        self.until = min(self.until, time.monotonic())
        self._finalizer()

    def read(self, key: str) -> Reading:
        """Return the reading of a key; later calls return the result of the first read.

        Raises:
            ValueError: The key does not begin with one of KINDS.
        """
        return note(key, self._read_once(key))

    def _read_once(self, key: str) -> Reading:
        job = self._start(key)
        if job is None:
            return self._late[key]
        limit = FILE_S if _is_file(key) else self.limit_s
        try:
            found = job.result(min(self.until, job.submitted_at + limit))
        except TimeoutError:
            with self._lock:
                if not job.done:  # a late reading stays late, for all callers
                    return self._late.setdefault(key, _too_late(limit))
            found = job.result(self.until)
        with self._lock:
            return self._late.get(key, found)

    def together(self, keys: Sequence[str]) -> list[Reading]:
        """Start all reads, then wait in reverse order: most are complete when the last one is."""
        for key in keys:
            self._start(key)
        found = [self.read(key) for key in reversed(keys)]
        return found[::-1]

    def seen(self) -> dict[str, Reading]:
        """Return all readings so far, by key."""
        with self._lock:
            done = [key for key, job in self._jobs.items() if job.done]
            keys = sorted({*done, *self._late})
        return {key: self.read(key) for key in keys}

    def _start(self, key: str) -> Job[Reading] | None:
        """Return the job of a key, started if it is new; None if the key is late without a job."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None or key in self._late:
                return job
            if key.partition(" ")[0] not in KINDS:
                raise ValueError(
                    f"unknown key {key!r}: it must begin with one of {', '.join(KINDS)}"
                )
            if time.monotonic() >= self.until:
                closed = not self._finalizer.alive
                self._late[key] = _DONE if closed else _too_late(self.limit_s)
                return None
            executor = self._files if _is_file(key) else self._runs
            job = self._jobs[key] = executor.submit(lambda: self._read(key))
        return job

    def _read(self, key: str) -> Reading:
        kind, _, what = key.partition(" ")
        try:
            return _READERS[kind](self, what)
        except (FileNotFoundError, NotADirectoryError):
            return Reading(fault="absent", why=f"there is no {what}")
        except PermissionError:
            return Reading(fault="denied", why=f"only root may read {what}")
        except OSError as error:
            return Reading(fault="failed", why=f"{what}: {error.strerror or error}")
        except (
            RuntimeError,
            ValueError,
            zlib.error,
        ) as error:  # a loop of symbolic links; a NUL in the path
            return Reading(fault="failed", why=f"{what}: {error}")

    def _text(self, path: str) -> Reading:
        found = _bytes(path, _MAX_TEXT)
        if path.endswith(".gz"):  # /proc/config.gz
            found = zlib.decompressobj(wbits=31).decompress(found, _MAX_TEXT)
        return Reading(text=found.decode("utf-8", "replace"))

    def _raw(self, path: str) -> Reading:
        return Reading(raw=_bytes(path, _MAX_RAW))

    def _names(self, path: str) -> Reading:
        with os.scandir(path) as entries:
            names = [_printable(entry.name) for entry in itertools.islice(entries, _MAX_NAMES)]
        return Reading(names=tuple(sorted(names)))

    def _link(self, path: str) -> Reading:
        return Reading(text=_printable(str(Path(path).resolve(strict=True))))

    def _query(self, what: str) -> Reading:
        return Reading(data=QUERIES[what]())

    def _run(self, line: str) -> Reading:
        return self._commands.run(shlex.split(line), self.until, limit_s=self._command_s)

    def _probe(self, line: str) -> Reading:
        import msgspec

        if not sys.executable:  # an embedded Python
            return Reading(fault="failed", why=f"no Python interpreter to run the probe {line}")
        ran = self._commands.run(_probe_command(line), self.until, limit_s=self._command_s)
        if ran.fault:
            return Reading(fault=ran.fault, why=f"the probe {line}: {ran.why}")
        if ran.code < 0:
            why = f"a library crashed the probe {line} (signal {-ran.code})"
            return Reading(fault="failed", why=why)
        try:
            return Reading(data=msgspec.json.decode(ran.text))
        except msgspec.DecodeError:
            last = ran.said.strip().rpartition("\n")[2]  # of a traceback: the error
            why = _FOLDERS.sub("", last)[-300:] or "no JSON"
            return Reading(fault="failed", why=f"the probe {line} failed: {why}")


_READERS: dict[str, Callable[[LiveReader, str], Reading]] = {
    "text": LiveReader._text,
    "raw": LiveReader._raw,
    "names": LiveReader._names,
    "link": LiveReader._link,
    "run": LiveReader._run,
    "ask": LiveReader._query,
    "probe": LiveReader._probe,
}


def _is_file(key: str) -> bool:
    return not key.startswith(("run ", "probe "))


_DONE = Reading(fault="late", why="the reader of this machine is closed")


def _too_late(limit: float) -> Reading:
    return Reading(fault="late", why=f"no answer within {limit:g} s")


def _printable(name: str) -> str:
    """Escape bytes that are not valid UTF-8 as \\udc.., so that the name can be printed."""
    return name.encode("utf-8", "backslashreplace").decode()


def _bytes(path: str, limit: int) -> bytes:
    """Read at most `limit` bytes of a file; refuse devices and pipes: opening has side effects."""
    mode = Path(path).stat().st_mode
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "a directory" if stat.S_ISDIR(mode) else "not a regular file")
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        parts, left = [], limit
        while left > 0 and (part := os.read(file, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(file)


# Of a file that an error names, the folders are the user's, and of no use to anyone else.
_FOLDERS = re.compile(r"(?<![\w.])~?(?:/[^\s/:'\"]+)*/(?=[^\s/:'\"])")


def _probe_command(line: str) -> list[str]:
    """Return the command of a probe: an isolated Python, or one with this process's sys.path."""
    if line in _DGKIT_PROBES:
        program = f"import sys; sys.path[:] = {sys.path!r}\n{_DGKIT_PROBES[line]}"
        return [sys.executable, "-c", program]
    probes = Path(__file__).with_name("probes.py")
    return [sys.executable, "-I", "-S", str(probes), *shlex.split(line)]


_DGKIT_PROBES = {
    "core": """
import json, platform, dgkit
from dgkit.installation import checkout
said = {"dgkit": dgkit.__version__, "python": platform.python_version(), "loaded": True, "why": ""}
said["checkout"] = checkout() is not None
try:
    import dgkit.dma
except Exception as error:
    said.update(loaded=False, why=str(error))
print(json.dumps(said))
""",
    "info": """
import json
from dgkit.cli.info_command import collect
print(json.dumps(collect(doca_functions=False)))
""",
}
