# SPDX-License-Identifier: Apache-2.0
"""Goal `gpu`: whether programs can use a GPU, whatever other devices could do with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from doctor.published import FOLDER, Published, load
from doctor.snapshots import machine
from support.doctor.gpus import h200
from support.doctor.machines import judge

from dgkit.doctor.diagnosis import Diagnosis
from dgkit.doctor.facts import pairs
from dgkit.doctor.finding import Verdict
from dgkit.doctor.goals import Goal
from dgkit.doctor.runner import diagnose


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Diagnosis]:
    """Judges a published laptop that works, with more lines at the end of its file."""
    made = (FOLDER / "programs" / "pointnet-262-4060.txt").read_text("utf-8")

    def judged(more: str = "", goal: Goal | None = None) -> Diagnosis:
        path = tmp_path / "laptop.txt"
        path.write_text(made + more)
        return diagnose([load(path).machine()], goal=goal)

    return judged


def test_a_geforce_with_closed_modules_and_without_root_is_well(
    changed: Callable[..., Diagnosis],
) -> None:
    found = changed()
    assert (found.goal, found.exit_code) == (Goal.GPU, 0)
    assert found.best is not None
    assert found.best.name == "gpu"
    assert found.summary() == "CUDA works."


@pytest.mark.parametrize(
    ("more", "lead"),
    [
        ("=== cuda\ninit=999 CUDA_ERROR_UNKNOWN\n", "cuda-driver"),
        ("=== cuda\ncontext=46 CUDA_ERROR_DEVICES_UNAVAILABLE\n", "cuda-context"),
    ],
)
def test_cuda_that_does_not_start_fails(
    more: str, lead: str, changed: Callable[..., Diagnosis]
) -> None:
    found = changed(more)
    assert found.exit_code == 1
    assert found.findings[0].check == lead


def test_what_only_other_devices_need_is_not_judged(changed: Callable[..., Diagnosis]) -> None:
    checks = {one.check for one in changed().findings if one.verdict > Verdict.OK}
    assert not checks & {"driver-flavour", "gpudirect-platform", "bar1-size", "acs", "peermem"}
    assert changed(goal=Goal.ARM_DMA).exit_code == 1


def test_an_iommu_that_translates_concerns_other_devices_only() -> None:
    (rdma, *_), (alone,) = (
        judge("iommu", machine("iommu-on"), goal=goal) for goal in (Goal.RDMA, Goal.GPU)
    )
    assert (rdma.verdict, alone.verdict) == (Verdict.WARN, Verdict.NOT_APPLICABLE)


def test_a_container_needs_the_gpu_alone() -> None:
    made = load(FOLDER / "nccl" / "nccl-1380-supernic.txt")
    inside = Published(made.name, made.head, {**made.sections, "container": "gpus\n"})
    for goal, verdict in ((Goal.RDMA, Verdict.FAIL), (Goal.GPU, Verdict.OK)):
        (found,) = judge("container", inside.machine(), goal=goal)
        assert found.verdict is verdict


def test_only_nvidias_nics_are_partners_for_gpunetio_and_none_for_a_gpu_alone() -> None:
    here = load(FOLDER / "communication" / "deepep-759-erdma.txt").machine()
    assert len(pairs.peers(here, Goal.RDMA)) == 1
    assert pairs.peers(here, Goal.GPUNETIO) == ()
    assert pairs.peers(here, Goal.GPU) == ()


def test_a_machine_without_a_gpu_has_no_way() -> None:
    found = diagnose([machine("laptop")], goal=Goal.GPU)
    assert found.exit_code == 1
    assert found.findings[0].check == "gpu-present"
    assert diagnose([h200()], goal=Goal.GPU).of("gpu-present")[0].verdict is Verdict.OK
