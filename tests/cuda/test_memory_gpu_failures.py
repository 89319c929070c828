# SPDX-License-Identifier: Apache-2.0
"""dgkit.empty(on="gpu") where something fails: typed, at once, with what to do, nothing left."""

import contextlib
import gc
import os
import sys

import cupy
import pytest
from support.gpu.memory import MIB, fds, free

import dgkit
from dgkit import memory
from dgkit.errors import DeviceUnavailable, NativeError, OutOfMemory, Unsupported
from dgkit.memory import libcuda


@pytest.mark.any_gpu
def test_more_than_the_card_has_is_refused_before_anything_is_taken(knobs):
    dgkit.empty(1, on="gpu").close()
    before, open_before, size = free(), fds(), memory.gpus()[0].total + MIB
    if knobs:
        knobs.order("")
    with pytest.raises(OutOfMemory, match=rf"{size:,} bytes requested, [\d,]+ free"):
        dgkit.empty(size, on="gpu")
    if knobs:
        assert knobs.calls("cuMemCreate") == 0
    assert (free(), fds()) == (before, open_before)


def test_a_card_that_fills_up_meanwhile_is_out_of_memory_too(fake_cuda):
    fake_cuda.order("cuMemCreate=2")
    with pytest.raises(OutOfMemory, match=r"100 bytes requested, [\d,]+ free on cuda:0"):
        dgkit.empty(100, on="gpu")


STEPS = [
    "cuMemGetAllocationGranularity",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuMemSetAccess",
    "cuStreamCreate",
    "cuMemsetD8Async",
    "cuStreamSynchronize",
    "cuDeviceGetUuid",
]


@pytest.mark.parametrize("step", STEPS)
def test_whatever_fails_on_the_way_nothing_is_left_behind(fake_cuda, step):
    before, open_before = free(), fds()
    fake_cuda.order(f"{step}=1")
    with pytest.raises(NativeError, match=rf"{step} returned CUDA_ERROR_INVALID_VALUE \(1\)"):
        dgkit.empty(100, on="gpu")
    fake_cuda.order("")
    assert (free(), fds()) == (before, open_before)


UNUSABLE = {
    3: "parent process used CUDA before fork",
    34: "the stub libcuda.*for linking only.*LD_LIBRARY_PATH",
    46: "another process uses the GPU exclusively.*nvidia-smi -c DEFAULT",
    100: "sees no GPU.*nvidia-smi -L",
    304: "/dev/nvidia",
    802: "fabric manager.*nvidia-fabricmanager",
    803: "different driver versions: reboot",
    804: "forward-compatibility.*LD_LIBRARY_PATH",
    999: "nvidia_uvm.*dmesg",
}


@pytest.mark.parametrize("code", UNUSABLE)
def test_a_driver_that_cannot_be_used_is_unavailable_and_says_what_to_do(
    fake_cuda, monkeypatch, code
):
    fake_cuda.order(f"cuInit={code}")
    monkeypatch.setattr(libcuda, "_driver", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DeviceUnavailable, match=UNUSABLE[code]) as info:
        dgkit.empty(8, on="gpu")
    assert f"({code})" in str(info.value)
    assert memory.why_no_gpu() == info.value.strerror
    assert memory.gpus() == []
    with dgkit.empty(8, on="auto") as there:
        assert there.chosen == f"host memory: {info.value.strerror}"


def test_a_hidden_gpu_is_told_from_none(fake_cuda, monkeypatch):
    fake_cuda.order("cuInit=100")
    monkeypatch.setattr(libcuda, "_driver", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "9")
    with pytest.raises(DeviceUnavailable, match="CUDA_VISIBLE_DEVICES is '9' and may hide GPUs"):
        dgkit.empty(8, on="gpu")


def test_no_gpu_at_all_is_unavailable(fake_cuda):
    fake_cuda.order("gpus=0")
    with pytest.raises(DeviceUnavailable, match="sees no GPU"):
        dgkit.empty(8, on="gpu")


