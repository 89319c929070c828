# SPDX-License-Identifier: Apache-2.0
"""GDRCopy: optional, for one type of GPUNetIO's memory."""

from __future__ import annotations

import pytest
from support.doctor.gpus import MODULES, h200, smi
from support.doctor.machines import judge, machine

from dgkit.doctor import Goal, Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.finding import Finding
from dgkit.doctor.machine import Machine

LIST, PROBE = "text /proc/modules", "probe libraries"
MODULE = {LIST: MODULES + "gdrdrv 245760 0 - Live 0x0 (OE)\n"}
THERE = {PROBE: {"libgdrapi.so.2": {"path": "/usr/lib/libgdrapi.so.2.5", "why": ""}}}
GONE = {PROBE: {"libgdrapi.so.2": {"path": "", "why": "cannot open shared object file"}}}


def one(on: Machine) -> Finding:
    (found,) = judge("gdrcopy", on, goal=Goal.GPUNETIO)
    return found


@pytest.mark.parametrize(
    ("readings", "verdict", "found"),
    [
        ({**MODULE, **THERE}, Verdict.OK, "module and library"),
        ({"names /dev": ("gdrdrv", "null"), **THERE}, Verdict.OK, "module and library"),
        (THERE, Verdict.WARN, "no gdrdrv"),
        ({**MODULE, **GONE}, Verdict.WARN, "no libgdrapi"),
        (GONE, Verdict.NOT_APPLICABLE, "not installed, and optional"),
        ({**MODULE, PROBE: Reading(fault="late", why="no")}, Verdict.UNKNOWN, "?"),
        ({**THERE, LIST: Reading(fault="denied", why="no")}, Verdict.UNKNOWN, "?"),
    ],
)
def test_module_and_library_are_both_looked_for(
    readings: dict[str, object], verdict: Verdict, found: str
) -> None:
    said = one(h200(readings))
    assert (said.verdict, said.found) == (verdict, found)


def test_the_library_may_lie_where_doca_is_told_to_look() -> None:
    folder = "/opt/mellanox/gdrcopy/src"
    told = {"ask environ": {"GDRCOPY_PATH_L": folder}, f"names {folder}": ("libgdrapi.so.2",)}
    assert one(h200({**MODULE, **GONE, **told})).verdict is Verdict.OK


def test_a_library_alone_needs_the_module_loaded_and_nothing_built() -> None:
    assert one(h200(THERE)).remedy[0] == "sudo modprobe gdrdrv"


def test_what_is_advised_outlasts_a_restart() -> None:
    for release, command in (("", "sudo dpkg -i gdrdrv-dkms"), ('ID="rhel"\n', "sudo rpm -Uvh")):
        lines = "\n".join(one(h200({**GONE, "text /etc/os-release": release})).remedy)
        assert command in lines
        assert "insmod" not in lines
    assert "modules-load.d" in "\n".join(one(h200(THERE)).remedy)


def test_other_goals_and_machines_without_gpudirect_do_not_ask() -> None:
    (found,) = judge("gdrcopy", h200({**MODULE, **THERE}), goal=Goal.ARM_DMA)
    assert found.verdict is Verdict.NOT_APPLICABLE
    spark = h200({**GONE, "run nvidia-smi -q": smi("NVIDIA GB10")})
    for on in (spark, machine({})):
        assert one(on).verdict is Verdict.NOT_APPLICABLE
