# SPDX-License-Identifier: Apache-2.0
"""Cost of a fleet: a sweep of software pairs against the same work without Dask; jobs; memory.

python tests/bench/fleet.py --json FILE
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from types import SimpleNamespace

from distributed import Client, LocalCluster
from fleet_processes import local_cluster, simulated_cluster

sys.path.insert(0, str(Path(__file__).parent.parent))  # tests, for support

from support import json_lines
from support.processes.waiting import until

import dgkit
from dgkit.errors import PeerLost
from dgkit.fleet import Fleet, Sweep, demo_cluster, diff
from dgkit.fleet.pair_measurement import measure_session
from dgkit.fleet.pair_plugin import PairPlugin
from dgkit.fleet.row_table import KEY, RowTable, as_table
from dgkit.report import Machine

SIZES, OPS, COUNT, SECONDS = (64, 4096, 65536, 1 << 20), ("write", "read"), 10_000, 0.2


class NoSession:
    """Session of a simulated pair: it measures nothing, and takes the time that it is told."""

    owned_pid = 0

    def __init__(self, number: int) -> None:
        side = {"machine": f"node{number}", "pid": number, "provider": "soft", "engine": ""}
        self.info = {
            "host": side, "dpu": side, "role": "host", "owned": True, "address": "",
        }  # fmt: skip
        self._p50_ns = 1000 + number % 50 + 500 * (number % 97 == 3)  # every 97th is a straggler

    def stats(self) -> dict[str, int]:
        """Return no counters."""
        return {}

    @contextlib.contextmanager
    def empty(self, _size: int, *, on: str, name: str) -> Iterator[SimpleNamespace]:
        """Give no region."""
        yield SimpleNamespace(place=on, name=name)

    def latency(
        self, _region: object, size: int, op: str, count: int, path: str, **_: object
    ) -> SimpleNamespace:
        """Return a latency that depends on the size and the pair."""
        p50 = self._p50_ns + size // 10
        return SimpleNamespace(
            op=op, path=path, size=size, provider="soft", label="software DPU", p50_ns=p50,
            p99_ns=2 * p50, percentiles=SimpleNamespace(n=count, max_ns=3 * p50), floor_ns=(900,),
            floor_moved=False,
        )  # fmt: skip

    def bandwidth(
        self, _region: object, size: int, _op: str, seconds: float, *_: object, **__: object
    ) -> SimpleNamespace:
        """Take `seconds`, without the CPU."""
        time.sleep(seconds)
        rate = size / (self._p50_ns + size // 10)
        return SimpleNamespace(gb_per_s=rate, floor_gb_per_s=(11.0,), failed=0, floor_moved=False)

    def close(self) -> None:
        """Nothing is open."""


class Simulated(PairPlugin):
    """Workers that are machines of their own, without a DPU process."""

    def open_session(self) -> NoSession:
        """Return a session that measures nothing."""
        return NoSession(int(self._worker_name))

    def machine(self) -> str:
        """Return another machine for each worker."""
        return f"machine {self._worker_name}"


def rss_mb(pid: int | str = "self") -> float:
    """Return a process's resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def alone(pairs: int) -> float:
    """Return the seconds that the pairs take one after the other, without Dask."""
    total = 0.0
    for _ in range(pairs):
        with dgkit.connect() as session:
            start = time.perf_counter()
            for op in OPS:
                measure_session(session, op, "auto", SIZES, "host", COUNT, SECONDS)
            total += time.perf_counter() - start
    return total


def in_fleet(pairs: int, folder: Path) -> float:
    """Return the seconds of a sweep of the same, with its files."""
    with demo_cluster.local(pairs) as client, Fleet(client) as fleet:
        start = time.perf_counter()
        done = fleet.sweep(SIZES, OPS, count=COUNT, seconds=SECONDS, folder=folder)
        took = time.perf_counter() - start
        assert (done.rows, done.failures) == (done.total, ())
    return took


