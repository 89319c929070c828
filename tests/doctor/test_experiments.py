# SPDX-License-Identifier: Apache-2.0
"""Experiments: which ones fit a machine, and how their results overrule inferences."""

import pytest
from doctor.published import load_all
from doctor.snapshots import machine

from dgkit.doctor.data_paths import DataPath
from dgkit.doctor.diagnosis import Diagnosis
from dgkit.doctor.experiments.overrule import overrule
from dgkit.doctor.experiments.perform import Result
from dgkit.doctor.experiments.plan import Experiment, plan
from dgkit.doctor.finding import Verdict
from dgkit.doctor.format.summary import tried_kinds
from dgkit.doctor.format.terminal import page
from dgkit.doctor.goals import Goal
from dgkit.doctor.runner import diagnose


def tried(name: str, verdict: Verdict = Verdict.OK, said: str = "it works", **fields) -> Result:
    known = {"subject": "GPU 0", "does": "", "query": (name,), **fields}
    return Result(experiment=Experiment(name=name, **known), verdict=verdict, said=said, took_s=0.1)


def pair(a: int, b: int, verdict: Verdict = Verdict.OK, said: str = "it works") -> Result:
    subject = f"GPU {a} and GPU {b}"
    fields = {"data_path": "gpu-peers", "every": True, "checks": ("gpu-peers",)}
    return tried("gpu-copy", verdict, said, subject=subject, **fields)


def diagnosed(name: str, goal: Goal) -> Diagnosis:
    return diagnose([machine(name)], goal=goal)


def path(diagnosis: Diagnosis, name: str) -> DataPath:
    return next(one for one in diagnosis.data_paths if one.name == name)


def text(diagnosis: Diagnosis) -> str:
    return "\n".join("".join(span.text for span in line) for line in page(diagnosis))


def test_a_success_overrules_the_inference_of_a_check_and_of_its_data_path():
    before = diagnosed("closed-driver", Goal.RDMA)
    assert path(before, "rdma-gpu-dmabuf").blocked_by == ("dmabuf-gpu",)
    works = tried("rdma-loopback", data_path="rdma-gpu-dmabuf", checks=("dmabuf-gpu",))
    found = overrule(before, [works])
    now = path(found, "rdma-gpu-dmabuf")
    assert (now.works, now.tried, now.blocked_by) == (True, True, ())
    (check,) = found.of("dmabuf-gpu")
    assert check.verdict is Verdict.OK
    assert check.why.startswith("Tried: it works. The readings said: ")
    assert "RDMA to GPU memory (dma-buf)  works (tried)" in text(found)


def test_a_registration_alone_does_not_lift_what_else_blocks_the_path():
    before = diagnosed("container", Goal.RDMA)
    mapped = tried("register-dmabuf", data_path="rdma-gpu-dmabuf", complete=False)
    assert path(overrule(before, [mapped]), "rdma-gpu-dmabuf").verdict is Verdict.FAIL


def test_a_failed_pair_blocks_the_path_that_the_readings_call_good_and_leads_the_page():
    before = diagnosed("dgx-a100", Goal.P2P)
    assert path(before, "gpu-peers").works
    wrong = pair(0, 1, Verdict.FAIL, "the copy reported success, and 4 of 8 bytes are wrong")
    found = overrule(before, [pair(0, 2), wrong, pair(1, 2)])
    assert (found.exit_code, found.findings[0].check) == (1, "try-gpu-copy")
    shown = text(found)
    assert "blocked (tried) by try-gpu-copy" in shown
    assert "2 of 3 work; failed: GPU 0 and GPU 1" in shown
    assert "4 of 8 bytes" in shown


def test_what_could_not_be_run_overrules_nothing_and_is_named():
    before = diagnosed("dgx-a100", Goal.P2P)
    found = overrule(before, [pair(0, 1, Verdict.UNKNOWN, "libcuda.so.1 is missing")])
    assert path(found, "gpu-peers") == path(before, "gpu-peers")
    assert "not run: GPU 0 and GPU 1: libcuda.so.1 is missing" in text(found)


def test_one_registration_that_fails_is_a_warning_where_another_device_works():
    before = diagnosed("dgx-a100", Goal.RDMA)
    fields = {"data_path": "rdma-gpu-peermem", "complete": False}
    results = [
        tried("register-peermem", Verdict.FAIL, "ibv_reg_mr: Bad address", **fields),
        tried("register-peermem", **fields),
    ]
    now = path(overrule(before, results), "rdma-gpu-peermem")
    assert (now.verdict, now.warned_by[0]) == (Verdict.WARN, "try-register-peermem")


def test_a_loopback_by_nvidia_peermem_decides_that_path():
    said = "the data are right both ways (nvidia-peermem)"
    result = tried("rdma-loopback", said=said, data_path="rdma-gpu-dmabuf")
    found = overrule(diagnosed("dgx-a100", Goal.RDMA), [result])
    assert path(found, "rdma-gpu-peermem").tried
    assert not path(found, "rdma-gpu-dmabuf").tried


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("dgx-a100", {"cuda-context": 8, "gpu-copy": 28}),
        ("pix", {"cuda-context": 1, "register-dmabuf": 2, "rdma-loopback": 2}),
        ("laptop", {"doca-dma": 1}),
        ("bf2-dpu-mode", {"doca-dma": 2}),
    ],
)
def test_a_machine_gets_the_experiments_that_its_devices_allow(name, numbers):
    counts: dict[str, int] = {}
    for experiment in plan(machine(name)):
        counts[experiment.name] = counts.get(experiment.name, 0) + 1
    assert {**counts, **numbers} == counts
    assert ("cuda-context" in counts) == (name != "laptop")


def test_a_bluefield_copies_in_hardware_and_other_machines_in_software():
    hardware = [one.query[1] for one in plan(machine("bf2-dpu-mode")) if one.name == "doca-dma"]
    software = [one.query[1] for one in plan(machine("laptop")) if one.name == "doca-dma"]
    assert (set(hardware), set(software)) == ({"doca"}, {"softdoca"})
    does = {"verdict": Verdict.OK, "said": "it is right", "took_s": 0.1}
    ran = [Result(experiment=one, **does) for one in plan(machine("laptop"))]
    assert [kind.title for kind in tried_kinds(ran)] == ["DOCA DMA (softdoca)"]


LOST = "cuMemcpyDtoDAsync_v2: CUDA_ERROR_LAUNCH_FAILED and more words, so that it takes two lines"


@pytest.mark.parametrize("folder", ["communication", "bluefield"])
def test_the_page_of_each_machine_fits_a_screen_however_its_experiments_ended(folder):
    verdicts = (Verdict.OK, Verdict.FAIL, Verdict.UNKNOWN)
    for one in load_all(folder):
        found = one.machine()
        before, planned = diagnose([found]), plan(found)
        for shift in range(3):
            ends = [verdicts[(at * shift + shift) % 3] for at in range(len(planned))]
            results = [
                Result(experiment=experiment, verdict=verdict, said=LOST, took_s=0.1)
                for experiment, verdict in zip(planned, ends, strict=True)
            ]
            assert len(page(overrule(before, results))) <= 40, one.name
