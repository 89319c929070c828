# SPDX-License-Identifier: Apache-2.0
"""System limits: locked memory, page size, open files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ...units import size_text
from .. import finding, references
from ..collect.reader import Reading
from ..facts import pairs
from ..facts.cmdline import add_parameter
from ..facts.privileges import IPC_LOCK, holds
from ..facts.uname import uname
from ..facts.virtual import container
from ..finding import Finding
from ..goals import WITH_CARD, WITH_GPU, Goal
from ..machine import Case, Machine
from ..prerequisites import device, readable
from ..registry import check

_CMA = re.compile(r"^(CmaTotal|CmaFree): {1,20}(\d{1,12}) kB$", re.MULTILINE | re.ASCII)
_DRIFT = 64 << 10  # kB: the kernel counts free pages approximately


def kept_by_handover(machine: Machine) -> int:
    """Return the bytes that kexec handover keeps from being locked; 0 if none or not known.

    They count as free CMA, and are of no area of CMA: CmaFree is larger than CmaTotal.

    Source: NVIDIA/NV-Kernels, pull request 591.
    """
    found = dict(_CMA.findall(machine.read.text("/proc/meminfo").text))
    free, total = (int(found.get(name, "0")) for name in ("CmaFree", "CmaTotal"))
    return (free - total) << 10 if free - total > _DRIFT else 0


_MIN_FILES = 1024  # the usual default; a region uses two or three, a connection a few
_PLENTY = 1 << 30  # bytes of locked memory
_MEMLOCK_SOURCES = (
    references.RED_HAT_RDMA("Increasing the amount of memory that users are allowed to pin"),
    references.GETRLIMIT("RLIMIT_MEMLOCK"),
)


def _soft_and_hard(reading: Reading) -> tuple[int | None, int | None] | None:
    """Return the soft and hard limit, each None if unlimited; None if they are not known."""
    limits = reading.data
    if not isinstance(limits, Mapping) or not {"soft", "hard"} <= limits.keys():
        return None
    soft, hard = limits["soft"], limits["hard"]
    known = all(limit is None or _is_size(limit) for limit in (soft, hard))
    return (soft, hard) if known else None


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


def _unread(name: str, is_known: Callable[[Reading], object]) -> Callable[[Case], str]:
    """Return a function that says why a system query gave no answer; "" if the answer is known."""

    def why(case: Case) -> str:
        reading = case.machine.read.ask(name)
        return "" if is_known(reading) else reading.why or "the system returned no number"

    return why


_PAGE = references.CUDA_DRIVER_API("cuMemGetHandleForAddressRange")
_NOFILE = references.GETRLIMIT("RLIMIT_NOFILE")


@check(
    "memlock",
    "Locked memory",
    asks="May a program lock as much memory as it registers with a NIC?",
    goals=WITH_CARD,
    sources=_MEMLOCK_SOURCES,
    needed="unlimited",
    requires=[
        device(lambda case: pairs.peers(case.machine, case.goal), "no NIC to register memory with"),
        readable(_unread("memlock", _soft_and_hard), "not read"),
    ],
)
def _memlock(case: Case) -> Finding:
    exempt = holds(case.machine, IPC_LOCK)
    soft, hard = _soft_and_hard(case.machine.read.ask("memlock")) or (None, None)
    unlimited = soft is None or soft >= max(case.size, _PLENTY) or exempt
    if unlimited and (kept := case.machine.know(kept_by_handover)):
        return _kexec_handover(case.machine, kept)
    if soft is None:
        return finding.ok("unlimited")
    if exempt is None:
        found, why = size_text(soft), "Whether root has CAP_IPC_LOCK is not known: "
        why += "/proc/self/status was not read."
        return finding.unknown(found, why=why)
    if soft >= max(case.size, _PLENTY):
        why = "Registering host memory locks it: a process can register that much at most."
        return finding.ok(size_text(soft), why=why)
    if exempt:
        found = f"{size_text(soft)}, which does not apply to this user"
        return finding.ok(found)
    return _limited(case, soft, hard)


def _kexec_handover(machine: Machine, kept: int) -> Finding:
    release = machine.know(uname).release
    return finding.warn(
        f"{size_text(kept)} of memory cannot be locked",
        why=f"Kexec handover of Linux {release} keeps it. When other memory is scarce, registering "
        "memory with a NIC fails with 'Cannot allocate memory', whatever the limit.",
        remedy=[
            "# Without handover, which only kexec needs; or start the kernel before this one:",
            add_parameter(machine, "kho=off", "kho"),
        ],
        sources=[references.KEXEC_HANDOVER()],
    )


def _limited(case: Case, soft: int, hard: int | None) -> Finding:
    """Return the finding on a finite limit that applies to this process."""
    enough = soft >= case.size
    make = finding.warn if enough else finding.fail
    why = f"Registering host memory locks it: a process can register {size_text(soft)} at most. "
    why += "That holds for GPU memory through nvidia-peermem, too; as a dma-buf it locks none."
    return make(
        size_text(soft),
        needed="unlimited" if enough else f"unlimited, at least {size_text(case.size)}",
        why=why,
        remedy=_raise_memlock(case.machine, hard),
    )


_QUEUES = 1 << 20  # bytes: a completion queue of 4,096 entries and two work queues


@check(
    "memlock-queues",
    "Locked memory for queues",
    asks="May a program lock the memory of an RDMA device's queues?",
    goals={Goal.RDMA, Goal.GPUNETIO},
    sources=_MEMLOCK_SOURCES,
    requires=[device(lambda case: pairs.peers(case.machine, case.goal), "no NIC with queues")],
)
def _memlock_queues(case: Case) -> Finding:
    known, exempt = _soft_and_hard(case.machine.read.ask("memlock")), holds(case.machine, IPC_LOCK)
    needed = size_text(_QUEUES)
    if known is None or (known[0] is not None and known[0] < _QUEUES and exempt is None):
        why = "The limit, or whether it applies to this user, is not known: see memlock."
        return finding.unknown("?", needed=needed, why=why)
    if known[0] is None or known[0] >= _QUEUES or exempt:
        return finding.ok("enough", needed=needed)
    return finding.fail(
        size_text(known[0]),
        needed=f"unlimited, at least {needed}",
        why="The queues of an RDMA device are locked memory, whatever is transferred: "
        "creating one fails with 'Cannot allocate memory'.",
        remedy=_raise_memlock(case.machine, known[1]),
    )


def _raise_memlock(machine: Machine, hard: int | None) -> list[str]:
    if engine := machine.know(container).engine:
        if engine == "Kubernetes":
            return ["# In the pod: securityContext: capabilities: add: [IPC_LOCK]"]
        return [f"# Start the container with --ulimit memlock=-1 ({engine})"]
    if hard is None:
        return ["ulimit -l unlimited  # in the shell that starts the program"]
    return [
        "echo '* - memlock unlimited' | sudo tee /etc/security/limits.d/99-memlock.conf",
        "# log in again; for a service of systemd: LimitMEMLOCK=infinity",
    ]


@check(
    "page-size",
    "Page size",
    asks="How large are the pages, in units of which memory is shared?",
    goals=WITH_GPU,
    sources=[_PAGE],
    needed="4 KiB to 64 KiB",
    requires=[
        readable(
            _unread("page-size", lambda reading: _is_size(reading.data) and reading.data),
            "not read",
        )
    ],
)
def _page_size(case: Case) -> Finding:
    size = case.machine.read.ask("page-size").data
    if size <= 4096:
        return finding.ok(size_text(size))
    why = (
        f"A dma-buf begins and ends at a multiple of {size_text(size)}: the rest of the first "
        "and last page is shared, too."
    )
    make = finding.ok if size <= 65536 else finding.warn
    remedy = [] if size <= 65536 else ["# Boot a kernel with pages of 4 or 64 KiB"]
    return make(size_text(size), why=why, remedy=remedy)


@check(
    "open-files",
    "Open files",
    asks="May a process open as many files as regions and connections need?",
    sources=[_NOFILE],
    needed=f"{_MIN_FILES}",
    requires=[readable(_unread("open-files", _soft_and_hard), "not read")],
)
def _open_files(case: Case) -> Finding:
    soft, hard = _soft_and_hard(case.machine.read.ask("open-files")) or (None, None)
    found = "unlimited" if soft is None else f"{soft}"
    if soft is None or soft >= _MIN_FILES:
        return finding.ok(found)
    more = "4096" if hard is None or hard >= 4096 else f"{hard}"
    return finding.warn(
        found,
        why="An exported or imported region keeps two or three files open, a connection a few.",
        remedy=[f"ulimit -n {more}  # in the shell that starts the program"],
    )
