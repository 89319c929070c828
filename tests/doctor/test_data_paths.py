# SPDX-License-Identifier: Apache-2.0
"""Which ways of moving bytes work, by what the checks found."""

from collections.abc import Mapping

import pytest
from support.doctor import pci
from support.doctor.machines import machine

from dgkit.doctor import finding
from dgkit.doctor.data_path_specs import DATA_PATH_SPECS
from dgkit.doctor.data_paths import DataPath, judge_data_paths
from dgkit.doctor.finding import Finding, Verdict
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Case, Machine

GPU, BLUEFIELD = pci.gpu("pci0000:16/0000:17:00.0"), pci.dpu("pci0000:b0/0000:b3:00.0")


def box(*devices: pci.Dev) -> Machine:
    """A machine with these PCI devices, and nothing else."""
    return machine(pci.sysfs(devices))


FULL = box(GPU, BLUEFIELD)
FINE = (
    *("dgkit-core", "driver-loaded", "driver-flavour", "kernel-version", "dmabuf-gpu", "peermem"),
    *("gpudirect-platform", "bluefield-present", "bluefield-mode", "doca-libraries", "bar1-size"),
    *("rdma-devices", "rdma-dmabuf", "cuda-driver", "cuda-python", "memlock", "iommu"),
    *("gpunetio-ethernet", "gpunetio-rdma", "gpunetio-verbs", "gpunetio-dma"),
)
WORSE = {"warn": finding.warn, "fail": finding.fail, "dark": finding.unknown, "n.a.": finding.n_a}


def found(changed: Mapping[str, str | Finding] = {}) -> list[Finding]:
    """All is fine but for these."""
    said: list[Finding] = []
    for name in dict.fromkeys((*FINE, *changed)):
        one = changed.get(name, finding.ok("fine"))
        made = WORSE[one]("odd", why=f"{name} is odd.") if isinstance(one, str) else one
        said.append(finding.attribute(made, check=name, title=name, side="host"))
    return said


def judged(
    changed: Mapping[str, str | Finding] = {},
    goal: Goal = Goal.ARM_DMA,
    host: Machine | None = FULL,
    dpu: Machine | None = None,
) -> dict[str, DataPath]:
    main = host or dpu
    assert main is not None
    case = Case(main, goal, host=host, dpu=dpu)
    return {way.name: way for way in judge_data_paths(case, found(changed))}


def test_on_a_machine_where_all_is_fine_the_first_way_works_and_is_what_was_asked_for() -> None:
    for goal in Goal:
        first = next(iter(judged(goal=goal).values()))
        assert first.verdict is Verdict.OK
        assert first.serves
        assert first.what.endswith(".")


@pytest.mark.parametrize("verdict", ["warn", "fail"])
@pytest.mark.parametrize("check", ["driver-flavour", "dmabuf-gpu", "kernel-version"])
def test_what_rules_out_dma_buf_leaves_peermem(check: str, verdict: str) -> None:
    way = judged({check: verdict})
    assert way["doca-gpu-dmabuf"].verdict is Verdict.FAIL
    assert way["doca-gpu-dmabuf"].blocked_by == (check,)
    assert way["doca-gpu-dmabuf"].why == f"{check} is odd."
    assert way["doca-gpu-dmabuf"].word == "blocked"
    assert way["doca-gpu-peermem"].verdict is Verdict.OK


def test_where_two_documents_disagree_a_warning_does_not_block() -> None:
    doubt = finding.warn("5.15", why="Maybe.", disagree="One says 6.2, another 5.12.")
    way = judged({"kernel-version": doubt})["doca-gpu-dmabuf"]
    assert way.verdict is Verdict.WARN
    assert way.warned_by == ("kernel-version",)
    assert way.word == "should work, with warnings"


def test_without_peermem_and_dma_buf_the_gpu_s_memory_goes_through_the_host() -> None:
    way = judged({"driver-flavour": "warn", "peermem": "fail"})
    assert next(one.name for one in way.values() if one.works) == "doca-host"
    assert way["doca-host"].verdict is Verdict.WARN
    assert way["doca-host"].word == "should work, but slower"
    assert not way["doca-host"].serves


def test_where_cpu_and_gpu_share_their_memory_pinned_memory_is_the_way_to_the_goal() -> None:
    shared = judged({"gpudirect-platform": "warn"}, Goal.RDMA)
    assert shared["rdma-gpu-dmabuf"].verdict is Verdict.FAIL
    host = shared["rdma-host"]
    assert (host.verdict, host.serves, host.why) == (Verdict.OK, True, "gpudirect-platform is odd.")
    apart = judged({"gpudirect-platform": "fail"}, Goal.RDMA)["rdma-host"]
    assert (apart.verdict, apart.serves) == (Verdict.WARN, False)


def test_a_small_limit_of_locked_memory_blocks_host_memory_alone() -> None:
    """A dma-buf pins no page of the process: umem_dmabuf.c counts none, ib_umem_get does."""
    for goal, gpu, host in (
        (Goal.ARM_DMA, "doca-gpu-dmabuf", "doca-host"),
        (Goal.RDMA, "rdma-gpu-dmabuf", "rdma-host"),
        (Goal.GPUNETIO, "gpunetio-rdma", "gpunetio-pinned"),
    ):
        way = judged({"memlock": "fail"}, goal)
        assert way[gpu].verdict is Verdict.OK
        assert way[host].blocked_by == ("memlock",)