@pytest.mark.parametrize(
    ("module", "name"),
    [("cupy", "CuPy"), ("cuda.core", "cuda-core"), ("cuda.bindings", "cuda-bindings")],
)
@pytest.mark.parametrize(("version", "extra"), [(13000, "cuda13"), (12040, "cuda12")])
def test_a_package_that_is_missing_is_named_with_the_extra_that_has_it(
    monkeypatch, module, name, version, extra
):
    extra_of = libcuda._extra
    monkeypatch.setattr(libcuda, "_extra", lambda _: extra_of(version))
    monkeypatch.setitem(sys.modules, module, None)
    if module == "cuda.bindings":
        monkeypatch.setattr(libcuda, "_driver", None)
    words = rf"{name} (is not installed|does not load).*: `pip install .*\[{extra}\]'?`"
    with pytest.raises(DeviceUnavailable, match=words):
        dgkit.empty(8, on="gpu")


def test_a_cupy_that_cannot_use_the_gpu_says_what_it_says(monkeypatch):
    def insufficient():
        raise RuntimeError("cudaErrorInsufficientDriver")

    monkeypatch.setattr(cupy.cuda.runtime, "getDeviceCount", insufficient)
    with pytest.raises(DeviceUnavailable, match=r"CuPy cannot use .*cudaErrorInsufficientDriver"):
        dgkit.empty(8, on="gpu")


@pytest.mark.parametrize("number", [102, 103])
def test_a_gpu_without_shareable_virtual_memory_says_what_to_use_instead(fake_cuda, number):
    fake_cuda.order(f"attr{number}=0")
    with pytest.raises(DeviceUnavailable, match=r"cuda:0 does not support .*on='pinned'"):
        dgkit.empty(8, on="gpu")


def test_without_gpudirect_the_memory_is_made_all_the_same(fake_cuda):
    fake_cuda.order("attr110=0,attr116=0,attr124=0")
    with dgkit.empty(8, on="gpu") as there:
        assert there.gpu.kind == "vmm"


def test_a_function_that_the_driver_does_not_have_asks_for_a_newer_one(monkeypatch):
    class Old:
        def cuMemCreate(self, *_):
            raise RuntimeError('Function "cuMemCreate" not found')

    monkeypatch.setattr(libcuda, "_driver", Old())
    for function in ("cuMemCreate", "cuNothing"):
        with pytest.raises(Unsupported, match=rf"{function} is missing.*update the driver"):
            libcuda.try_call(function, 1)


def test_a_code_that_the_bindings_do_not_know_is_still_a_native_error(fake_cuda):
    fake_cuda.order("cuMemCreate=12345")
    with pytest.raises(NativeError, match="12345"):
        dgkit.empty(8, on="gpu")


@pytest.mark.parametrize("code", [700, 719, 214, 709])
def test_a_lost_context_says_that_the_process_must_start_again(fake_cuda, code):
    with dgkit.empty(8, on="gpu") as there:
        fake_cuda.order(f"cuStreamSynchronize={code}")
        with pytest.raises(DeviceUnavailable, match="context of this process is lost"):
            there.synchronize()


def in_a_forked_child(work):
    """Runs it there; gives what it returned, or the text of its error."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"nothing"
        with contextlib.suppress(BaseException):
            said = str(work()).encode()
        os.write(writer, said)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        said = answer.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    return said


def error_of(work):
    try:
        work()
    except DeviceUnavailable as error:
        return f"DeviceUnavailable: {error}"
    return "no error"


def test_in_a_forked_child_gpu_memory_is_refused_at_once():
    there = dgkit.empty(8, on="gpu")
    for use in (lambda: dgkit.empty(8, on="gpu"), there.synchronize, there.dmabuf):
        said = in_a_forked_child(lambda use=use: error_of(use))
        assert said.startswith("DeviceUnavailable")
        assert "spawn" in said
    assert in_a_forked_child(lambda: dgkit.empty(8, on="auto").place) == "host"
    there.close()


def test_a_forked_child_that_lets_go_leaves_the_parents_memory(capfd):
    there = dgkit.empty(8, on="gpu")
    there.array.fill(5)

    def drop():
        there.close()
        gc.collect()
        return "dropped"

    assert in_a_forked_child(drop) == "dropped"
    assert there.array.get().tolist() == [5] * 8
    assert capfd.readouterr().err == ""
    there.close()
