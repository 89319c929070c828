# SPDX-License-Identifier: Apache-2.0
"""Remedies work: a machine, a command that is printed for it, and the machine judged after it."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from doctor.published import FOLDER, Published, load

from dgkit.doctor import Finding, Verdict
from dgkit.doctor.remedies import OFF_AND_ON
from dgkit.doctor.runner import diagnose

_ALARMS = (Verdict.WARN, Verdict.FAIL)
# Machine, check, a part of the command or instruction that is printed, and its effect: for sections
# of the machine's description, what is replaced by what; "" is added to, None removes the section.
EFFECTS: list[tuple[str, str, str, dict[str, tuple[str, str] | None]]] = [
    ("nccl-988-nopeermem", "peermem", "modprobe nvidia-peermem", {"driver": ("", " peermem")}),
    (
        *("nccl-tests-264", "cuda-driver", "enable --now nvidia-fabricmanager"),
        {"cuda": None, "driver": ("", " fabric=Completed/Success")},
    ),
    ("nccl-2079", "acs", "setpci", {"tree": (r" acs\S*", "")}),
    ("nccl-214-plx", "acs", "setpci", {"tree": (r" acs\S*", "")}),
    ("pytorch-24081-plx", "acs", "setpci", {"tree": (r" acs\S*", "")}),
    ("threefs-39-disabled", "rdma-devices", "ip link set", {"tree": (" down", "")}),
    ("awsome-647-memlock", "memlock", "memlock", {"system": (r"memlock=\d+", "memlock=unlimited")}),
    (
        *("aws-ofi-803-closed", "driver-flavour", "nvidia-open"),
        {"driver": ("flavour=closed", "flavour=open")},
    ),
    ("azure-111536-secure", "driver-loaded", "modprobe nvidia", {"driver": ("none", "cuda=12.4")}),
]


def _after(made: Published, effect: Mapping[str, tuple[str, str] | None]) -> Published:
    sections = dict(made.sections)
    for name, change in effect.items():
        before = sections.pop(name).rstrip()
        if change is not None:
            old, new = change
            sections[name] = f"{re.sub(old, new, before) if old else before + new}\n"
            assert sections[name].strip() != before
    return Published(made.name, made.head, sections)


def _judged(made: Published, check: str) -> list[Finding]:
    found = diagnose([made.machine()], goal=made.goal, size=made.size)
    return [one for one in found.findings if one.check == check and one.verdict in _ALARMS]


@pytest.mark.parametrize(
    ("name", "check", "command", "effect"), EFFECTS, ids=[f"{one[0]}-{one[1]}" for one in EFFECTS]
)
def test_after_its_remedy_a_check_has_no_alarm(
    name: str, check: str, command: str, effect: Mapping[str, tuple[str, str] | None]
) -> None:
    made = load(next(FOLDER.glob(f"*/{name}.txt")))
    before = _judged(made, check)
    assert any(command in line for one in before for line in one.remedy)
    assert _judged(_after(made, effect), check) == []


def test_a_mode_of_a_card_asks_for_the_power_cycle_and_then_for_nothing() -> None:
    made = load(FOLDER / "bluefield" / "infra-2115-nic-mode.txt")
    (before,) = _judged(made, "bluefield-mode")
    assert any("mlxconfig" in line for line in before.remedy)
    card, set_ = "0000:9f:00.0", {"host": ("rshim=NIC mode", "rshim=DPU mode")}
    pending = Published(made.name, made.head, {**made.sections, f"later {card}": "dpu-mode"})
    (waiting,) = _judged(pending, "bluefield-mode")
    assert not any("mlxconfig" in line for line in waiting.remedy)
    assert any(OFF_AND_ON in line for line in waiting.remedy)
    cycled = _after(made, {f"firmware {card}": ("nic-mode", "dpu-mode"), **set_})
    assert _judged(cycled, "bluefield-mode") == []


@pytest.mark.parametrize("newer", [True, False])
def test_a_restart_is_advised_where_it_loads_another_module(newer: bool) -> None:
    made = load(FOLDER / "drivers" / "nvidia-mismatch-550.txt")
    loaded = made.sections["driver"].partition("version=")[2].split()[0]
    on_disk = "999.1.1" if newer else loaded
    sections = {**made.sections, "run modinfo -F version nvidia": f"{on_disk}\n"}
    (found,) = _judged(Published(made.name, made.head, sections), "driver-loaded")
    assert any(line.startswith("# Restart the machine") for line in found.remedy) is newer
