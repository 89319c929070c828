# SPDX-License-Identifier: Apache-2.0
"""softdoca's sample gpu_export: memory of a real GPU, lent by its dma-buf to another process."""

import os
import subprocess
from pathlib import Path

import pytest

from dgkit.cli.softdoca_command import _home

ROOT = Path(__file__).resolve().parents[2]
HOME = _home()
FILES = ["--descriptor-path", "descriptor", "--buffer-path", "buffer"]

pytestmark = pytest.mark.gpu


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """The two programs, built as their Makefile does it, without its need of pkg-config."""
    sources = HOME / "samples"
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-DDOCA_ALLOW_EXPERIMENTAL_API", f"-I{HOME}/include"]
    libraries = [f"-ldoca_{part}" for part in ("comch", "dma", "argp", "common")]
    for name, beside in (("gpu_export", "cuda_memory.c"), ("remote_copy_receiver", "copier.c")):
        files = [sources / f"{name}.c", sources / beside, sources / "sample.c"]
        command = ["cc", *flags, *files, f"-L{HOME}/lib", *libraries, "-ldl", "-o", tmp_path / name]
        subprocess.run(command, check=True)
    return tmp_path


@pytest.mark.parametrize("size", [100, 64 << 20])
def test_a_dpu_reads_and_writes_gpu_memory_that_a_dma_buf_names(samples: Path, size: int) -> None:
    host = ["env", "SOFTDOCA_SIDE=host", samples / "gpu_export", *FILES]
    dpu = ["env", "SOFTDOCA_SIDE=dpu", samples / "remote_copy_receiver", *FILES]
    said = ["dma-buf identity only", 'received: "of the GPU"', 'holds: "of the DPU"']
    command = [
        "sh", ROOT / "tests/native/softdoca/samples.sh", *(f"-e{text}" for text in said),
        "two", "press Enter", *host, "--text", "of the GPU", "--size", str(size),
        "then", *dpu, "--text", "of the DPU", "--write",
    ]  # fmt: skip
    environment = os.environ | {"LD_LIBRARY_PATH": f"{HOME}/lib", "SOFTDOCA_LOG": "info"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
