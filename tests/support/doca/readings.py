# SPDX-License-Identifier: Apache-2.0
"""Readings of an installed DOCA, and of the libraries that the loader finds."""

from __future__ import annotations

from support.doctor.machines import judge, machine

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal

ROOT = "/opt/mellanox/doca"
LIB = f"{ROOT}/lib/x86_64-linux-gnu"
PARTS = ("common", "dma", "eth", "flow", "rdma", "verbs", "gpunetio")
LATE = Reading(fault="late", why="no answer")


def installed(running: str = "3.2.1025", parts: tuple[str, ...] = PARTS) -> dict[str, object]:
    """Return the readings of a DOCA installation on a host."""
    return {
        f"text {ROOT}/applications/VERSION": f"{running}\n",
        f"names {LIB}": [f"libdoca_{part}.so.3.2.1025" for part in parts]
        + ["libdoca_gpunetio_device.a", "pkgconfig"],
        f"names {LIB}/pkgconfig": [f"doca-{part}.pc" for part in parts],
    }


def loadable(**files: str) -> dict[str, object]:
    """Return the libraries that the loader finds, by name."""
    names = ("libdoca_common", "libdoca_dma", "libdoca_gpunetio", "libibverbs")
    said = {
        f"{name}.so": {"path": files.get(name, ""), "why": "" if name in files else f"no {name}"}
        for name in names
    }
    return {"probe libraries": said}


def one(check: str, *readings: dict[str, object], goal: Goal = Goal.ARM_DMA) -> Finding:
    made = {key: value for part in readings for key, value in part.items()}
    (found,) = judge(check, machine(made), goal=goal)
    return found
