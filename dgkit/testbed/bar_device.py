# SPDX-License-Identifier: Apache-2.0
"""Part of the host guest's RAM that is also a PCI BAR of the DPU guest (ivshmem).

One memfd of the supervisor is both the last part of the host guest's RAM, which its kernel does not
use (`memmap=` on its command line), and BAR 2 of a device of the DPU guest. The DPU guest can
access no other part of the host guest's RAM.
"""

from __future__ import annotations

import os

from ..memory.bar import lay_out
from .qemu import vcpus

SIZE = 64 << 20
MACHINES = ("x86_64",)  # host guests with a BAR: other kernels lack `memmap=SIZE$ADDRESS`
# q35 places all RAM below 4 GiB if its size is less than 2.75 GiB; otherwise it places 2 GiB below
# and the rest above 4 GiB (QEMU, hw/i386/pc_q35.c, pc_q35_init).
_LOW, _LOW_IF_MORE, _HIGH = 0xB0000000, 0x80000000, 1 << 32


def make() -> int:
    """Return a memfd with an empty BAR and a new id; the caller closes it."""
    fd = os.memfd_create("dgkit-bar", os.MFD_CLOEXEC)
    os.ftruncate(fd, SIZE)
    lay_out(fd, SIZE)
    return fd


def address(memory: int) -> int:
    """Return the physical address of the BAR in a host guest.

    Args:
        memory: Memory of the guest without the BAR, in bytes.
    """
    return memory if memory + SIZE < _LOW else _HIGH + memory - _LOW_IF_MORE


def words(memory: int) -> str:
    """Return arguments by which the host guest's kernel leaves the BAR's memory unused.

    Programs find the BAR by the argument dgkit.bar=SIZE@ADDRESS in /proc/cmdline.
    """
    size, at = f"{SIZE:#x}", f"{address(memory):#x}"
    return f" memmap={size}${at} dgkit.bar={size}@{at}"


def ram(memory: int, fd: int) -> list[str]:
    """Return QEMU's arguments for the host guest's RAM, whose last part is the BAR."""
    return [
        "-m", f"{(memory + SIZE) >> 20}M",
        "-object", f"memory-backend-ram,id=ram,size={memory}", *_backend(fd),
        "-numa", f"node,nodeid=0,cpus=0-{vcpus() - 1},memdev=ram",
        "-numa", "node,nodeid=1,memdev=bar",
    ]  # fmt: skip


def device(fd: int) -> list[str]:
    """Return QEMU's arguments for the DPU guest's PCI device with the BAR (its BAR 2)."""
    return [*_backend(fd), "-device", "ivshmem-plain,memdev=bar"]


def _backend(fd: int) -> list[str]:
    options = f"id=bar,size={SIZE},mem-path=/proc/self/fd/{fd},share=on"
    return ["-object", f"memory-backend-file,{options}"]
