# SPDX-License-Identifier: Apache-2.0
"""Causes before consequences, remedies that fit the machine, and what CUDA can do with a GPU."""

from __future__ import annotations

import pytest
from support.doctor.gpus import ADDRESS, CLOSED, MODULES, h200, smi
from support.doctor.machines import judge, machine
from support.doctor.pci import gpu, nic, sysfs

from dgkit.doctor import Goal, Verdict, finding
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.data_paths import DataPath
from dgkit.doctor.finding import Finding, attribute
from dgkit.doctor.finding_order import lead, order
from dgkit.doctor.remedies import fit

CUDA = {
    "init": {"code": 0, "name": "CUDA_SUCCESS"}, "driver": 13000, "why": "",
    "devices": [{"address": ADDRESS, "attributes": {}}],
}  # fmt: skip
DOCKER = {"text /.dockerenv": "", "text /proc/1/cgroup": "0::/docker-1\n"}


def context(code: int | None, name: str = "", mode: str = "Default") -> Finding:
    log = f"{smi()}    Compute Mode                          : {mode}\n"
    entry = {"address": ADDRESS, "code": code, "name": name, "why": "it timed out"}
    known = {"probe cuda": CUDA, "probe context": {"why": "", "devices": [entry]}}
    (found,) = judge("cuda-context", h200({**known, "run nvidia-smi -q": log}))
    return found


@pytest.mark.parametrize(
    ("code", "mode", "verdict", "word"),
    [
        (0, "Default", Verdict.OK, "created"),
        (2, "Default", Verdict.WARN, "full"),
        (46, "Exclusive_Process", Verdict.WARN, "in use"),
        (46, "Default", Verdict.FAIL, "CUDA_ERROR"),
        (None, "Default", Verdict.UNKNOWN, "not created"),
    ],
)
def test_a_context_is_made_refused_or_not_known(
    code: int | None, mode: str, verdict: Verdict, word: str
) -> None:
    found = context(code, "CUDA_ERROR_X", mode)
    assert found.verdict is verdict
    assert word in found.found


def test_an_older_snapshot_was_not_asked_for_a_context() -> None:
    older = Reading(fault="unrecorded", why="dgkit 0.0 did not record context")
    (found,) = judge("cuda-context", h200({"probe cuda": CUDA, "probe context": older}))
    assert (found.verdict, found.found) == (Verdict.UNKNOWN, "not probed")
    (found,) = judge("cuda-context", h200({"probe cuda": CUDA}))
    assert found.verdict is Verdict.NOT_APPLICABLE
    late = Reading(fault="late", why="it took longer than 5 s")
    (found,) = judge("cuda-context", h200({"probe cuda": CUDA, "probe context": late}))
    assert found.verdict is Verdict.UNKNOWN


def test_a_gpu_that_a_variable_hides_from_cuda_is_said_to_be_hidden_by_it() -> None:
    hidden = {
        "probe cuda": CUDA,
        "probe context": {"why": "", "devices": []},
        "ask environ": {"CUDA_VISIBLE_DEVICES": "1"},
    }
    (found,) = judge("cuda-context", h200(hidden))
    assert found.verdict is Verdict.UNKNOWN
    assert found.why == "CUDA does not list this GPU: CUDA_VISIBLE_DEVICES=1 hides it."


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(None, Verdict.OK), (65536, Verdict.FAIL), (8 << 20, Verdict.OK)],
)
def test_queues_need_locked_memory(limit: int | None, verdict: Verdict) -> None:
    found = sysfs([nic("pci0000:16/0000:17:00.0")])
    about = {"ask memlock": {"soft": limit, "hard": limit}, "ask euid": 1000}
    (said,) = judge("memlock-queues", machine({**found, **about}), goal=Goal.RDMA)
    assert said.verdict is verdict


@pytest.mark.parametrize(("limit", "verdict"), [(8 << 20, Verdict.OK), (65536, Verdict.UNKNOWN)])
def test_a_low_limit_of_root_counts_only_if_its_capabilities_are_known(
    limit: int, verdict: Verdict
) -> None:
    about = {"ask memlock": {"soft": limit, "hard": limit}, "ask euid": 0}
    about["text /proc/self/status"] = Reading(fault="denied", why="not read")
    found = {**sysfs([nic("pci0000:16/0000:17:00.0")]), **about}
    (said,) = judge("memlock-queues", machine(found), goal=Goal.RDMA)
    assert said.verdict is verdict


def test_closed_modules_suffice_only_if_peermem_is_known_to_be_loaded() -> None:
    closed = {"text /proc/driver/nvidia/version": CLOSED}
    loaded = {**closed, "text /proc/modules": f"{MODULES}nvidia_peermem 16384 0 - Live 0x0\n"}
    (said,) = judge("driver-flavour", h200(loaded), goal=Goal.RDMA)
    assert said.verdict is Verdict.OK
    unread = {**closed, "text /proc/modules": Reading(fault="denied", why="not read")}
    (said,) = judge("driver-flavour", h200(unread), goal=Goal.RDMA)
    assert said.verdict is Verdict.UNKNOWN


