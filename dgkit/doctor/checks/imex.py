# SPDX-License-Identifier: Apache-2.0
"""IMEX: access to the GPU memory of other machines over multi-node NVLink."""

from __future__ import annotations

from .. import finding, references
from ..facts.distribution import initramfs
from ..facts.imex import CHANNELS, NAME, Imex, imex, is_multi_node
from ..facts.privileges import refused
from ..facts.virtual import container
from ..finding import Finding
from ..goals import Goal
from ..machine import Case, Machine
from ..prerequisites import applies, driver_loaded, gpu_present, readable
from ..registry import check

_SOURCES = (references.IMEX("IMEX Channels"), references.NCCL("src/mnnvl.cc"))
_NEEDED = "a channel, the service"
_NCCL = "NCCL ends with 'MNNVL is available but not working' unless NCCL_MNNVL_ENABLE=0."
_FILE = f"{CHANNELS}/channel0"
_MAJOR = f"$(awk '$2==\"{NAME}\"{{print $1}}' /proc/devices)"


def _channels_unread(case: Case) -> str:
    found = case.machine.know(imex)
    return found.why if found.channels is None else ""


@check(
    "imex",
    "Multi-node NVLink (IMEX)",
    asks="Where NVLink joins several machines: is there an IMEX channel, and does the service run?",
    goals=[Goal.P2P],
    sides=("host",),
    sources=_SOURCES,
    needed=_NEEDED,
    requires=[
        gpu_present,
        driver_loaded,
        applies(
            lambda case: is_multi_node(case.machine),
            "NVLink does not leave this machine",
            why="Only fabric handles (CU_MEM_HANDLE_TYPE_FABRIC) need an IMEX channel here.",
        ),
        readable(_channels_unread, "not read", remedy=[f"ls -l {CHANNELS}"]),
    ],
)
def _imex(case: Case) -> Finding:
    found = case.machine.know(imex)
    inside = bool(case.machine.know(container).engine)
    if not found.channels:
        why = (
            "Memory for other machines cannot be allocated: cuMemCreate ends with 800, not "
            "permitted."
        )
        return finding.warn(
            "no IMEX channel",
            why=f"{why} {_NCCL}",
            remedy=_in_container(case.machine) if inside else _on_host(case.machine, found),
        )
    if any(name.startswith(CHANNELS) for name in case.machine.know(refused)):
        return finding.warn(
            "the channel is not for this process",
            why=f"Memory for other machines cannot be allocated (800, not permitted). {_NCCL}",
            remedy=[f"ls -l {CHANNELS}"],
        )
    if found.runs is False and not inside:
        return finding.warn(
            "the service does not run",
            why="Other machines cannot import memory of this one, nor this one theirs.",
            remedy=[
                "# List the addresses of all machines in /etc/nvidia-imex/nodes_config.cfg, then:",
                "sudo systemctl enable --now nvidia-imex",
                "nvidia-imex-ctl -N",
            ],
        )
    why = "" if found.runs else "Whether the service runs is not visible here: nvidia-imex-ctl -N."
    return finding.ok(", ".join(found.channels[:3]), why=why)


def _in_container(machine: Machine) -> list[str]:
    if machine.know(container).engine == "Kubernetes":
        return ["# Give the pod a channel: a ComputeDomain of NVIDIA's DRA driver"]
    return [f"# Start the container with --device={_FILE}"]


def _on_host(machine: Machine, found: Imex) -> list[str]:
    """Return the commands that create channel 0, now and whenever the driver starts."""
    if found.registered is False:
        return ["# This driver has no IMEX channels: use the open kernel modules, 550 or later"]
    option = "options nvidia NVreg_CreateImexChannel0=1"
    return [
        f"echo '{option}' | sudo tee /etc/modprobe.d/nvidia-imex.conf",
        initramfs(machine),
        "# That takes a restart. Until then; any user may then use the channel:",
        f"sudo mkdir -p {CHANNELS}",
        f"sudo mknod -m 666 {_FILE} c {_MAJOR} 0",
    ]
