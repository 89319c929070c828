# SPDX-License-Identifier: Apache-2.0
"""CUDA: the driver's, the toolkit, CuPy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.gpus import ADDRESS, h200, smi, with_gpu
from support.doctor.machines import judge, machine

from dgkit.doctor import Goal, Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts.cuda import Cuda, cuda, read_nvcc, toolkits
from dgkit.doctor.finding import Finding
from dgkit.doctor.machine import Machine

PROBE, NVCC, INFO = "probe cuda", "run nvcc --version", "probe info"
JSON = "text /usr/local/cuda/version.json"


def answer(
    code: int | None = 0, name: str = "CUDA_SUCCESS", driver: int = 13000, why: str = ""
) -> dict[str, object]:
    init = None if code is None else {"code": code, "name": name}
    one = {"ordinal": 0, "address": ADDRESS, "name": "NVIDIA H200", "attributes": {"INTEGRATED": 0}}
    return {
        "library": "" if code is None else "/usr/lib/libcuda.so.580.159.04",
        "why": why,
        "init": init,
        "driver": None if code is None else driver,
        "devices": [] if code else [one],
    }


def nvcc(release: str) -> str:
    return (
        "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n"
        f"Built on Wed_Aug_20_01:58:59_PM_PDT_2025\nCuda compilation tools, release {release}, "
        f"V{release}.88\nBuild cuda_{release}.r{release}/compiler.36424714_0\n"
    )


def one(check: str, on: Machine, goal: Goal = Goal.ARM_DMA) -> Finding:
    (found,) = judge(check, on, goal=goal)
    return found


def test_cuda_that_starts_is_well() -> None:
    found = one("cuda-driver", h200({PROBE: answer()}))
    assert (found.verdict, found.found) == (Verdict.OK, "CUDA 13.0")


@pytest.mark.parametrize(
    ("code", "name", "remedy"),
    [
        (100, "CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY", "fabricmanager"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "reboot"),
        (999, "CUDA_ERROR_UNKNOWN", "nvidia-uvm"),
        (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "dmesg"),
    ],
)
def test_each_refusal_of_cuda_fails_by_its_name(code: int, name: str, remedy: str) -> None:
    found = one("cuda-driver", h200({PROBE: answer(code, name)}))
    assert (found.verdict, found.found) == (Verdict.FAIL, name)
    assert any(remedy in line for line in found.remedy)


def test_a_missing_libcuda_fails_in_the_loaders_words() -> None:
    why = "libcuda.so.1: cannot open shared object file"
    found = one("cuda-driver", h200({PROBE: answer(None, why=why)}))
    assert (found.verdict, found.found) == (Verdict.FAIL, "no libcuda")
    assert why in found.why


def test_cuda_11_is_too_old_for_gpunetio_alone() -> None:
    old = h200({PROBE: answer(driver=11080)})
    found = one("cuda-driver", old, Goal.GPUNETIO)
    assert (found.verdict, found.found) == (Verdict.FAIL, "CUDA 11.8")
    assert one("cuda-driver", old).verdict is Verdict.OK  # other programs work with it


@pytest.mark.parametrize("fault", ["late", "failed"])
def test_a_probe_that_hangs_or_crashes_leaves_it_open(fault: str) -> None:
    gone = Reading(fault=fault, why="it was ended by signal 11")
    found = one("cuda-driver", h200({PROBE: gone}))
    assert found.verdict is Verdict.UNKNOWN
    assert gone.why in found.why


def test_where_cuda_was_not_asked_nvidia_smi_tells() -> None:
    unasked = Reading(fault="unrecorded", why="the dgkit that took it did not look")
    found = one("cuda-driver", h200({PROBE: unasked}))
    assert (found.verdict, found.found) == (Verdict.OK, "CUDA 13.0, says nvidia-smi")
    older = h200({PROBE: unasked, "run nvidia-smi -q": smi(cuda="N/A")})
    assert one("cuda-driver", older).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("data", [None, [], {}, {"init": 3}, {"init": {}, "devices": [1, {}]}])
def test_no_answer_of_the_probe_is_too_odd(data: object) -> None:
    found = cuda(h200({PROBE: Reading(data=data)}))
    assert isinstance(found, Cuda)
    assert found.code is None


@pytest.mark.parametrize(
    ("readings", "goal", "verdict"),
    [
        ({NVCC: nvcc("13.0")}, Goal.GPUNETIO, Verdict.OK),
        ({NVCC: nvcc("12.6")}, Goal.GPUNETIO, Verdict.OK),  # gpunetio-rdma, gpunetio-dma say more
        ({NVCC: nvcc("12.4")}, Goal.GPUNETIO, Verdict.OK),
        ({NVCC: nvcc("11.8")}, Goal.GPUNETIO, Verdict.FAIL),
        ({NVCC: nvcc("14.0")}, Goal.GPUNETIO, Verdict.FAIL),  # the driver speaks 13.0
        ({NVCC: nvcc("14.0")}, Goal.RDMA, Verdict.OK),
        ({NVCC: nvcc("11.8")}, Goal.RDMA, Verdict.OK),
        ({}, Goal.GPUNETIO, Verdict.WARN),  # programs that are built already need none
        ({}, Goal.ARM_DMA, Verdict.NOT_APPLICABLE),
        ({NVCC: Reading(fault="late", why="no answer")}, Goal.GPUNETIO, Verdict.UNKNOWN),
    ],
)
def test_the_toolkit_must_be_as_new_as_gpunetio_asks(
    readings: dict[str, object], goal: Goal, verdict: Verdict
) -> None:
    assert one("cuda-toolkit", h200(readings), goal).verdict is verdict


def test_the_two_floors_for_the_toolkit_are_both_named() -> None:
    found = one("cuda-toolkit", h200({NVCC: nvcc("12.6")}), Goal.GPUNETIO)
    assert "12.6" in found.disagree
    assert "13.0" in found.disagree
    before = one("cuda-toolkit", h200({NVCC: nvcc("12.5")}), Goal.GPUNETIO)
    assert "-m=kernel-open" in before.why


def test_the_toolkit_that_is_used_is_told_from_the_others() -> None:
    found = toolkits(
        machine({NVCC: nvcc("12.4"), "names /usr/local": ("bin", "cuda", "cuda-12.4", "cuda-13.0")})
    )
    assert (found.version, found.where, found.others) == ((12, 4), "nvcc", ("cuda-13.0",))


@pytest.mark.parametrize(
    ("readings", "version"),
    [
        ({JSON: '{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}'}, (12, 4)),
        ({JSON: "no JSON"}, ()),
        ({JSON: "[1]"}, ()),
        ({"text /usr/local/cuda/version.txt": "CUDA Version 10.2.89\n"}, (10, 2)),
        ({"link /usr/local/cuda": "/usr/local/cuda-13.0"}, (13, 0)),
        ({"names /usr/local": ("cuda-11.8", "cuda-12.10", "cuda-12.9")}, (12, 10)),
        ({}, ()),
    ],
)
def test_a_toolkit_without_nvcc_is_found_in_its_folder(
    readings: dict[str, object], version: tuple[int, ...]
) -> None:
    assert toolkits(machine(readings)).version == version


def info(why: str = "", **libraries: str) -> dict[str, object]:
    known = {"CuPy": "14.2.0", "cuda-core": "1.2.0", "cuda-bindings": "13.3.1"}
    changed = {name.replace("_", "-"): version for name, version in libraries.items()}
    return {"gpu": {"why": why, "gpus": [], "libraries": {**known, **changed}}}


@pytest.mark.parametrize(
    ("answered", "verdict"),
    [
        (info(), Verdict.OK),
        (info(CuPy="missing"), Verdict.FAIL),
        (info(CuPy="12.3.0"), Verdict.FAIL),
        (info(cuda_core="missing"), Verdict.FAIL),
        (info(cuda_bindings="14.0.0"), Verdict.FAIL),
        (info(cuda_bindings="12.9.2"), Verdict.OK),
        (info("CuPy cannot be imported: libnvrtc.so.13"), Verdict.FAIL),
        ({}, Verdict.UNKNOWN),
        ({"gpu": 3}, Verdict.UNKNOWN),
        (Reading(fault="late", why="no answer"), Verdict.UNKNOWN),
    ],
)
def test_the_libraries_of_gpu_memory_must_be_there_and_fit_the_driver(
    answered: object, verdict: Verdict
) -> None:
    assert one("cuda-python", h200({INFO: answered, PROBE: answer()})).verdict is verdict


def test_the_extra_that_is_advised_is_that_of_the_driver() -> None:
    missing = info(CuPy="missing")
    for driver, extra in ((13000, "'.[cuda13]'"), (12040, "'.[cuda12]'")):
        found = one("cuda-python", h200({INFO: missing, PROBE: answer(driver=driver)}))
        assert found.remedy[-1] == f".venv/bin/pip install {extra}"


def test_where_cuda_does_not_start_the_driver_is_to_be_mended_and_no_library() -> None:
    name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
    broken = {PROBE: answer(803, name)}
    found = one("cuda-python", h200({INFO: info(f"cuInit: {name}"), **broken}))
    assert found.verdict is Verdict.UNKNOWN
    assert found.remedy == one("cuda-driver", h200(broken)).remedy
    missing = one("cuda-python", h200({INFO: info(CuPy="missing"), **broken}))
    assert missing.verdict is Verdict.FAIL  # that is so whatever CUDA does


def test_nothing_is_asked_where_no_driver_is_loaded() -> None:
    for check in ("cuda-driver", "cuda-python"):
        assert one(check, with_gpu()).verdict is Verdict.NOT_APPLICABLE


@given(st.text(), st.integers(0, 99), st.integers(0, 99))
def test_nvcc_is_read_whatever_stands_around(noise: str, major: int, minor: int) -> None:
    read_nvcc(noise)
    assert read_nvcc(nvcc(f"{major}.{minor}")) == (major, minor)


def test_a_device_file_that_a_container_has_is_not_said_to_be_missing() -> None:
    inside: dict[str, object] = {
        "text /.dockerenv": "",
        "text /proc/1/cgroup": f"0::/system.slice/docker-{1:064x}.scope\n",
        PROBE: answer(999, "CUDA_ERROR_UNKNOWN"),
    }
    lacking = one("cuda-driver", h200({**inside, "names /dev": ["nvidia0", "nvidiactl"]}))
    assert "lacks" in lacking.why
    having = one("cuda-driver", h200({**inside, "names /dev": ["nvidia0", "nvidia-uvm"]}))
    assert "may not open" in having.why
    assert "nvidia-modprobe -u -c 0" in having.remedy[0]
    assert "new container" in having.remedy[-1]
