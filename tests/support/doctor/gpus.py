# SPDX-License-Identifier: Apache-2.0
"""Machines with GPUs, from which several tests of the GPU family start."""

from __future__ import annotations

from support.doctor.machines import machine

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.machine import Machine

# As written by the kernel modules: open 580 (seen on an H200), closed 535, and on Arm.
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x@)  \n"
    "GCC version:  gcc version 15.3.0 (GCC) \n"
)
CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Sat Feb 17 22:55:48 UTC 2024\n"
    "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
)
MODULES = (
    "nvidia_uvm 1830912 - - Live 0x0000000000000000 (O)\n"
    "nvidia 14299136 5 nvidia_uvm, Live 0x0 (OE)\n"
)
ADDRESS = "0000:ca:00.0"
NO_MODULE = Reading(code=1, said="modinfo: ERROR: Module nvidia-peermem not found.\n")


def smi(
    name: str = "NVIDIA H200",
    *,
    driver: str = "580.159.04",
    cuda: str = "13.0",
    addresses: tuple[str, ...] = ("00000000:CA:00.0",),
    bar1: tuple[str, str] = ("262144 MiB", "262143 MiB"),
    memory: str = "143771 MiB",
    persistence: str = "Enabled",
    architecture: str = "Hopper",
    addressing: str = "None",
    virtualization: str = "None",
) -> str:
    """Return `nvidia-smi -q` output with the lines the doctor reads; `bar1`: total and free."""
    head = (
        "\n==============NVSMI LOG==============\n\n"
        f"Timestamp                                 : Sat Nov 21 23:22:46 2026\n"
        f"Driver Version                            : {driver}\n"
        f"CUDA Version                              : {cuda}\n\n"
        f"Attached GPUs                             : {len(addresses)}\n"
    )
    return head + "".join(
        f"GPU {address}\n"
        f"    Product Name                          : {name}\n"
        f"    Product Architecture                  : {architecture}\n"
        f"    Persistence Mode                      : {persistence}\n"
        f"    Addressing Mode                       : {addressing}\n"
        "    GPU Virtualization Mode\n"
        f"        Virtualization Mode               : {virtualization}\n"
        "    MIG Mode\n"
        "        Current                           : Disabled\n"
        "        Pending                           : Disabled\n"
        f"    GPU UUID                              : GPU-00000000-0000-0000-0000-{at:012d}\n"
        "    FB Memory Usage\n"
        f"        Total                             : {memory}\n"
        "    BAR1 Memory Usage\n"
        f"        Total                             : {bar1[0]}\n"
        "        Used                              : 1 MiB\n"
        f"        Free                              : {bar1[1]}\n"
        for at, address in enumerate(addresses)
    )


def with_gpu(
    readings: dict[str, object] | None = None, *, driver: str = "nvidia", pci_id: str = "10DE:2335"
) -> Machine:
    """Return a machine with one GPU at ADDRESS on the PCI bus, and these readings."""
    folder = f"/sys/bus/pci/devices/{ADDRESS}"
    bus: dict[str, object] = {
        "names /sys/bus/pci/devices": (ADDRESS,),
        f"link {folder}": f"/sys/devices/pci0000:b0/0000:b0:02.0/{ADDRESS}",
        f"text {folder}/uevent": f"DRIVER={driver}\nPCI_CLASS=30200\nPCI_ID={pci_id}\n",
        f"text {folder}/numa_node": "0\n",
    }
    return machine({**bus, **(readings or {})})


def h200(readings: dict[str, object] | None = None, *, without: tuple[str, ...] = ()) -> Machine:
    """Return a machine without problems, with these readings added and some removed."""
    well: dict[str, object] = {
        "run nvidia-smi -q": smi(),
        "text /proc/driver/nvidia/version": OPEN,
        "text /proc/modules": MODULES,
        **(readings or {}),
    }
    return with_gpu({key: value for key, value in well.items() if key not in without})


_NIC = "0000:cb:00.0"
_FOLDER = f"/sys/bus/pci/devices/{_NIC}"
WITH_NIC: dict[str, object] = {
    "names /sys/bus/pci/devices": (ADDRESS, _NIC),
    f"link {_FOLDER}": f"/sys/devices/pci0000:b0/0000:b0:03.0/{_NIC}",
    f"text {_FOLDER}/uevent": "DRIVER=mlx5_core\nPCI_CLASS=20000\nPCI_ID=15B3:1021\n",
}


def h200_and_nic(readings: dict[str, object] | None = None, **more: tuple[str, ...]) -> Machine:
    """Return the same machine with a ConnectX-7 that may use GPU memory."""
    return h200({**WITH_NIC, **(readings or {})}, **more)
