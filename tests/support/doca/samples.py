# SPDX-License-Identifier: Apache-2.0
"""softdoca's samples of GPU memory: built as a user does, and run as host and DPU."""

import json
import os
import subprocess
from pathlib import Path

from support.doca.gpu_memory import environment
from support.processes import cli

SOURCES = {
    "gpu_export": ["gpu_export.c", "cuda_memory.c", "sample.c"],
    "remote_copy_receiver": ["remote_copy_receiver.c", "copier.c", "sample.c"],
}
LIBRARIES = ["-ldoca_comch", "-ldoca_dma", "-ldoca_argp", "-ldoca_common", "-ldl"]


def _output(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def samples_in(folder: Path) -> Path:
    """Write the samples with `dgkit softdoca samples`, and build two of them with cc."""
    _output(*cli.command("softdoca", "samples", folder))
    home = json.loads(_output(*cli.command("softdoca", "env", "--json")))
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-DDOCA_ALLOW_EXPERIMENTAL_API", "-O2", "-Wall"]
    flags += [f"-I{home['include']}", f"-L{home['lib']}"]
    for name, sources in SOURCES.items():
        files = [folder / source for source in sources]
        _output("cc", *flags, "-o", folder / name, *files, *LIBRARIES)
    return folder


def _sample(side_of: str, program: Path, *args: object, **more: str) -> "subprocess.Popen[str]":
    command = cli.command("softdoca", "run", "--side", side_of, "--", program, *args)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, text=True, env=os.environ | more, **pipes)


def export_of_the_sample(samples: Path, folder: Path, size: int, **more: str) -> str:
    """Run gpu_export with `size` bytes, and remote_copy_receiver to write them; return its output.

    `more` is gpu_export's environment, by default one that recognizes dma-bufs."""
    files = ["--descriptor-path", folder / "descriptor", "--buffer-path", folder / "buffer"]
    text = ["--text", "from the GPU", "--size", size]
    with _sample("host", samples / "gpu_export", *files, *text, **more or environment()) as host:
        try:
            said = ""
            while "press Enter" not in said:
                line = host.stdout.readline()
                assert line, said
                said += line
            back = [*files, "--write", "--text", "from the DPU"]
            with _sample("dpu", samples / "remote_copy_receiver", *back) as dpu:
                heard, _ = dpu.communicate(timeout=60)
            assert dpu.returncode == 0, heard
            assert 'received: "from the GPU"' in heard
            said += host.communicate("\n", timeout=60)[0]
        finally:
            host.kill()
    assert host.returncode == 0, said
    assert 'the GPU\'s memory holds: "from the DPU"' in said
    return said
