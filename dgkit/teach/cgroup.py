# SPDX-License-Identifier: Apache-2.0
"""Limits of memory and processes that hold for all processes of a submission together.

systemd makes a scope for each submission where it runs. Elsewhere the grader makes a cgroup beside
or below its own, if it may. Sources: systemd.resource-control(5); the kernel's admin-guide,
cgroup-v2.rst, cgroup-v1/memory.rst and cgroup-v1/pids.rst.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

_SYSTEMD = Path("/run/systemd/system")  # exists where systemd runs: sd_booted(3)
_PREFIX = "dgkit-grader-"
# $1: number of cgroups to enter, their cgroup.procs, then the command.
_ENTER = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do echo 0 > "$1" || exit 1; shift; n=$((n-1)); done; '
    'exec "$@"'
)


class NoCgroup(Exception):
    """Raised if no cgroup can be made; the text is the reason."""


def command(memory_bytes: int, processes: int) -> tuple[str, ...]:
    """Return words before a command that limit its memory, swap included, and its tasks.

    Raises:
        NoCgroup: Neither systemd nor this process can make a cgroup.
    """
    if _SYSTEMD.is_dir() and shutil.which("systemd-run"):
        user = ("--user",) if os.geteuid() else ()
        limits = (f"MemoryMax={memory_bytes}", "MemorySwapMax=0", f"TasksMax={processes}")
        options = (f"--property={limit}" for limit in limits)
        return ("systemd-run", *user, "--scope", "--quiet", "--collect", *options, "--")
    entries = [str(folder / "cgroup.procs") for folder in _folders(memory_bytes, processes)]
    return ("sh", "-c", _ENTER, "sh", str(len(entries)), *entries)


@functools.cache
def _folders(memory_bytes: int, processes: int) -> tuple[Path, ...]:
    """Create cgroups with these limits, removed when this process ends: one of v2, or two of v1."""
    name = f"{_PREFIX}{os.getpid()}-{memory_bytes}-{processes}"
    try:
        own = _own_folders()
        if {"memory", "pids"} <= {*own}:
            of_memory = {
                "memory.limit_in_bytes": memory_bytes,
                "memory.memsw.limit_in_bytes": memory_bytes,
            }
            return (
                _make(own["memory"] / name, of_memory),
                _make(own["pids"] / name, {"pids.max": processes}),
            )
        limits = {
            "memory.max": memory_bytes,
            "memory.swap.max": 0,
            "memory.oom.group": 1,
            "pids.max": processes,
        }
        return (_make(_parent_v2(own) / name, limits),)
    except OSError as exc:
        raise NoCgroup(f"systemd does not run here, and a cgroup cannot be made: {exc}") from None


def _own_folders() -> dict[str, Path]:
    """Return the folder of this process's cgroup for each controller; "" is cgroup v2.

    Sources: cgroups(7), proc_pid_mountinfo(5).
    """
    paths: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        (_, _, _, root, mount, *_), (kind, _, options) = left.split(), right.split(" ", 2)
        names = options.split(",") if kind == "cgroup" else [""] if kind == "cgroup2" else []
        for name in {*names} & {*paths}:
            inside = os.path.relpath(paths[name], root)
            if not inside.startswith(".."):
                found.setdefault(name, Path(mount, inside))
    return found


def _parent_v2(own: Mapping[str, Path]) -> Path:
    """Return a folder below which cgroups of v2 can have limits: this process's, or its parent.

    Only the root may have both processes and limited children.
    """
    if "" not in own:
        raise FileNotFoundError("no cgroup file system is mounted")
    why: OSError = FileNotFoundError("its controllers lack memory or pids")
    for folder in (own[""], own[""].parent):
        names = folder / "cgroup.controllers"
        if not names.is_file() or not {"memory", "pids"} <= {*names.read_text().split()}:
            continue
        try:
            (folder / "cgroup.subtree_control").write_text("+memory +pids")
        except OSError as exc:
            why = exc
        else:
            return folder
    raise why


def _make(folder: Path, limits: Mapping[str, int]) -> Path:
    """Make a cgroup, and remove those of graders that have ended."""
    _remove(
        path
        for path in folder.parent.glob(f"{_PREFIX}*")
        if not Path("/proc", path.name.removeprefix(_PREFIX).partition("-")[0]).exists()
    )
    folder.mkdir()
    atexit.register(_remove, [folder])
    for name, value in limits.items():
        if (folder / name).exists():  # a kernel without swap has no limits of swap
            (folder / name).write_text(str(value))
    return folder


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # its processes still end, or another grader was faster
            folder.rmdir()
