"""What this machine offers: providers, CPUs, the clock, the folder for sockets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ._ffi import check, ffi, last_error, lib

__all__ = ["ProviderInfo", "cpus", "now_ns", "providers", "runtime_dir"]


@dataclass(frozen=True, slots=True)
class ProviderInfo:
    """One provider: whether it can be opened here, and exactly why not."""

    name: str
    usable: bool
    why: str


_ABOUT = {
    "soft": "the software DPU: this machine's CPU copies",
    "cuda": "a software DPU whose copies the GPU's copy engine does, for GPU memory",
    "doca": "the DMA engine of a BlueField, through DOCA",
    "softdoca": "a software DPU, softdoca: DOCA's interface, and this machine's CPU behind it",
    "fault": "wraps another provider and injects errors by rule",
}


def providers(*, deep: bool = True) -> list[ProviderInfo]:
    """All providers that are built in, in the order in which they are preferred.

    Unless `deep` it is only looked whether a provider's library is there: starting the driver of a
    GPU may take a second, and DOCA's devices are looked for by a process of their own.
    """
    found = []
    names = iter(range(1 << 10))
    while (name := lib.dg_provider_name(next(names))) != ffi.NULL:
        text = ffi.string(name).decode()
        usable = lib.dg_provider_probe(name, deep) == 0
        found.append(ProviderInfo(text, usable, _ABOUT.get(text, "") if usable else last_error()))
    return found


def cpus() -> int:
    """CPUs that this process may use at once: affinity (sched_getaffinity(2)) and cgroup quota."""
    return int(lib.dg_cpus())


def now_ns() -> int:
    """CLOCK_MONOTONIC in ns, the clock of every stamp."""
    return int(lib.dg_now_ns())


def runtime_dir() -> Path:
    """The folder for sockets, made and checked: ours alone, mode 0700. PeerRefused if it is not."""
    text = ffi.new("char[]", 256)
    check(lib.dg_runtime_dir(text, 256))
    return Path(ffi.string(text).decode())
