# SPDX-License-Identifier: Apache-2.0
"""Fuzzers of what others send: descriptors, packets, messages, connections, files, entries.

    tests/run fuzz                  about half a minute, as in CI
    tests/run fuzz --hours 2        by hand

The C programs of tests/native/fuzz run under libFuzzer with AddressSanitizer and
UndefinedBehaviorSanitizer; messages to an agent and files come from hypothesis, connections over
TCP from fuzz_zmtp.py, ranks and agents of NCCL from fuzz_nccl.py, NICs from fuzz_nic_peers.py,
commands to the software adapter from fuzz_mlx5.py. Each fuzzer gets the same share of the time.
An input that fails is kept in .cache/fuzz and named.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
PROGRAMS = CACHE / "build/fuzz/tests/fuzz"
WORK = CACHE / "fuzz"
BATCH = 50  # examples of hypothesis between two looks at the clock


def build() -> bool:
    """Build the C fuzzers; False if this machine has no Clang with libFuzzer."""
    from support.processes import programs

    if missing := programs.missing(["clang"]):
        print(f"the C fuzzers do not run: they need {missing}")
        return False
    for command in (["cmake", "--preset", "fuzz"], ["cmake", "--build", "--preset", "fuzz"]):
        done = subprocess.run(
            command, cwd=ROOT / "native", capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return True


def libfuzzer(name: str) -> Callable[[float], str]:
    """Return a function that runs one C fuzzer for some seconds and returns its figures."""

    def run(seconds: float) -> str:
        corpus = WORK / name
        corpus.mkdir(parents=True, exist_ok=True)
        command = [PROGRAMS / f"fuzz_{name}", f"-max_total_time={max(1, round(seconds))}"]
        command += ["-timeout=20", "-max_len=2048", "-print_funcs=0", "-print_final_stats=1"]
        command += ["-rss_limit_mb=4096", f"-artifact_prefix={WORK}/{name}-", corpus]
        done = subprocess.run(
            [*map(str, command)], capture_output=True, text=True, check=False, errors="replace"
        )
        if done.returncode:
            raise AssertionError(f"fuzz_{name} ended with {done.returncode}:\n{done.stderr}")
        runs = re.search(r"number_of_executed_units: (\d+)", done.stderr)
        covered = re.findall(r"cov: (\d+)", done.stderr)
        assert runs is not None
        return f"{int(runs[1]):,} inputs, {covered[-1] if covered else 0} edges covered"

    return run


def batches(batch: Callable[[int, int], None], seconds: float) -> str:
    """Run batches of hypothesis with new seeds until the time is over."""
    end, seed = time.monotonic() + seconds, int.from_bytes(os.urandom(4), "little")
    count = 0
    while count == 0 or time.monotonic() < end:
        try:
            batch(seed + count, BATCH)
        except BaseException:
            print(f"seed {seed + count}, {BATCH} examples", file=sys.stderr)
            raise
        count += 1
    return f"{count * BATCH:,} examples"


def messages(seconds: float) -> str:
    """Send malformed and unusual requests to agents; the next client must be served.

    One is the DPU, the other the host of sessions between two agents.
    """
    from safety import fuzz_messages

    with fuzz_messages.agent() as dpu, fuzz_messages.agent(role="host") as host:
        sides = itertools.cycle((dpu, host))
        return batches(lambda seed, n: fuzz_messages.batch(next(sides), seed, n), seconds)


def zmtp(seconds: float) -> str:
    """Damage connections between a client and an agent over TCP; neither process may end."""
    from safety import fuzz_zmtp

    return fuzz_zmtp.run(seconds, int.from_bytes(os.urandom(4), "little"))


def files(seconds: float) -> str:
    """Read sweeps, notebooks and messages of submissions that are damaged: only ValueErrors."""
    from safety import fuzz_files

    return batches(fuzz_files.batch, seconds)


def keys(seconds: float) -> str:
    """Read and change damaged key files; only typed errors may come of it."""
    from safety import fuzz_keys

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CONFIG_HOME"] = folder
        return batches(fuzz_keys.batch, seconds)


def nccl(seconds: float) -> str:
    """Connect a rank of NCCL's plugin to a hostile one, and to a hostile agent."""
    from safety import fuzz_nccl

    return batches(fuzz_nccl.batch, seconds)


def nic_peers(seconds: float) -> str:
    """Connect queue pairs of a software NIC to a hostile process."""
    from safety import fuzz_nic_peers

    return batches(fuzz_nic_peers.batch, seconds)


def mlx5(seconds: float) -> str:
    """Give the software adapter damaged commands, as a program without libibverbs may."""
    from safety import fuzz_mlx5

    return batches(fuzz_mlx5.batch, seconds)


PYTHON: dict[str, Callable[[float], str]] = {
    "messages": messages, "zmtp": zmtp, "keys": keys, "files": files, "nccl": nccl,
    "nic_peers": nic_peers, "mlx5": mlx5,
}  # fmt: skip
C = ("descriptor", "share", "nic")


def main() -> int:
    """Read the command line, run the fuzzers, print their figures; 1 if one found a failure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=1 / 120, help="time in all (half a minute)")
    parser.add_argument("only", nargs="*", help=f"{', '.join((*PYTHON, *C))} (default: all)")
    arguments = parser.parse_args()
    fuzzers = dict(PYTHON)
    if not set(C).isdisjoint(arguments.only or C) and build():
        fuzzers |= {name: libfuzzer(name) for name in C}
    fuzzers = {n: run for n, run in fuzzers.items() if n in (arguments.only or fuzzers)}
    if os.environ.get("CI") == "true" and len(fuzzers) < len(PYTHON) + len(C):
        sys.exit("CI runs all fuzzers")
    failed = 0
    for name, run in fuzzers.items():
        start = time.monotonic()
        try:
            figures = run(arguments.hours * 3600 / len(fuzzers))
        except Exception as error:
            failed, figures = 1, f"FAILED: {type(error).__name__}: {error}"
        print(f"{name:<11} {time.monotonic() - start:7.0f} s  {figures}", flush=True)
    return failed


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    sys.exit(main())