def test_gpunetio_falls_back_to_peermem_within_one_way() -> None:
    way = judged({"driver-flavour": "fail"}, Goal.GPUNETIO)["gpunetio-rdma"]
    assert way.verdict is Verdict.WARN
    assert way.warned_by == ("driver-flavour",)
    neither = judged({"driver-flavour": "fail", "peermem": "warn"}, Goal.GPUNETIO)
    assert neither["gpunetio-rdma"].verdict is Verdict.FAIL
    assert neither["gpunetio-rdma"].blocked_by == ("driver-flavour", "peermem")
    assert neither["gpunetio-pinned"].works


def test_a_failure_on_the_way_blocks_it_and_a_warning_does_not() -> None:
    assert judged({"bar1-size": "fail"})["doca-gpu-dmabuf"].blocked_by == ("bar1-size",)
    way = judged({"iommu": "warn"})["doca-gpu-dmabuf"]
    assert (way.verdict, way.warned_by) == (Verdict.WARN, ("iommu",))
    way = judged({"iommu": "dark"})["doca-gpu-dmabuf"]
    assert (way.verdict, way.word) == (Verdict.OK, "should work")
    assert "No answer: iommu." in way.proviso


def test_no_answer_to_what_a_way_needs_leaves_it_open() -> None:
    for check in ("bluefield-mode", "dmabuf-gpu"):
        way = judged({check: "dark"})["doca-gpu-dmabuf"]
        assert way.verdict is Verdict.UNKNOWN
        assert way.word == "unknown"
        assert way.why == f"{check} is odd."
    way = judged({"bluefield-mode": "dark"}, Goal.GPUNETIO)["gpunetio-verbs"]
    assert way.verdict is Verdict.UNKNOWN


def test_what_does_not_apply_is_not_set_up_rather_than_unknown() -> None:
    way = judged({"peermem": "n.a."})["doca-gpu-peermem"]
    assert (way.verdict, way.word) == (Verdict.NOT_APPLICABLE, "not set up")
    assert way.why == "peermem: odd."


def test_a_core_that_does_not_load_blocks_all_and_one_that_is_late_blocks_nothing() -> None:
    for goal in (Goal.ARM_DMA, Goal.LAPTOP):
        assert not any(one.works for one in judged({"dgkit-core": "fail"}, goal).values())
        late = judged({"dgkit-core": "dark"}, goal)
        assert {name for name, one in late.items() if one.works} == {
            name for name, one in judged(goal=goal).items() if one.works
        }


def test_one_device_that_is_right_will_do_where_there_are_several() -> None:
    good, bad = finding.ok("131072 MiB", subject="GPU 0"), finding.fail("256 MiB", subject="GPU 1")
    said = [
        *(one for one in found() if one.check != "bar1-size"),
        *(finding.attribute(one, check="bar1-size", title="", side="host") for one in (good, bad)),
    ]
    (way, *_) = judge_data_paths(Case(FULL, Goal.ARM_DMA, host=FULL), said)
    assert (way.verdict, way.warned_by) == (Verdict.WARN, ("bar1-size",))


def test_without_a_gpu_or_a_bluefield_it_says_so_whatever_the_checks_found() -> None:
    way = judged({"bluefield-present": "fail"}, host=box(GPU))
    assert way["doca-gpu-dmabuf"].why == "There is no BlueField."
    assert way["doca-gpu-dmabuf"].blocked_by == ("bluefield-present",)
    assert way["cuda"].works
    nothing = judged(host=box())
    assert nothing["doca-gpu-dmabuf"].why == "There is no BlueField. There is no NVIDIA GPU."
    assert not nothing["cuda"].works
    assert nothing["soft"].works


def test_the_dpu_alone_cannot_tell_what_the_host_has() -> None:
    way = judged(host=None, dpu=box(BLUEFIELD))
    assert way["doca-gpu-dmabuf"].verdict is Verdict.UNKNOWN
    assert "judge both" in way["doca-gpu-dmabuf"].why
    assert way["doca-host"].works


def test_the_host_alone_says_that_the_dpu_was_not_looked_at() -> None:
    assert "DPU was not" in judged()["doca-host"].proviso
    assert judged(dpu=box(BLUEFIELD))["doca-host"].proviso == ""


def test_what_no_document_describes_is_not_promised() -> None:
    way = judged(dpu=box(BLUEFIELD))["doca-gpu-dmabuf"]
    assert (way.word, way.works) == ("should work", True)
    assert "no document" in way.proviso


def test_each_goal_has_a_way_that_serves_it_and_one_that_needs_no_device() -> None:
    for goal in Goal:
        specs = [spec for spec in DATA_PATH_SPECS if goal in spec.goals]
        assert any(goal in spec.serves for spec in specs)
        assert any(not spec.devices for spec in specs)
    assert len({spec.name for spec in DATA_PATH_SPECS}) == len(DATA_PATH_SPECS)
