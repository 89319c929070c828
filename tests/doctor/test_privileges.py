# SPDX-License-Identifier: Apache-2.0
"""Capabilities: root of a container, of a rootless one, and of a machine that was not read."""

from __future__ import annotations

import pytest
from support.doctor.machines import machine

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts.privileges import IPC_LOCK, SYS_ADMIN, has_admin, holds, read_rules, refused

ALL, DOCKER = "CapEff:\t000001ffffffffff\n", "CapEff:\t00000000a80425fb\n"
UNREAD = Reading(fault="unrecorded", why="not recorded")


@pytest.mark.parametrize(
    ("readings", "admin"),
    [
        ({"text /proc/self/status": ALL, "ask euid": 0}, True),
        ({"text /proc/self/status": DOCKER, "ask euid": 0}, False),
        ({"ask euid": 1000}, False),
        ({"ask euid": 0}, True),
        ({"ask euid": 0, "text /proc/self/status": UNREAD}, None),
        ({"ask euid": 0, "text /.dockerenv": ""}, None),
        # root of a user namespace has all capabilities there, and none outside
        ({"text /proc/self/status": ALL, "text /proc/self/uid_map": "0 1000 1\n"}, False),
        ({"text /proc/self/status": ALL, "text /proc/self/uid_map": "0 0 4294967295"}, True),
    ],
)
def test_an_administrator_is_one_for_the_kernel(
    readings: dict[str, object], admin: bool | None
) -> None:
    assert has_admin(machine(readings)) is admin


def test_each_capability_is_a_bit_of_its_own() -> None:
    made = machine({"text /proc/self/status": f"CapEff:\t{IPC_LOCK:016x}\n", "ask euid": 0})
    assert (holds(made, IPC_LOCK), holds(made, SYS_ADMIN)) == (True, False)


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ("c 195:255 rw\nc 195:0 rw\n", True),
        ("a *:* rwm\n", True),
        ("c *:* rwm", True),
        ("c 195:* m\nc 1:3 rwm\n", False),
        ("c *:* m\nb *:* m\n", False),
        ("", False),
        ("nonsense", False),
    ],
)
def test_rules_of_a_cgroup_allow_the_driver_or_not(rules: str, allowed: bool) -> None:
    assert read_rules(rules, 195) is allowed


def test_files_that_may_not_be_opened_are_named_with_the_error() -> None:
    tried = {"/dev/nvidiactl": "EPERM", "/dev/nvidia-uvm": "", "/dev/gdrdrv": "ENXIO"}
    assert refused(machine({"ask device-files": tried})) == {"/dev/nvidiactl": "EPERM"}
    assert refused(machine({})) == {}
