"""A reader of this machine, now. It changes nothing and needs no rights."""

from __future__ import annotations

import os
import platform
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .crew import Crew, Job
from .reader import Reader
from .reading import Reading

__all__ = ["ASKED", "COMMAND_S", "FAST_S", "FULL_S", "Live"]

FULL_S, FAST_S = 10.0, 2.0  # for all checks together
COMMAND_S = 5.0  # for one command
_TEXT_MOST = 1 << 20
_RAW_MOST = 4096
# Where what DOCA, MLNX_OFED and the CUDA toolkit install lies, for who has no such PATH.
_PLACES = (
    *("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/cuda/bin"),
    *("/opt/mellanox/doca/tools", "/opt/mellanox/ethtool/sbin"),
)


def _limit(which: int) -> dict[str, int | None]:
    soft, hard = resource.getrlimit(which)
    return {
        "soft": None if soft == resource.RLIM_INFINITY else soft,
        "hard": None if hard == resource.RLIM_INFINITY else hard,
    }


_ENVIRON = (
    *("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GDRCOPY_PATH_L", "CUDA_HOME"),
    *("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "SOFTDOCA_LIB", "SOFTDOCA_SIDE"),
)
_UNAME = ("system", "node", "release", "version", "machine")
# What `ask` may be. None: there is no limit, or it is not set.
ASKED: dict[str, Callable[[], Any]] = {
    "uname": lambda: dict(zip(_UNAME, os.uname(), strict=True)),
    "page-size": lambda: os.sysconf("SC_PAGE_SIZE"),
    "memlock": lambda: _limit(resource.RLIMIT_MEMLOCK),
    "open-files": lambda: _limit(resource.RLIMIT_NOFILE),
    "euid": os.geteuid,
    "cpus": lambda: sorted(os.sched_getaffinity(0)),
    "libc": lambda: list(platform.libc_ver()),
    "python": platform.python_version,
    "hostname": socket.gethostname,
    "environ": lambda: {name: os.environ[name] for name in _ENVIRON if name in os.environ},
}


class Live(Reader):
    """Looks at this machine, each thing once. All of it ends `limit_s` after it was made."""

    def __init__(self, limit_s: float = FULL_S) -> None:
        self.until = time.monotonic() + limit_s
        self.limit_s = limit_s
        self._crew = Crew("dgkit-doctor-read")
        self._lock = threading.Lock()
        self._jobs: dict[str, Job[Reading]] = {}

    def read(self, key: str) -> Reading:
        """Looks, or hands out what the first look gave."""
        try:
            return self._start(key).result(self.until)
        except TimeoutError:
            return Reading(fault="late", why=f"no answer within {self.limit_s:g} s")

    def together(self, keys: Sequence[str]) -> list[Reading]:
        """Begins all of them, then waits."""
        for key in keys:
            self._start(key)
        return [self.read(key) for key in keys]

    def seen(self) -> dict[str, Reading]:
        """All that was read so far."""
        with self._lock:
            keys = [key for key, job in self._jobs.items() if job.done]
        return {key: self.read(key) for key in sorted(keys)}

    def _start(self, key: str) -> Job[Reading]:
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = self._crew.start(lambda: self._look(key))
        return job

    def _look(self, key: str) -> Reading:
        kind, _, what = key.partition(" ")
        try:
            return _LOOKS[kind](self, what)
        except (FileNotFoundError, NotADirectoryError):
            return Reading(fault="absent", why=f"there is no {what}")
        except PermissionError:
            return Reading(fault="denied", why=f"{what} may be read by root alone")
        except OSError as error:
            return Reading(fault="failed", why=f"{what}: {error.strerror or error}")

    def _text(self, path: str) -> Reading:
        with Path(path).open("rb") as file:
            return Reading(text=file.read(_TEXT_MOST).decode("utf-8", "replace"))

    def _raw(self, path: str) -> Reading:
        with Path(path).open("rb") as file:
            return Reading(raw=file.read(_RAW_MOST))

    def _names(self, path: str) -> Reading:
        return Reading(names=tuple(sorted(os.listdir(path))))  # noqa: PTH208 (names are wanted)

    def _link(self, path: str) -> Reading:
        return Reading(text=str(Path(path).resolve(strict=True)))

    def _ask(self, what: str) -> Reading:
        return Reading(data=ASKED[what]())

    def _run(self, line: str) -> Reading:
        return self._command(shlex.split(line))

    def _probe(self, line: str) -> Reading:
        import msgspec

        command = [sys.executable, "-m", "dgkit.doctor.probes", *shlex.split(line)]
        ran = self._command(command)
        if ran.fault or ran.code:
            return Reading(fault=ran.fault or "failed", why=ran.why or ran.said.strip()[-300:])
        try:
            return Reading(data=msgspec.json.decode(ran.text))
        except msgspec.DecodeError as error:
            return Reading(fault="failed", why=f"the probe {line} answered no JSON: {error}")

    def _command(self, command: list[str]) -> Reading:
        path = os.pathsep.join([os.environ.get("PATH", os.defpath), *_PLACES])
        found = shutil.which(command[0], path=path)
        if found is None:
            return Reading(fault="absent", why=f"there is no command {command[0]}")
        limit = min(COMMAND_S, self.until - time.monotonic())
        environ = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C", "PATH": path}
        with subprocess.Popen(
            [found, *command[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=environ, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                out, said = process.communicate(timeout=max(0.05, limit))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                why = f"{command[0]} gave no answer within {limit:.1f} s"
                return Reading(fault="late", why=why)
        text, words = (part[:_TEXT_MOST].decode("utf-8", "replace") for part in (out, said))
        return Reading(text=text, said=words, code=process.returncode)


_LOOKS: dict[str, Callable[[Live, str], Reading]] = {
    "text": Live._text,
    "raw": Live._raw,
    "names": Live._names,
    "link": Live._link,
    "run": Live._run,
    "ask": Live._ask,
    "probe": Live._probe,
}
