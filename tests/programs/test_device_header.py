# SPDX-License-Identifier: Apache-2.0
"""The header that kernels include: the same constants as elsewhere, and every compiler takes it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.gpu import nvrtc
from support.gpu.queue_kernels import KERNELS

from dgkit import Status
from dgkit.dma import gpu_queue
from dgkit.gpu_initiated import kernel_benchmark
from dgkit.gpu_initiated.compiler import include_dir, translate

TUTORIAL = Path(__file__).parents[2] / "notebooks/tutorials/08_gpu_initiated.ipynb"


def tutorial_kernels() -> str:
    """Return the CUDA source in the tutorial about GPU-initiated transfers."""
    cells = json.loads(TUTORIAL.read_text())["cells"]
    (source,) = ["".join(cell["source"]) for cell in cells if cell["id"] == "kernels"]
    found = re.search('KERNELS = r"""(.*?)"""', source, re.DOTALL)
    assert found
    return found[1]


NATIVE = Path(__file__).parents[2] / "native"
DEVICE = (NATIVE / "gpu_initiated/dgkit_device.cuh").read_text()
PUBLIC = (NATIVE / "dgkit.h").read_text()
SHIMS = "#define DG_NUMBA\n#include <dgkit_device.cuh>\n"
# As a library: otherwise a function that no kernel calls is left out.
OPTIONS = ["--std=c++17", "--device-c", f"-I{include_dir()}"]
SOURCES = {"kernels": KERNELS, "Numba": SHIMS, "measure": kernel_benchmark.KERNELS}
SOURCES["tutorial"] = tutorial_kernels()


def enum(text: str, name: str) -> dict[str, int]:
    """Return the enumerators of a C enum that gives each its value."""
    body = re.search(rf"enum {name} \{{(.*?)\}};", text, re.DOTALL)
    assert body, name
    code = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)
    pairs = [item.split("=") for item in code.split(",") if item.strip()]
    return {key.strip(): int(value, 0) for key, value in pairs}


def constant(name: str) -> int:
    found = re.search(rf"#define {name}\s+(\d+)", DEVICE)
    assert found, name
    return int(found[1])


def test_statuses_are_the_same_for_kernels_for_c_and_for_python():
    statuses = enum(DEVICE, "dg_status")
    assert statuses == enum(PUBLIC, "dg_status")
    assert statuses == {f"DG_{status.name}": status.value for status in Status}


def test_what_a_kernel_shares_with_c_and_python_has_the_same_values():
    fence = enum(DEVICE, "dg_gpu_fence")
    assert fence.items() <= enum(PUBLIC, "dg_wr_flag").items()
    flags = [*fence.values(), *enum(DEVICE, "dg_gpu_flag").values()]
    assert len(set(flags)) == len(flags)
    ops = enum(DEVICE, "dg_gpu_opcode")
    assert {f"DG_OP_{op.upper()}": i for i, op in enumerate(gpu_queue._OPS)} == ops
    limits = constant("DG_RING_DEPTH_MIN"), constant("DG_RING_DEPTH_MAX")
    assert limits == (gpu_queue._DEPTH_MIN, gpu_queue._DEPTH_MAX)
    assert (1 << constant("DG_SEQUENCE_BITS")) - 1 == gpu_queue.TICKET_MAX


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("major", "arch"), [(12, 70), (12, 90), (13, 75), (13, 90)])
def test_nvrtc_takes_it_without_a_warning(major: int, arch: int, source: str):
    ptx = nvrtc.compile_ptx(major, SOURCES[source], [*OPTIONS, f"-arch=compute_{arch}"])
    assert f".target sm_{arch}" in ptx
    # Rule 1: the release at system scope precedes the record, whose words go two a store.
    released = [part for part in re.split(r"\.(?:entry|func) ", ptx) if "fence.acq_rel.sys" in part]
    assert released
    for part in released:
        assert part.index("fence.acq_rel.sys") < part.index("st.relaxed.sys.v2.u64")
    assert "ld.acquire.sys.u64" in ptx


def test_nvrtc_refuses_a_gpu_that_it_is_not_for():
    with pytest.raises(nvrtc.CompileError, match=r"compute capability 7\.0 or later"):
        nvrtc.compile_ptx(12, SHIMS, [*OPTIONS, "-arch=compute_60"])


DOCA = ("buf", "comch", "dma", "rdma", "eth_rxq", "eth_txq", "sem", "verbs_onesided")


@pytest.mark.parametrize("major", [12, 13])
@pytest.mark.parametrize("part", DOCA)
def test_nvrtc_takes_each_header_of_softdoca(major: int, part: str):
    source = f"#include <doca_gpunetio_dev_{part}.cuh>"
    options = ["--std=c++17", "-arch=compute_90", f"-I{NATIVE / 'softdoca/include'}"]
    assert ".target sm_90" in nvrtc.compile_ptx(major, source, options)


RECEIVES = """#include <doca_gpunetio_dev_rdma.cuh>
extern "C" __global__ void wait(doca_gpu_dev_rdma_r *receives, uint32_t *n, uint32_t *values)
{
    doca_gpu_dev_rdma_recv_wait_all(receives, DOCA_GPU_RDMA_RECV_WAIT_FLAG_B, n, values);
    doca_gpu_dev_rdma_recv_wait_all(receives, DOCA_GPU_RDMA_RECV_WAIT_FLAG_B, n, values, nullptr);
}
"""


def test_receives_are_waited_for_with_and_without_their_connections():
    options = ["--std=c++17", "-arch=compute_90", f"-I{NATIVE / 'softdoca/include'}"]
    assert ".entry wait" in nvrtc.compile_ptx(13, RECEIVES, options)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_a_cpp_compiler_takes_it_without_a_warning(compiler: str, source: str):
    if not shutil.which(compiler):
        compiler = "c++"
    strict(compiler, "c++", translate(SOURCES[source]), "-std=c++17")


@pytest.mark.parametrize(("language", "standard"), [("c", "c11"), ("c++", "c++17")])
def test_the_layout_alone_is_c_and_cpp(language: str, standard: str):
    source = '#include "dgkit.h"\n#include <dgkit_device.cuh>\n'
    strict("cc" if language == "c" else "c++", language, source, f"-std={standard}")
    strict("cc" if language == "c" else "c++", language, source[19:], f"-std={standard}")


def strict(compiler: str, language: str, source: str, *options: str) -> None:
    """Compile a source whose warnings are errors."""
    done = subprocess.run(
        [compiler, *options, "-Wall", "-Wextra", "-Wno-unused-function", "-Werror",
         "-fsyntax-only", f"-I{NATIVE}", f"-I{include_dir()}", "-x", language, "-"],
        input=source, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
