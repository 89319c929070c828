# SPDX-License-Identifier: Apache-2.0
"""`--on` fails before a process starts; GPUs in `dgkit info`."""

import json
import threading
from dataclasses import replace

import pytest
from support.processes.waiting import until

import dgkit
from dgkit import memory
from dgkit.cli import console, info_command, main, options
from dgkit.errors import DeviceUnavailable, NativeError, OutOfMemory
from dgkit.memory.gpu_info import GpuInfo

GPU = GpuInfo(
    index=0, name="A GPU", uuid="GPU-1", pci="0000:01:00.0", total=64 << 30, free=60 << 30,
    driver="580.1", cuda="13.0", flavour="open", flavour_why="", bar1_total=128 << 30,
    bar1_free=127 << 30, bar1_why="", dma_buf=True, dma_buf_mmap=None, gpu_direct_rdma=True,
    gpu_direct_rdma_vmm=False, posix_fd=True, host_alloc_dma_buf=False, writes_ordering="owner",
)  # fmt: skip


@pytest.fixture
def no_gpu(monkeypatch):
    """A machine with no GPU, and a connect() that must not be called."""

    def none(*_, on, **__):
        raise DeviceUnavailable(19, f"no GPU for {on}: install one")

    monkeypatch.setattr(memory, "empty", none)
    monkeypatch.setattr(memory, "why_no_gpu", lambda: "no GPU: install one")
    monkeypatch.setattr(dgkit, "connect", lambda *_, **__: pytest.fail("it was started"))


@pytest.mark.parametrize("on", ["gpu", "cuda:3", "pinned"])
@pytest.mark.parametrize("command", ["demo", "bench"])
def test_without_a_gpu_it_ends_at_once_with_code_3_and_what_to_do(no_gpu, command, on, capsys):
    assert main([command, "--on", on]) == 3
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"dgkit: no GPU for {on}: install one")
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("command", ["demo", "bench"])
@pytest.mark.parametrize("on", ["moon", "cuda", "cuda:", "cuda:99999", "dpu", ""])
def test_a_place_that_there_is_not_is_wrong_usage(no_gpu, command, on, capsys):
    assert main([command, "--on", on]) == 2
    assert "is not a place: use host, pinned, gpu, cuda:N or auto" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("on", "provider"),
    [("host", "soft"), ("pinned", "soft"), ("gpu", "cuda"), ("cuda:1", "cuda"), ("auto", "cuda")],
)
def test_the_provider_is_the_one_that_reaches_the_memory(on, provider, monkeypatch):
    made = []
    monkeypatch.setattr(memory.gpu_info, "why_no_gpu", lambda: "")
    monkeypatch.setattr(
        memory, "empty", lambda *_, on: made.append(on) or memory.wrap(bytearray(1))
    )
    found = options.resolve_place(on, None)
    assert (found.provider, found.on) == (provider, "gpu" if on == "auto" else on)
    assert made == ([] if on in ("host", "auto") else [on])  # tried before anything is started
    assert bool(found.chosen) is (on == "auto")
    assert options.resolve_place(on, "cuda").provider == "cuda"


@pytest.mark.parametrize("on", ["gpu", "cuda:1"])
def test_a_provider_that_does_not_reach_the_memory_is_wrong_usage(no_gpu, on, capsys):
    assert main(["bench", "--on", on, "--provider", "soft"]) == 2
    said = "dgkit: --provider soft cannot reach GPU memory: use --provider cuda, or omit it"
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.parametrize(
    ("provider", "why", "said"),
    [(None, "no driver", "no driver"), ("soft", "", "'soft' cannot reach GPU memory")],
)
def test_auto_takes_the_host_where_it_must_and_says_why(provider, why, said, monkeypatch):
    monkeypatch.setattr(memory.gpu_info, "why_no_gpu", lambda: why)
    found = options.resolve_place("auto", provider)
    assert (found.on, found.provider) == ("host", "soft")
    assert said in found.chosen


