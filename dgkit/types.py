# SPDX-License-Identifier: Apache-2.0
"""Types shared by all layers: access, operations, statuses, paths, Memory; providers' labels."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag
from functools import lru_cache

TYPE_CHECKING = False  # importing typing costs more than this whole module
if TYPE_CHECKING:
    from typing import Protocol, TypeGuard
else:
    Protocol = object

PROVIDERS = ("soft", "cuda", "verbs", "doca", "softdoca", "fault")
DEFAULT_PROVIDER = "soft"  # where none is named
DOCA = frozenset({"doca", "softdoca"})  # providers that move bytes by libdoca's DMA tasks
OWN_EXPORT = DOCA | {"verbs"}  # providers that import only their own exports
_HARDWARE = frozenset({"doca"})
_SOFTWARE = {"fault": ", injected faults", "cuda": ", GPU copy engine", "softdoca": ", softdoca"}
_SOFTWARE["soft, emulated bar"] = ", emulated PCI bar"  # memory in a testbed's PCI BAR
MIXED = "mixed"  # path of several operations, some of them inline and some by the worker


class Access(IntFlag):
    """Operations that DMA may do on a region, seen from the side that moves the bytes."""

    READ = 1
    WRITE = 2
    RW = 3

    def __str__(self) -> str:
        return ("r" if self & Access.READ else "") + ("w" if self & Access.WRITE else "")


class Op(IntEnum):
    """READ copies from the remote region to the DPU, WRITE the other way.

    FETCH_ADD and COMPARE_SWAP are atomic operations on one word of 8 bytes of the remote region,
    whose old value goes to the DPU; not every provider has them (`Caps.atomics`).
    """

    READ = 0
    WRITE = 1
    FETCH_ADD = 2
    COMPARE_SWAP = 3


class TransferPath(str, Enum):
    """Executor of an operation: the calling thread, the engine, or (AUTO) the faster of both.

    Equal to its text, as completions and reports have it: `completion.path == TransferPath.WORKER`.
    """

    AUTO = "auto"
    INLINE = "inline"
    WORKER = "worker"

    def __str__(self) -> str:
        return self.value

    @property
    def code(self) -> int:
        """Its number in the C core and in messages, an index of `PATHS`."""
        return PATHS.index(self)


PATHS = tuple(TransferPath)


class Status(IntEnum):
    """Result of one transfer (`dg_wc.status`).

    OK says that each byte was moved into or out of the memory of the region. It does not say that
    the process that exported the region is alive: an import keeps memory that is mapped or on a GPU
    alive, so that transfers posted before PEER_LOST is noticed may end as OK.
    """

    OK = 0
    LOCAL_ERROR = 1
    REMOTE_ACCESS_ERROR = 2
    PEER_LOST = 3
    TIMED_OUT = 4
    FLUSHED = 5
    IO_FAILED = 6
    # Only for operations that a GPU's kernel posted.
    OUT_OF_BOUNDS = 7
    ACCESS_DENIED = 8
    BAD_RECORD = 9
    CLOSED = 10
    HOLE = 11
    UNSUPPORTED = 12
    QUEUE_FULL = 13


class GpuSpan:
    """Bytes in GPU memory, and how another process can import the allocation that contains them.

    Attributes:
        kind: "vmm" (CUDA virtual memory, exported as `fd`), "ipc" (cudaMalloc, exported as
            `handle`) or "none" (cannot be exported, for the reason in `why`).
        address: Address of the first byte, in the CUDA address space of this process.
        size: Bytes.
        gpu: Number of the GPU in this process.
        uuid: UUID of the GPU, 16 bytes.
        fd: POSIX file descriptor of the allocation, or -1.
        handle: CUDA IPC handle of the allocation, 64 bytes, or empty.
        block: Size of the allocation in bytes.
        offset: Offset of the first byte in the allocation.
        why: Why the memory cannot be exported, and what to do.
    """

    __slots__ = ("address", "block", "fd", "gpu", "handle", "kind", "offset", "size", "uuid", "why")

    def __init__(
        self,
        *,
        address: int,
        size: int,
        gpu: int,
        uuid: bytes,
        kind: str,
        fd: int = -1,
        handle: bytes = b"",
        block: int = 0,
        offset: int = 0,
        why: str = "",
    ) -> None:
        self.address, self.size, self.gpu, self.uuid = address, size, gpu, uuid
        self.kind, self.fd, self.handle = kind, fd, handle
        self.block, self.offset, self.why = block, offset, why


class Memory(Protocol):
    """Bytes and where they are: `memory` allocates them, `dma` registers them.

    Host memory also has `buffer`, a flat memoryview of its bytes. GPU memory has `gpu`, a GpuSpan,
    and no buffer. A kind that is registered differently from host memory also has
    `native_fields(start)`, which returns the fields of `dg_memory` (native/dgkit.h) that differ,
    for the bytes from `start` on. Emulated memory, for which there is no hardware, names what is
    emulated in `emulated`; reprs, cards and measurements add it to the provider's name.
    """

    @property
    def size(self) -> int:
        """Size in bytes."""

    @property
    def place(self) -> str:
        """Place of the bytes: `host`, `pinned`, `cuda:0`, `bar`."""

    @property
    def fd(self) -> int:
        """Sealed memfd that holds the bytes at `fd_offset`, or -1."""

    @property
    def fd_offset(self) -> int:
        """Offset in bytes."""

    @property
    def share_process(self) -> bool:
        """True if an importer may open this process to copy the bytes itself (ptrace access)."""


_MEMORY = ("size", "place", "fd", "fd_offset", "share_process")


def is_memory(obj: object) -> TypeGuard[Memory]:
    """Return whether `obj` implements Memory."""
    if not all(hasattr(obj, name) for name in _MEMORY):
        return False
    return isinstance(getattr(obj, "gpu", None), GpuSpan) or hasattr(obj, "buffer")


def parse_access(access: str | Access) -> Access:
    """Convert `"r"`, `"w"` or `"rw"` to flags; raise ValueError for anything else."""
    names = {"r": Access.READ, "w": Access.WRITE, "rw": Access.RW, "wr": Access.RW}
    if isinstance(access, Access):
        flags: Access | None = access
    else:
        flags = names.get(access) if isinstance(access, str) else None
    if not flags:
        raise ValueError(f"access is {access!r}; it must be 'r', 'w' or 'rw'")
    return flags


def parse_path(path: str | TransferPath) -> TransferPath:
    """Convert `"auto"`, `"inline"` or `"worker"` to a path; raise ValueError otherwise."""
    if path in PATHS:
        return TransferPath(path)
    raise ValueError(f"path is {path!r}; it must be 'auto', 'inline' or 'worker'")


def provider_label(provider: str, elsewhere: bool = False) -> str:
    """Return `hardware` for providers of a DPU, else `software DPU` and what copies.

    `cuda` is a software DPU: the copy engine is a GPU's, but a process uses it in place of a DPU.
    `softdoca` is also one: DOCA's interface, implemented by the CPU. `verbs` is `RDMA`: the
    device's `engine` says whether an adapter or Soft-RoCE, this machine's CPU, moves the bytes.
    The label of a device with memory in a testbed's PCI BAR says so, and each label on an emulated
    machine, or of a DPU that is one elsewhere.
    """
    if provider in _HARDWARE:
        return "hardware"
    label = "RDMA" if provider == "verbs" else "software DPU" + _SOFTWARE.get(provider, "")
    return label + ", emulated" * (elsewhere or machine_is_emulated())


@lru_cache(maxsize=1)
def machine_is_emulated() -> bool:
    """Return whether QEMU emulates this machine: x86's CPU flags, or a testbed's mark, show it."""
    try:
        return "QEMU TCG" in _text("/proc/cpuinfo") or " dgkit.name=dpu " in _text("/proc/cmdline")
    except OSError:
        return False


def _text(path: str) -> str:
    # Not pathlib, which costs more to import than this whole module.
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read()