def sweep(pairs: int) -> dict[str, float]:
    """Return the times of a sweep, and of the same work without Dask before and after it."""
    before = alone(pairs)
    with tempfile.TemporaryDirectory() as folder:
        together = in_fleet(pairs, Path(folder))
    after = alone(pairs)
    return {
        "pairs": pairs, "alone_before_s": before, "fleet_s": together, "alone_after_s": after,
        "ratio": 2 * together / (before + after),
    }  # fmt: skip


def nothing(_session: object) -> int:
    """Return at once."""
    return 0


def cpu_s(pid: int) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Meter:
    """Wall and processor time of a part, per job and process."""

    def __init__(self, scheduler: int, workers: list[int]) -> None:
        self._pids = {"client": [os.getpid()], "scheduler": [scheduler], "workers": workers}
        self.start()

    def start(self) -> None:
        """Begin a part."""
        self._wall = time.perf_counter()
        self._cpu = {name: sum(map(cpu_s, pids)) for name, pids in self._pids.items()}

    def figures(self, jobs: int) -> dict[str, float]:
        """Return milliseconds for each of the part's jobs."""
        took = time.perf_counter() - self._wall
        cpu = {name: sum(map(cpu_s, pids)) - self._cpu[name] for name, pids in self._pids.items()}
        return {"jobs": jobs, "took_s": took, "wall_ms_a_job": 1e3 * took / jobs} | {
            f"cpu_ms_a_job_{name}": 1e3 * used / jobs for name, used in cpu.items()
        }


def simulated(pairs: int) -> dict[str, object]:
    """Return what the fleet costs for many simulated pairs, each a machine of its own.

    Empty jobs; a sweep of which each job takes a second of no work, with its files; ten seconds of
    no job; memory; and the time of a heat map of all of them.
    """
    with simulated_cluster(pairs) as (address, scheduler, workers), Client(address) as client:
        meter = Meter(scheduler, workers)
        fleet = Fleet(client, _plugin=Simulated())
        found: dict[str, object] = {"pairs": pairs, "start": meter.figures(pairs)}
        assert len(fleet.usable) == pairs
        meter.start()
        for _ in range(3):
            assert list(fleet.map(nothing).values()) == [0] * pairs
        found["empty_jobs"] = meter.figures(3 * pairs)
        meter.start()
        with tempfile.TemporaryDirectory() as folder:
            done = fleet.sweep(SIZES, OPS, seconds=0.25, folder=Path(folder) / "sweep")
        assert (done.rows, done.failures) == (pairs * len(SIZES) * len(OPS), ())
        found["sweep_of_jobs_of_1_s"] = meter.figures(pairs * len(OPS))
        meter.start()
        time.sleep(10)
        found["idle_10_s"] = meter.figures(pairs)
        found["memory_mb"] = {
            "client": rss_mb(), "scheduler": rss_mb(scheduler),
            "a_worker": sum(map(rss_mb, workers)) / pairs,
        }  # fmt: skip
        found["heat_map_ms"] = heat_map_ms(done)
        fleet.close()
    return found


def heat_map_ms(done: Sweep) -> dict[str, float]:
    """Return the median time of the cells of a heat map, sorted anew."""
    cells = []
    for _ in range(11):
        done._rows._frame = None  # as after a new row
        start = time.perf_counter()
        found = done.cells("p50_ns")
        cells.append(1e3 * (time.perf_counter() - start))
    return {"cells": found.size, "kernel": median(cells)}


def _pid(_session: object) -> int:
    return os.getpid()


def faults(pairs: int) -> dict[str, object]:
    """Return what _faults() finds, in a folder for it."""
    with tempfile.TemporaryDirectory() as folder:
        return _faults(pairs, Path(folder))