def test_memory_that_may_be_another_side_s_is_not_tried_here(monkeypatch):
    monkeypatch.setattr(memory, "empty", lambda *_, **__: pytest.fail("it was tried"))
    monkeypatch.setattr(memory.gpu_info, "why_no_gpu", lambda: "no driver")
    assert options.resolve_place("gpu", None, local=False).provider == "cuda"
    assert options.resolve_place("auto", None, local=False).on == "auto"


def test_a_full_gpu_says_so_before_anything_is_started(monkeypatch, capsys):
    def full(*_, **__):
        raise OutOfMemory(12, "2097152 bytes requested, 0 free on cuda:0")

    monkeypatch.setattr(memory, "empty", full)
    monkeypatch.setattr(dgkit, "connect", lambda *_, **__: pytest.fail("it was started"))
    assert main(["demo", "--on", "gpu"]) == 1
    assert "0 free on cuda:0" in capsys.readouterr().err


def show(monkeypatch, gpus, why=""):
    monkeypatch.setattr(memory.gpu_info, "why_no_gpu", lambda: why)
    monkeypatch.setattr(memory, "gpus", gpus)
    return "\n".join(info_command.gpu_lines(info_command.collect_gpus()))


def test_info_shows_each_gpu_with_what_its_memory_can(monkeypatch):
    text = show(monkeypatch, lambda: [GPU, replace(GPU, index=1, name="Another")])
    for words in (
        "cuda:0  A GPU, GPU-1, at 0000:01:00.0", "60 GiB of 64 GiB free", "cuda:1  Another",
        "driver 580.1 with CUDA 13.0, open kernel modules", "BAR1 127 GiB of 128 GiB free",
        "dma-buf: yes", "mapped into the CPU: unknown", "virtual memory: no",
        "writes of other devices are ordered for: owner",
        "CuPy ", "cuda-core ",
    ):  # fmt: skip
        assert words in text
    assert "not usable" not in text


def test_info_says_why_a_figure_is_not_known(monkeypatch):
    unknown = replace(
        GPU, flavour="unknown", flavour_why="no such file", free=None, bar1_total=None,
        bar1_free=None, bar1_why="nothing tells", writes_ordering=None,
    )  # fmt: skip
    text = show(monkeypatch, lambda: [unknown], "CuPy is not installed: pip install it")
    for words in (
        "unknown kernel modules (no such file)", "BAR1 unknown (nothing tells)",
        "64 GiB, free: unknown", "are ordered for: unknown",
        "not usable: CuPy is not installed: pip install it",
    ):  # fmt: skip
        assert words in text


def test_a_gpu_that_fails_while_it_is_looked_at_is_a_fact_and_no_error(monkeypatch):
    def lost():
        raise NativeError(5, "it fell off the bus")

    assert "not usable: it fell off the bus" in show(monkeypatch, lost)


def test_info_in_json_has_the_same(monkeypatch, capsys):
    show(monkeypatch, lambda: [GPU])
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["gpu"]
    assert found["why"] == ""
    assert found["gpus"][0]["dma_buf_mmap"] is None
    assert GpuInfo(**found["gpus"][0]) == GPU
    assert set(found["libraries"]) == {"CuPy", "cuda-core", "cuda-bindings"}
    assert main(["info"]) == 0
    assert "cuda:0  A GPU" in capsys.readouterr().out


def test_who_waits_for_the_driver_is_told_so(monkeypatch):
    said = []
    told = threading.Event()
    monkeypatch.setattr(console, "say", lambda text: (said.append(text), told.set()))
    with console.notice_after("it takes long", after_s=0.0):
        assert told.wait(20)
    assert said == ["it takes long"]


def test_what_is_quick_says_nothing(capsys):
    with console.notice_after("it takes long", after_s=600.0):
        timers = [thread for thread in threading.enumerate() if "Timer" in type(thread).__name__]
        assert len(timers) == 1
    until(lambda: not timers[0].is_alive(), "the timer has ended")
    assert not capsys.readouterr().err
