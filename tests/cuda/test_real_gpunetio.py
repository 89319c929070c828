# SPDX-License-Identifier: Apache-2.0
"""softdoca's samples of GPUNetIO on a real GPU, without a network adapter.

They need nvcc and make. Under compute-sanitizer, where it is installed, they must have no error.
"""

import os
import shutil
from pathlib import Path

import pytest
from support.doca.ethernet import has_network, run
from support.doca.gpunetio_samples import SAMPLES, build, environment, run_pair, run_rdma

from dgkit.cli.softdoca_command import _home

pytestmark = pytest.mark.gpu

_CUDA = Path(os.environ.get("CUDA_HOME") or "/usr/local/cuda") / "bin"
TOOLS = ["memcheck", "racecheck"]


def _tool(name: str) -> str:
    """Return the path of a program of the CUDA toolkit."""
    found = shutil.which(name) or shutil.which(name, path=str(_CUDA))
    return found or pytest.skip(
        f"{name} is neither on PATH nor in {_CUDA}: install the CUDA toolkit"
    )


def _built(folder: Path, target: str, *parts: str) -> Path:
    """Build samples for this GPU by their Makefile, without its need of pkg-config."""
    home = _home()
    flags = f"-D_GNU_SOURCE -DDOCA_ALLOW_EXPERIMENTAL_API -I{home}/include -I{home}/include/ibverbs"
    parts = (*parts, "gpunetio", "verbs", "rdma", "dma", "comch", "argp", "common")
    libraries = [f"-ldoca_{part}" for part in parts]
    libraries += [f"-L{home}/lib", f"-L{home}/lib/ibverbs", "-libverbs"]
    return build(
        folder / "samples", _tool("nvcc"), "PKG_CONFIG=true",
        f"DOCA_CFLAGS=-I{home}/include", f"GPUNETIO_CFLAGS={flags}",
        f"GPUNETIO_LIBS={' '.join(libraries)}", f"GPUNETIO_ETH_LIBS={' '.join(libraries)}",
        target=target,
    )  # fmt: skip


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of GPUNetIO Verbs, DMA, RDMA and Comch."""
    return _built(tmp_path_factory.mktemp("gpunetio"), "gpunetio")


@pytest.fixture(scope="module")
def ethernet_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of GPUNetIO Ethernet."""
    return _built(tmp_path_factory.mktemp("ethernet"), "gpunetio_eth", "eth", "flow")


@pytest.mark.parametrize("name", SAMPLES)
def test_both_processes_receive_what_the_other_one_sent(samples: Path, name: str) -> None:
    count = ["--count", "20000"]
    codes, said = run_pair([samples / f"gpunetio_{name}"], count, count)
    assert codes == [0, 0], said
    assert said.count("20000 of 20000 right, 0 errors in kernels") == 2, said
    assert "emulated GPU" not in said


@pytest.mark.parametrize(("count", "size"), [(20000, 64), (16, 1 << 20)])
def test_kernels_write_read_and_answer_by_rdma(
    samples: Path, tmp_path: Path, count: int, size: int
) -> None:
    run_rdma(samples, tmp_path / "details", count, size)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", SAMPLES)
def test_compute_sanitizer_finds_nothing(samples: Path, name: str, tool: str) -> None:
    count = ["--count", "200"]
    sanitizer = [_tool("compute-sanitizer"), "--tool", tool, "--error-exitcode", "9"]
    codes, said = run_pair([*sanitizer, samples / f"gpunetio_{name}"], count, count)
    assert codes == [0, 0], said


@pytest.mark.parametrize(
    ("kind", "name", "count", "said"),
    [
        ("ping", "ping", 1024, "and 1024 echo requests, ignored 0 frames"),
        ("datagrams", "receive", 1024, "1024 datagrams, the sum of their bytes is {sum}"),
        ("frames", "send", 1024, "1024 had a time, and were sent"),
    ],
)
def test_a_kernel_sends_and_receives_packets(
    ethernet_samples: Path, kind: str, name: str, count: int, said: str
) -> None:
    if not has_network():
        pytest.skip("no network namespace with a TAP device: run as root, with /dev/net/tun")
    program = ethernet_samples / f"gpunetio_{name}"
    options = [] if name == "ping" else ["--count", count]
    seen = run(kind, count, program, *options, env=environment())
    assert said.format(**seen) in seen["said"]
    assert seen["code"] == 0
    assert seen.get("right", count) == count
    assert not seen.get("wrong")