def _faults(pairs: int, folder: Path) -> dict[str, object]:
    """Return the rows of a sweep that was disturbed, compared with those of one that was not.

    A worker is killed after the first rows, another one is stopped for ten seconds, and when half
    of the rows are there the scheduler is killed with all workers; the sweep goes on from its
    folder on a new cluster.
    """
    plan = {"sizes": SIZES, "ops": OPS, "count": 2000, "seconds": 0.1}
    found: dict[str, object] = {"pairs": pairs, "rows_planned": pairs * len(SIZES) * len(OPS)}
    start = time.perf_counter()
    with local_cluster(pairs) as (process, address), Client(address, timeout=30) as client:
        fleet = Fleet(client)
        calm = fleet.sweep(**plan, folder=folder / "calm")
        found["undisturbed"] = {"rows": calm.rows, "failures": len(calm.failures)}
        pids = list(fleet.map(_pid).values())
        running = fleet.start_sweep(**plan, folder=folder / "disturbed")
        until(lambda: running.rows, "the first rows", timeout=60)
        os.kill(pids[-1], signal.SIGKILL)
        os.kill(pids[-2], signal.SIGSTOP)
        time.sleep(10)
        os.kill(pids[-2], signal.SIGCONT)
        until(lambda: running.rows >= running.total // 2, "half of the rows", timeout=120)
        process.kill()
        error = ""
        try:
            running.wait(60)
        except PeerLost as lost:
            error = str(lost)
        found["killed"] = {"rows_then": running.rows, "error": error}
        fleet.close()
    files = {path: path.read_bytes() for path in (folder / "disturbed").glob("part-*")}
    with (
        local_cluster(pairs) as (_, address),
        Client(address, timeout=30) as client,
        Fleet(client) as fleet,
    ):
        done = fleet.sweep(**plan, folder=folder / "disturbed", resume=True)
    compared = diff(folder / "calm", folder / "disturbed")
    rows = done.table
    return found | {
        "resumed": {"rows": done.rows, "failures": len(done.failures)},
        "files_kept": sum(path.read_bytes() == content for path, content in files.items()),
        "files_then": len(files), "rows_twice": int(rows.duplicated(list(KEY)).sum()),
        "rows_only_in_one": int((compared["only"] != "").sum()), "rows_compared": len(compared),
        "median_latency_ratio": float(compared["latency_ratio"].median()),
        "took_s": time.perf_counter() - start,
    }  # fmt: skip


CELLS = """
import math, random, dgkit, numpy as np, pandas as pd
class Sweep:
    rows, total, done, labels, failures = 0, 1600, False, ("software DPU",), ()
    def cells(self, figure):
        kinds = pd.MultiIndex.from_product([["write", "read"], ["auto"], [64, 4096, 65536, 2**20]])
        pairs = [f"node{n}/0" for n in range(200)]
        return pd.DataFrame(np.random.uniform(0.9, 1.6, (200, 8)), pairs, kinds)
heat = dgkit.HeatMap(Sweep())
heat
"""
REDRAW = """async () => {
  const Bokeh = [window.Bokeh, ...Object.values(window.Bokeh)].find((one) =>
    one?.documents?.some?.((each) => each.get_model_by_name("cells")));
  const source = Bokeh.documents.map((one) => one.get_model_by_name("cells")).find(Boolean);
  const took = [];
  for (let n = 0; n < 30; n++) {
    const value = Float32Array.from({length: source.get_length()}, () => 0.9 + Math.random());
    const start = performance.now();
    source.data = {...source.data, value};
    await new Promise((done) => requestAnimationFrame(() => {
      const channel = new MessageChannel(); // after the frame was painted
      channel.port1.onmessage = done;
      channel.port2.postMessage(0);
    }));
    took.push(performance.now() - start);
  }
  return took;
}"""


def redraw_ms() -> dict[str, float]:
    """Return how long a page takes to draw new cells of 200 pairs, and the kernel to send them."""
    from support.jupyter.lab import lab
    from support.jupyter.page import LabPage, chromium

    with tempfile.TemporaryDirectory() as folder, lab(Path(folder)) as server, chromium() as found:
        page = LabPage(server, found).go()
        book = page.notebook("heat")
        book.cell(CELLS)
        panel = book.ready("heatmap")
        panel.scroll_into_view_if_needed()
        page.page.wait_for_selector(".dgkit-heatmap[data-drawn]")
        took = sorted(page.ask(REDRAW))
        for name, dark in (("dark", True), ("light", False)):
            page.theme(dark)
            page.shot(f"heat-map-200-{name}", panel)
        times = "sorted(__import__('timeit').repeat(heat._send_frame, number=1, repeat=30))"
        sent = sorted(1e3 * each for each in book.value(times))
        page.close()
    return {
        "pairs": 200, "cells": 1600, "page_p50": median(took), "page_max": took[-1],
        "kernel_send_p50": median(sent), "kernel_send_max": sent[-1],
    }  # fmt: skip


def peak_mb() -> float:
    """Return the most resident memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def million_rows(pairs: int = 10_000) -> dict[str, float]:
    """Return a client's memory with a million rows, and with their DataFrame."""
    fixed = {
        "op": "write", "path": "inline", "provider": "soft", "label": "software DPU",
        "samples": COUNT, "p99_ns": 200, "max_ns": 300, "floor_ns": 20.0, "gb_per_s": 10.0,
        "floor_gb_per_s": 12.0, "failed": 0, "floor_moved": False, "requested_path": "auto",
        "region": "host", "started": 1.0, "took_s": 0.1, "dgkit": dgkit.__version__,
    }  # fmt: skip
    with (
        LocalCluster(n_workers=1, dashboard_address="127.0.0.1:0", memory_limit=0) as cluster,
        Client(cluster),
    ):
        found = {"rows": 100 * pairs, "memory_mb_without_rows": rss_mb()}
        start = time.perf_counter()
        rows = RowTable()
        for number in range(pairs):
            who = {"pair": f"node{number}/0", "host": f"node{number}", "p50_ns": 90 + number % 20}
            rows.append(as_table([{**fixed, **who, "size": size} for size in range(1, 101)]))
        found |= {"memory_mb_with_rows": rss_mb(), "append_s": time.perf_counter() - start}
        start = time.perf_counter()
        frame = rows.frame()
        found |= {"memory_mb_with_table": rss_mb(), "table_s": time.perf_counter() - start}
        assert len(frame) == 100 * pairs
        return found | {"memory_mb_peak": peak_mb(), "columns": len(frame.columns)}


def main() -> None:
    """Run all parts, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--simulated", type=int, default=200, help="workers, in few processes")
    parser.add_argument("--only", choices=["sweep", "simulated", "rows", "redraw", "faults"])
    given = parser.parse_args()
    found: dict[str, object] = {
        "machine": asdict(Machine.here()), "python": sys.version, "dgkit": dgkit.__version__,
        "provider": "soft (software DPU)",
        "versions": {name: version(name) for name in ("dask", "distributed", "pandas", "pyarrow")},
    }  # fmt: skip
    parts = {
        "sweep": lambda: sweep(given.pairs), "simulated": lambda: simulated(given.simulated),
        "rows": million_rows, "redraw": redraw_ms, "faults": lambda: faults(given.pairs),
    }  # fmt: skip
    command = " ".join(sys.argv)
    for name in [given.only] if given.only else parts:
        found[name] = {"command": f"python {command}", "load_before": os.getloadavg()[0]}
        found[name] |= parts[name]()
        print(json_lines.dumps(found[name]), flush=True)
    if given.json:
        if given.only and given.json.exists():  # other parts of earlier runs
            found = json.loads(given.json.read_text(encoding="utf-8")) | found
        json_lines.write(given.json, found)


if __name__ == "__main__":
    main()
