# SPDX-License-Identifier: Apache-2.0
"""Providers: which can be opened here, and the capabilities and counters of an open one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ._ffi import ffi, last_error, lib


@dataclass(frozen=True, slots=True)
class Caps:
    """Capabilities of an open provider. Sizes are bytes.

    Attributes:
        provider: Name of the provider.
        max_size: Largest operation.
        inline_max: Largest copy that the path `auto` does inline.
        spin_ns: How long the provider's engine spins before it sleeps; 0: it sleeps at once.
        ordered: Writes of one queue become visible in posting order. If False, writes become
            visible in order only behind a fence, and with `cuda` also those of different posts.
        max_queues: Maximum number of queues open at a time.
        engine: Description of what copies: "GPU 0, NVIDIA H200", "DOCA 3.0.0058, 0000:03:00.0
            mlx5_0"; "" for this machine's CPU.
        atomics: 0: no fetch-add and compare-swap; 1: they are atomic with respect to atomics of the
            same adapter; 2: also with respect to CPUs.
    """

    provider: str
    max_size: int
    inline_max: int
    spin_ns: int
    ordered: bool
    max_queues: int
    engine: str
    atomics: int


@dataclass(frozen=True, slots=True)
class DeviceStats:
    """Counters of a device since it was opened. Both stay 0 for a provider without a thread.

    Attributes:
        engine_sleeps: How often the engine's thread slept. The next operation then waits until it
            is awake.
        engine_moves: How often the engine was found on the CPU of the caller that waited for it,
            and was moved to another CPU.
    """

    engine_sleeps: int
    engine_moves: int


@dataclass(frozen=True, slots=True)
class ProviderInfo:
    """Built-in provider: whether it can be opened, and its description or the reason why not."""

    name: str
    usable: bool
    why: str


_DESCRIPTIONS = {
    "soft": "the software DPU: this machine's CPU copies",
    "cuda": "a software DPU whose copies the GPU's copy engine does, for GPU memory",
    "verbs": "one-sided RDMA by libibverbs: an adapter, or Soft-RoCE",
    "doca": "the DMA engine of a BlueField, through DOCA",
    "softdoca": "a software DPU, softdoca: DOCA's interface, and this machine's CPU behind it",
    "fault": "wraps another provider and injects errors by rule",
}


def providers(*, deep: bool = True) -> list[ProviderInfo]:
    """Return all built-in providers in order of preference: that of provider_table.c.

    Args:
        deep: Also start the GPU's driver, which may take a second, and look for DOCA's devices in
            a child process. If False, only check that a provider's library is installed.
    """
    found = []
    indices = itertools.count()
    while (name := lib.dg_provider_name(next(indices))) != ffi.NULL:
        text = ffi.string(name).decode()
        usable = lib.dg_provider_probe(name, deep) == 0
        why = _DESCRIPTIONS.get(text, "") if usable else last_error()
        found.append(ProviderInfo(text, usable, why))
    return found