def test_only_in_a_container_do_its_rules_explain_an_unknown_error_of_nvml() -> None:
    unknown = Reading(text="Failed to initialize NVML: Unknown Error\n", code=255)
    (inside,) = judge("driver-loaded", h200({"run nvidia-smi -q": unknown, **DOCKER}))
    assert "container" in inside.why
    (outside,) = judge("driver-loaded", h200({"run nvidia-smi -q": unknown}))
    assert "container" not in " ".join([outside.why, *outside.remedy])


def test_the_last_branch_of_a_gpu_is_that_of_its_architecture() -> None:
    known = {"text /proc/driver/nvidia/version": CLOSED}
    for age, branch in (("Kepler", "470"), ("Volta", "580")):
        log = smi("Tesla X", architecture=age)
        (said,) = judge("driver-flavour", h200({"run nvidia-smi -q": log, **known}))
        assert branch in said.why


def test_two_gpus_are_a_pair_and_one_is_none() -> None:
    both = [gpu("pci0000:16/0000:17:00.0"), gpu("pci0000:26/0000:27:00.0")]
    (found,) = judge("gpu-peers", machine(sysfs(both)), goal=Goal.P2P)
    assert (found.verdict, found.found) == (Verdict.OK, "NODE")
    (found,) = judge("gpu-peers", machine(sysfs(both[:1])), goal=Goal.P2P)
    assert found.verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("state", "status", "verdict"),
    [
        ("Completed", "Success", Verdict.OK),
        ("In Progress", "N/A", Verdict.FAIL),
        ("N/A", "N/A", Verdict.NOT_APPLICABLE),
    ],
)
def test_the_fabric_is_judged_by_what_nvidia_smi_says(
    state: str, status: str, verdict: Verdict
) -> None:
    log = f"{smi()}    Fabric\n        State   : {state}\n        Status  : {status}\n"
    (found,) = judge("nvlink-fabric", h200({"run nvidia-smi -q": log}), goal=Goal.P2P)
    assert found.verdict is verdict


def test_a_container_gets_no_command_that_changes_the_host() -> None:
    lines = fit(machine(DOCKER), ["sudo modprobe nvidia-peermem", "nvidia-smi"])
    assert lines[0].startswith("# On the host")
    assert lines[1:] == ("# sudo modprobe nvidia-peermem", "nvidia-smi")
    assert fit(machine({}), ["sudo modprobe nvidia"]) == ("sudo modprobe nvidia",)


def test_a_restart_is_an_instruction_of_its_own() -> None:
    command, restart = fit(machine({}), ["sudo update-grub && sudo reboot"])
    assert command == "sudo update-grub"
    assert restart.startswith("# ")


@pytest.mark.parametrize(
    ("release", "command"),
    [("ID=pop\n", True), ("ID=custom\nID_LIKE=debian\n", True), ("ID=arch\n", False), ("", True)],
)
def test_a_distribution_without_apt_gets_words(release: str, command: bool) -> None:
    (line,) = fit(machine({"text /etc/os-release": release}), ["sudo apt install -y doca-ofed"])
    assert line.startswith("sudo apt") is command
    assert "doca-ofed" in line


def of(check: str, make: object) -> Finding:
    made = make("x", why="Y.", remedy=["z"])  # type: ignore[operator]
    return attribute(made, check=check, title=check, side="host")


def test_a_cause_comes_before_what_follows_from_it() -> None:
    found = [of("dmabuf-gpu", finding.fail), of("cuda-python", finding.fail)]
    found += [of("link", finding.warn), of("driver-flavour", finding.warn)]
    names = [(one.check, one.follows) for one in order(found, Goal.RDMA)]
    assert names[0] == ("driver-flavour", "")
    assert names[1] == ("dmabuf-gpu", "driver-flavour")
    assert names[2:] == [("link", ""), ("cuda-python", "")]


def path(verdict: Verdict, **checks: tuple[str, ...]) -> DataPath:
    return DataPath(name="p", title="P", what="It moves.", serves=True, verdict=verdict, **checks)


def test_what_concerns_the_path_that_works_comes_before_what_blocks_others() -> None:
    found = [of("gpunetio-rdma", finding.fail), of("dgkit-extras", finding.fail)]
    found += [of("link", finding.warn), of("driver-registry", finding.warn)]
    found += [of("acs", finding.unknown)]
    works = path(Verdict.WARN, warned_by=("driver-registry",))
    blocked = path(Verdict.FAIL, blocked_by=("gpunetio-rdma",))
    names = [one.check for one in lead(found, [works, blocked])]
    assert names == ["driver-registry", "gpunetio-rdma", "link", "dgkit-extras", "acs"]
    assert lead(found, [blocked]) == tuple(found), "nothing works: the worst comes first"
    alone = [one.check for one in lead(found, [works])]
    assert alone[:2] == ["gpunetio-rdma", "driver-registry"], "it blocks no path: a failure"


def test_what_follows_from_a_failure_has_no_remedy_of_its_own() -> None:
    found = order([of("cuda-context", finding.fail), of("cuda-driver", finding.fail)], Goal.RDMA)
    assert [(one.check, one.remedy) for one in found] == [
        ("cuda-driver", ("z",)),
        ("cuda-context", ()),
    ]
