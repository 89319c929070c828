# SPDX-License-Identifier: Apache-2.0
"""IMEX: where NVLink joins several machines, a channel and the service; elsewhere no alarm."""

from __future__ import annotations

import pytest
from support.doctor.gpus import MODULES, OPEN, smi, with_gpu
from support.doctor.machines import judge

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts.imex import CHANNELS
from dgkit.doctor.finding import Finding, Verdict
from dgkit.doctor.goals import Goal

ONE, MANY = "00000000-0000-0000-0000-000000000000", "6f4a4bf1-07a0-79a1-939a-0a887f4bffa6"
REGISTERED = {"text /proc/devices": "Character devices:\n234 nvidia-caps-imex-channels\n"}
DOCKER = {"text /.dockerenv": "", "names /dev": ["nvidia0", "nvidiactl"]}


def fabric(cluster: str, readings: dict[str, object] | None = None) -> Finding:
    state = f"    Fabric\n        State : Completed\n        ClusterUUID : {cluster}\n"
    well = {"run nvidia-smi -q": smi() + state, "text /proc/driver/nvidia/version": OPEN}
    known = {**well, "text /proc/modules": MODULES, **REGISTERED, **(readings or {})}
    (found,) = judge("imex", with_gpu(known), goal=Goal.P2P)
    return found


def test_a_machine_of_its_own_needs_no_channel() -> None:
    assert fabric(ONE).verdict is Verdict.NOT_APPLICABLE


def test_without_a_channel_memory_for_other_machines_is_refused() -> None:
    found = fabric(MANY)
    assert (found.verdict, found.found) == (Verdict.WARN, "no IMEX channel")
    assert any("NVreg_CreateImexChannel0=1" in line for line in found.remedy)
    assert any(line.startswith("sudo mknod") for line in found.remedy)


def test_an_old_driver_gets_no_device_file() -> None:
    found = fabric(MANY, {"text /proc/devices": "Character devices:\n195 nvidia\n"})
    assert not any("mknod" in line for line in found.remedy)
    assert "550" in found.remedy[0]


def test_a_container_is_given_the_channel_and_a_pod_a_compute_domain() -> None:
    assert fabric(MANY, DOCKER).remedy == (
        f"# Start the container with --device={CHANNELS}/channel0",
    )
    pod = fabric(MANY, {**DOCKER, "text /proc/1/cgroup": "0::/kubepods.slice\n"})
    assert "ComputeDomain" in pod.remedy[0]


CHANNEL: dict[str, object] = {f"names {CHANNELS}": ["channel0"]}


@pytest.mark.parametrize(
    ("readings", "verdict"),
    [
        ({"run systemctl is-active nvidia-imex": "active"}, Verdict.OK),
        ({"run systemctl is-active nvidia-imex": Reading(text="inactive", code=3)}, Verdict.WARN),
        # a pod of Kubernetes runs it: systemd knows nothing of it
        (
            {
                "run systemctl is-active nvidia-imex": Reading(text="inactive", code=4),
                "run pgrep -x nvidia-imex": "4711\n",
            },
            Verdict.OK,
        ),
        ({}, Verdict.OK),
        ({**DOCKER, "run pgrep -x nvidia-imex": Reading(code=1)}, Verdict.OK),
    ],
)
def test_the_service_has_to_run_where_that_can_be_seen(
    readings: dict[str, object], verdict: Verdict
) -> None:
    assert fabric(MANY, {**CHANNEL, **readings}).verdict is verdict


def test_a_channel_of_others_is_no_channel() -> None:
    closed = {"ask device-files": {f"{CHANNELS}/channel0": "EACCES"}}
    found = fabric(MANY, {**CHANNEL, **closed})
    assert (found.verdict, found.found) == (Verdict.WARN, "the channel is not for this process")


def test_channels_that_cannot_be_listed_are_unknown() -> None:
    found = fabric(MANY, {f"names {CHANNELS}": Reading(fault="denied", why="only root may")})
    assert found.verdict is Verdict.UNKNOWN
