# SPDX-License-Identifier: Apache-2.0
"""Command line of QEMU, and whether KVM can run a guest."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .requirements import find

CONSOLES = {"x86_64": "ttyS0", "aarch64": "ttyAMA0"}
_MACHINES = {
    "x86_64": ["qemu-system-x86_64", "-machine", "q35"],
    "aarch64": ["qemu-system-aarch64", "-machine", "virt"],
}
# Emulated CPUs. x86-64 without the hints that `rep movsb` is fast: emulation copies byte by byte.
_CPUS = {"x86_64": "max,erms=off,fsrm=off", "aarch64": "cortex-a72"}  # BlueField-2's
_BOOT_S = 15.0  # with KVM, a kernel without files panics within two seconds
# KVM without VT-x and AMD-V: it interprets a kernel that was not built for it (CONFIG_PVM_GUEST),
# at 3 us an instruction.
_INTERPRETER = Path("/sys/module/kvm_pvm")


def qemu(
    machine: str,
    kernel: Path,
    words: str,
    *,
    kvm: bool,
    memory: int,
    ram: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs a guest with a kernel, a console on stdout and no devices.

    The guest is killed when the thread that starts it ends (PR_SET_PDEATHSIG).

    Args:
        machine: Architecture, as platform.machine() names it.
        words: The kernel's command line.
        kvm: Run it with KVM instead of emulation.
        memory: Memory in bytes.
        ram: Arguments for the memory, instead of -m.
    """
    return [
        find("setpriv") or "setpriv", "--pdeathsig", "KILL", "--",
        *_MACHINES[machine], "-cpu", "max" if kvm else _CPUS[machine],
        "-accel", "kvm" if kvm else "tcg,thread=multi",
        *(ram or ["-m", f"{memory >> 20}M"]), "-nodefaults", "-display", "none", "-serial", "stdio",
        "-no-reboot", "-kernel", str(kernel), "-append", words,
    ]  # fmt: skip


def vcpus() -> int:
    """Return how many vCPUs a guest has: one where the two guests share fewer than four cores.

    A second one has nowhere to run there, and costs half of what is emulated: waking the other and
    waiting for it, as at each change of a page table.
    """
    return 2 if len(os.sched_getaffinity(0)) >= 4 else 1


def kvm_boots(machine: str, kernel: Path) -> bool:
    """Return whether KVM boots this kernel until it panics because there is no root file system.

    Even if /dev/kvm exists, it may fail or be unable to run a guest (nested virtualization).
    """
    usable = os.access("/dev/kvm", os.R_OK | os.W_OK) and not _INTERPRETER.exists()
    if machine != platform.machine() or not usable:
        return False
    words = f"console={CONSOLES[machine]} panic=-1"
    command = qemu(machine, kernel, words, kvm=True, memory=256 << 20)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_BOOT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and b"Kernel panic" in done.stdout
