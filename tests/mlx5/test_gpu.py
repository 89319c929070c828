# SPDX-License-Identifier: Apache-2.0
"""GPU memory with the software adapter: two processes, over the fake CUDA driver."""

import re
import subprocess
from pathlib import Path

import pytest
from support.fake_cuda.build import build
from support.processes import cli

ROOT = Path(__file__).parents[2]
REFUSED = """\
too long: Bad address
closed fd: Bad file descriptor
beyond the dma-buf: Invalid argument
another offset: Invalid argument
host address: Operation not supported
right: Invalid argument
half of it: registered
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Return the program, and the folder of the driver."""
    folder = tmp_path_factory.mktemp("gpu")
    source = ROOT / "tests/support/gpu/rdma_pair.c"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'native/src'}"]
    libraries = ["-libverbs", "-ldl"]
    made = str(folder / "rdma_pair")
    subprocess.run(["cc", *flags, "-o", made, str(source), *libraries], check=True)
    return made, build(folder)


def run(program, home, *arguments):
    """Run the program and return its lines and what it wrote to its standard error."""
    command, driver = program
    done = subprocess.run(
        cli.command("mlx5", "run", "--", command, *arguments),
        env=cli.environment(home) | {"LD_LIBRARY_PATH": str(driver)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("how", [[], ["dmabuf"]], ids=["address", "dmabuf"])
def test_two_processes_exchange_the_bytes_of_a_gpu(how, program, home):
    lines = run(program, home, *how)[0].splitlines()
    assert len([line for line in lines if line.endswith(": 0 wrong")]) == 9, lines
    statuses = dict(line.rsplit(" ", 1) for line in lines if re.search(r"[a-z] \d+$", line))
    assert statuses.pop("word") == "6"
    assert statuses.pop("fetch and add to host") == "11"  # IBV_WC_REM_OP_ERR
    assert set(statuses.values()) == {"0"}, lines
    assert len(statuses) == 10, lines
    assert "context is the program's" in lines


def test_memory_that_was_freed_ends_a_write_with_an_error(program, home):
    output, _ = run(program, home, "freed")
    assert output == "ends with remote access error\nand then Work Request Flushed Error\n"


def test_a_killed_process_ends_a_write_with_an_error(program, home):
    output, _ = run(program, home, "killed")
    assert re.fullmatch(
        r"ends with (transport retry counter exceeded|Work Request Flushed Error)\n", output
    )


def test_what_is_no_gpu_memory_is_refused(program, home):
    output, errors = run(program, home, "refusals")
    assert output == REFUSED
    assert "exceed their allocation" in errors
    assert "is not an address of CUDA memory" in errors
