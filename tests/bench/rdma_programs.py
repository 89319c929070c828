# SPDX-License-Identifier: Apache-2.0
"""Prints what RDMA programs of perftest and UCX measure, beside memcpy and UCX's shared memory.

    python tests/bench/rdma_programs.py --software        over the software adapter
    python tests/bench/rdma_programs.py --device rxe0     over an adapter, or Soft-RoCE
    python tests/bench/rdma_programs.py --json FILE       stores the figures

The programs take turns, round by round, so a machine that is slower for a while is so for all.
Server and client have two cores each where the machine has four. A latency is half of a round trip,
that of a read a whole one. What is not installed (apt install perftest ucx-utils) is left out, and
UCX's rc_x and ud_x over the software adapter where there are fewer than four cores: the NIC's
threads then wait for the time slices of those that spin, some ms a message.
Nothing here passes or fails a test: it reports.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # tests, for support

from support import json_lines

SOFTWARE = [sys.executable, "-m", "dgkit.cli", "mlx5", "run", "--"]
KIB_64 = 65536
PROGRAMS = [("ib_write_lat", 2), ("ib_send_lat", 2), ("ib_read_lat", 2), ("ib_write_bw", 8),
            ("ib_write_bw", KIB_64), ("ib_read_bw", KIB_64)]  # fmt: skip
TRANSPORTS = "rc_v", "ud_v", "rc_x", "ud_x"  # the last two: mlx5 only, by UCX's own driver


def _listens(port: int) -> bool:
    """Return whether a process listens on a TCP port (proc(5); state 0A is LISTEN)."""
    tables = (Path("/proc/net", name).read_text() for name in ("tcp", "tcp6"))
    return any(re.search(rf":{port:04X} \S+ 0A ", table) for table in tables)


def cores() -> list[list[str]]:
    """Return what keeps server and client on two cores each, if the machine has four."""
    seen, first = set(), []
    for cpu in sorted(os.sched_getaffinity(0)):
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = path.read_text() if path.exists() else str(cpu)
        if core not in seen:
            seen.add(core)
            first.append(str(cpu))
    if len(first) < 4 or not shutil.which("taskset"):
        return [[], []]
    return [["taskset", "-c", ",".join(first[at : at + 2])] for at in (0, 2)]


@contextmanager
def _server(command: list[str], env: dict[str, str], port: int) -> Iterator[None]:
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(command, env=env, stdout=output, stderr=subprocess.STDOUT) as server,
    ):
        try:
            while not _listens(port):
                if server.poll() is not None:
                    output.seek(0)
                    raise RuntimeError(f"{' '.join(command)} failed: {output.read()}")
                time.sleep(0.01)
            yield
        finally:
            server.kill()


def both(command: list[str], prefix: list[str], env: dict[str, str]) -> str:
    """Run a program as server and as client; return what the client printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    full = [*prefix, *command, "-p", str(port)]
    near, far = cores()
    with _server([*near, *full], env, port):
        done = subprocess.run(
            [*far, *full, "127.0.0.1"],
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(full)} failed: {done.stdout}{done.stderr}")
    return done.stdout


def perftest(program: str, size: int, count: int, options: list[str], prefix: list[str]) -> float:
    """Return what a program of perftest reports: typical us, millions a second, or GB/s."""
    command = [program, "-F", "-s", str(size), "-n", str(count), *options]
    text = both(command, prefix, dict(os.environ))
    row = next(x.split() for x in text.splitlines() if x.split()[:1] == [str(size)])
    if program.endswith("_lat") or size < KIB_64:
        return float(row[4])
    return float(row[3]) * 2**20 / 1e9


def ucx(test: str, size: int, count: int, transport: str, device: str, prefix: list[str]) -> float:
    """Return what ucx_perftest reports: us, the median; or GB/s. device: "" for shared memory."""
    env = {**os.environ, "UCX_TLS": transport}
    if device:
        env["UCX_NET_DEVICES"] = f"{device}:1"
    command = ["ucx_perftest", "-t", test, "-s", str(size), "-n", str(count)]
    row = both(command, prefix, env).split("Final:")[1].split()
    return float(row[1]) if test.endswith("_lat") else float(row[5]) * 2**20 / 1e9


def memcpy(size: int = KIB_64, count: int = 100, blocks: int = 20) -> float:
    """Return GB/s of copies between two buffers of 64 KiB, the best block, without the calls."""
    source, target = (ctypes.create_string_buffer(size) for _ in range(2))

    def taken(n: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            ctypes.memmove(target, source, n)
        return time.perf_counter() - start

    best = {n: min(taken(n) for _ in range(blocks)) for n in (size, 0)}
    return size * count / (best[size] - best[0]) / 1e9


def rows(args: argparse.Namespace) -> dict[tuple[str, str], Callable[[], float]]:
    """Return functions that measure, by their names and units."""
    prefix, count = SOFTWARE if args.software else [], args.count
    options = ["-x", str(args.gid_index), "-d", args.device]
    found: dict[tuple[str, str], Callable[[], float]] = {("memcpy of 64 KiB", "GB/s"): memcpy}
    if shutil.which("ib_write_lat"):
        for program, size in PROGRAMS:
            unit = "us" if program.endswith("_lat") else "M/s" if size < KIB_64 else "GB/s"
            measure = partial(perftest, program, size, count, options, prefix)
            found[f"{program}, {size:,} B", unit] = measure
    if shutil.which("ucx_perftest"):
        for test, size, unit in ("tag_lat", 8, "us"), ("tag_bw", KIB_64, "GB/s"):
            measure = partial(ucx, test, size, count, "posix", "", [])
            found[f"UCX posix, {test}, {size:,} B", unit] = measure
        crowded = args.software and not cores()[0]
        own = args.device.startswith("mlx5") and not crowded
        for name in TRANSPORTS if own else TRANSPORTS[:2]:
            measure = partial(ucx, "tag_lat", 8, count, name, args.device, prefix)
            found[f"UCX {name}, tag_lat, 8 B", "us"] = measure
    return found


def main() -> None:
    """Print a line for each program."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--software", action="store_true", help="by `dgkit mlx5 run`")
    parser.add_argument("--device", default="mlx5_0", help="the adapter")
    parser.add_argument("--gid-index", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=20000, help="messages of a round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the figures there")
    args = parser.parse_args()
    measured = rows(args)
    figures: dict[tuple[str, str], list[float]] = {row: [] for row in measured}
    load = os.getloadavg()[0]
    for _ in range(args.rounds):
        for row, measure in measured.items():
            figures[row].append(measure())
    records = []
    for (name, unit), values in figures.items():
        low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        print(f"{name}: {middle:.3g} {unit} ({low:.3g} to {high:.3g})")
        records.append({"program": name, "unit": unit, "median": middle, "quartiles": [low, high]})
    if args.json:
        about = {
            "command": "tests/bench/rdma_programs.py" + " --software" * args.software
            + f" --rounds {args.rounds} --count {args.count}",
            "machine": f"{platform.machine()}, Linux {platform.release()}, {os.cpu_count()} CPUs",
            "load": load,
        }  # fmt: skip
        json_lines.write(args.json, {**about, "rows": records})


if __name__ == "__main__":
    main()
