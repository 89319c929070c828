"""Limits of the system: locked memory, page size, open files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...units import size_text
from .. import finding, references
from ..collect.reading import Reading
from ..facts import pci
from ..finding import Finding
from ..goals import WITH_GPU
from ..machine import Case, Machine
from ..registry import check
from ._per_gpu import none

_FILES = 1024  # what systems give a process at first; a region takes two, a connection a few
_MEMLOCK_SOURCES = (
    references.RED_HAT_RDMA("Increasing the amount of memory that users are allowed to pin"),
    references.GETRLIMIT("RLIMIT_MEMLOCK"),
)


def _soft_and_hard(reading: Reading) -> tuple[int | None, int | None] | None:
    """The two limits, None for one that is not set; None if they are not known."""
    said = reading.data
    if not isinstance(said, Mapping) or not {"soft", "hard"} <= said.keys():
        return None
    soft, hard = said["soft"], said["hard"]
    return (soft, hard) if all(one is None or _is_size(one) for one in (soft, hard)) else None


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


_IPC_LOCK = 1 << 14  # linux/capability.h


def _is_free(machine: Machine) -> bool | None:
    """Whether the limit does not bind: who has CAP_IPC_LOCK, as root has outside of containers.

    None: root's rights are not told.
    """
    status, euid = machine.read.together(["text /proc/self/status", "ask euid"])
    match = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", status.text, re.MULTILINE)
    if status.fault not in ("", "absent") and euid.data == 0:
        return None
    return bool(int(match[1], 16) & _IPC_LOCK) if match else euid.data == 0


@check("memlock", "Locked memory", goals=WITH_GPU)
def memlock(case: Case) -> Iterator[Finding]:
    """May a program lock as much memory as is to be registered with a NIC?"""
    if not any(one.vendor == pci.MELLANOX for one in case.machine.know(pci.tree).nics):
        yield none(case.machine, "no NIC to register memory with")
        return
    reading = case.machine.read.ask("memlock")
    known, free = _soft_and_hard(reading), _is_free(case.machine)
    if known is None:
        why = reading.why or "the system gave no number"
        yield finding.unknown("?", needed="unlimited", why=f"{why}.", sources=_MEMLOCK_SOURCES)
        return
    soft, hard = known
    if soft is not None and free is None:
        why = "Whether this root's rights are whole is not known: /proc/self/status was not read."
        yield finding.unknown(
            size_text(soft), needed="unlimited", why=why, sources=_MEMLOCK_SOURCES
        )
        return
    if soft is None or free:
        found = "unlimited" if soft is None else f"{size_text(soft)}, which does not bind this user"
        yield finding.ok(found, needed="unlimited", sources=_MEMLOCK_SOURCES)
        return
    enough = soft >= case.size
    say = finding.warn if enough else finding.fail
    why = f"Registering host memory locks it: more than {size_text(soft)} of a process is refused. "
    why += "GPU memory that is a dma-buf locks none."
    yield say(
        size_text(soft),
        needed="unlimited" if enough else f"unlimited, at least {size_text(case.size)}",
        why=why,
        remedy=_unlock(hard),
        sources=_MEMLOCK_SOURCES,
    )


def _unlock(hard: int | None) -> list[str]:
    if hard is None:
        return ["ulimit -l unlimited  # in the shell that starts the program"]
    return [
        "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/99-memlock.conf",
        "# log in again; a service wants LimitMEMLOCK=infinity, docker --ulimit memlock=-1",
    ]


@check("page-size", "Page size", goals=WITH_GPU)
def page_size(case: Case) -> Iterator[Finding]:
    """How large are the pages, in which memory is lent?"""
    reading = case.machine.read.ask("page-size")
    size, used = reading.data, [references.CUDA_DRIVER_API("cuMemGetHandleForAddressRange")]
    if not _is_size(size) or size < 1:
        why = f"{reading.why or 'the system gave no number'}."
        yield finding.unknown("?", needed="4 KiB to 64 KiB", why=why, sources=used)
    elif size <= 4096:
        yield finding.ok(size_text(size), needed="4 KiB to 64 KiB", sources=used)
    else:
        why = (
            f"A dma-buf begins and ends at a multiple of {size_text(size)}: the pages around what "
            "you ask for are lent."
        )
        say = finding.ok if size <= 65536 else finding.warn
        remedy = [] if size <= 65536 else ["# Boot a kernel with pages of 4 or 64 KiB"]
        yield say(size_text(size), needed="4 KiB to 64 KiB", why=why, remedy=remedy, sources=used)


@check("open-files", "Open files")
def open_files(case: Case) -> Iterator[Finding]:
    """May a process open as many files as regions and connections need?"""
    reading = case.machine.read.ask("open-files")
    known, used = _soft_and_hard(reading), [references.GETRLIMIT("RLIMIT_NOFILE")]
    if known is None:
        why = f"{reading.why or 'the system gave no number'}."
        yield finding.unknown("?", needed=f"{_FILES}", why=why, sources=used)
        return
    soft, hard = known
    found = "unlimited" if soft is None else f"{soft}"
    if soft is None or soft >= _FILES:
        yield finding.ok(found, needed=f"{_FILES}", sources=used)
        return
    more = "4096" if hard is None or hard >= 4096 else f"{hard}"
    yield finding.warn(
        found,
        needed=f"{_FILES}",
        why="A region that is lent or imported holds two or three files open, a connection a few.",
        remedy=[f"ulimit -n {more}  # in the shell that starts the program"],
        sources=used,
    )
