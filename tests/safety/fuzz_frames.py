# SPDX-License-Identifier: Apache-2.0
"""Damaged frames of each layer for a kernel of the emulated GPU, which must go on answering pings.

    python fuzz_frames.py --minutes 20 [--frames 20000] [--json FILE]

A round starts gpunetio_ping in a namespace, sends it frames of a seed, pings it, and ends the
program. It fails if there is no answer, if the program does not end by the signal, or if one of
these steps makes no progress for 20 s; however slow the machine is, a round may go on.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.doca.ethernet import has_network, run
from support.doca.gpunetio_samples import build, environment
from support.processes import cli


def main() -> int:
    """Run rounds until the time is over; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--frames", type=int, default=20000, help="frames of a round")
    parser.add_argument("--seed", type=int, default=1, help="of the first round")
    parser.add_argument("--json", type=Path, help="file for the verdict")
    options = parser.parse_args()
    if not has_network():
        parser.error("no network namespace with a TAP device: run as root, with /dev/net/tun")
    with tempfile.TemporaryDirectory() as folder:
        verdict = rounds(Path(folder), options)
    print(json.dumps(verdict))
    if options.json:
        options.json.write_text(json.dumps(verdict), "utf-8")
    return 1 if verdict["failed"] else 0


def rounds(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Return the number of rounds and frames, and what failed with its seed."""
    nvcc = folder / "nvcc"
    nvcc.write_text(
        f'#!/bin/sh\nexec {shlex.join(map(str, cli.command("softdoca", "nvcc")))} "$@"\n'
    )
    nvcc.chmod(0o700)
    program = build(folder / "samples", str(nvcc), target="gpunetio_eth") / "gpunetio_ping"
    end, seed, failed = time.monotonic() + 60 * options.minutes, options.seed, []
    while time.monotonic() < end and not failed:
        # Built for the emulated GPU, which softdoca takes only where CUDA shows no other.
        env = environment() | {"DGKIT_SEED": str(seed), "CUDA_VISIBLE_DEVICES": ""}
        limit = 120 + options.frames / 20  # at low priority 20,000 frames took 96 s
        try:
            seen = run("damaged", options.frames, program, env=env, timeout=limit)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            seen = {"right": 0, "code": None, "error": str(error)}
        if seen["right"] != 1 or seen["code"] != 0:
            failed.append({"seed": seed, **seen})
        seed += 1
    done = seed - options.seed
    return {"rounds": done, "frames": done * options.frames, "failed": failed}


if __name__ == "__main__":
    sys.exit(main())
