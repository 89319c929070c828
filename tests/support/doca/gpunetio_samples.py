# SPDX-License-Identifier: Apache-2.0
"""softdoca's samples of GPUNetIO: built by their Makefile, and run as two processes."""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.processes import cli

SAMPLES = ["put", "put_signal", "put_counter", "get", "send_receive"]
_TIMEOUT = 120.0


def environment() -> dict[str, str]:
    """Return the environment of `dgkit softdoca env`."""
    done = subprocess.run(
        cli.command("softdoca", "env", "--json"), capture_output=True, text=True, check=True
    )
    return os.environ | json.loads(done.stdout)["environment"]


def build(folder: Path, nvcc: str, *variables: str, target: str = "gpunetio") -> Path:
    """Write the samples to a folder, and build those of a target with an nvcc."""
    subprocess.run(cli.command("softdoca", "samples", folder), check=True)
    command = ["make", "-s", "-j2", "-C", folder, target, f"NVCC={nvcc}", *variables]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def start(program: Sequence[object], *arguments: str) -> "subprocess.Popen[str]":
    """Start a sample; its standard output and standard error are one pipe."""
    return subprocess.Popen(
        [*map(str, program), *arguments], env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def start_pair(
    program: Sequence[object], server: Sequence[str] = (), client: Sequence[str] = ()
) -> tuple["subprocess.Popen[str]", "subprocess.Popen[str]", str]:
    """Start a sample's server, then its client; return both, and what the server has printed."""
    first, said = start(program, "--port", "0", *server), ""
    while not (port := re.search(r"server: port (\d+)", said)):
        line = first.stdout.readline()
        assert line, f"the server ended with {first.wait()}: {said}"
        said += line
    return first, start(program, "--role", "client", "--port", port[1], *client), said


def run_pair(
    program: Sequence[object], server: Sequence[str] = (), client: Sequence[str] = ()
) -> tuple[list[int], str]:
    """Run a sample's two processes; return their exit codes and what they printed."""
    first, second, said = start_pair(program, server, client)
    try:
        heard, _ = second.communicate(timeout=_TIMEOUT)
        said += first.communicate(timeout=_TIMEOUT)[0]
    finally:
        first.kill()
        second.kill()
    return [first.wait(), second.wait()], said + heard


def run_rdma(samples: Path, details: Path, count: int, size: int) -> None:
    """Run gpunetio_rdma's two processes, which meet by a file, and check what they print."""
    program = [samples / "gpunetio_rdma", "--details-path", details]
    sizes = ["--count", str(count), "--size", str(size)]
    responder = start(program, "--role", "responder", *sizes)
    try:
        with start(program, "--role", "requester", *sizes) as requester:
            said = requester.communicate(timeout=_TIMEOUT)[0]
        said += responder.communicate(timeout=_TIMEOUT)[0]
    finally:
        responder.kill()
    assert [responder.wait(), requester.returncode] == [0, 0], said
    for role, n in ("responder", count), ("requester", count + 1):
        assert f"gpunetio_rdma, {role}: {n} of {n} right, 0 errors in kernels" in said
