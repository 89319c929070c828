# SPDX-License-Identifier: Apache-2.0
"""Processes of a simulated fleet: a scheduler, and workers as threads of few processes.

python tests/bench/fleet_processes.py scheduler | workers ADDRESS FIRST COUNT | local COUNT
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dask
from distributed import LocalCluster, Scheduler, Worker

# Each worker of Dask looks at its process by psutil twice a second: with one worker a machine that
# is nothing, with a hundred in a process it is all that the process does.
_CONFIG = {
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.worker.profile.enabled": False,
    "logging.distributed": "error",
}
_PER_PROCESS = 50


async def _scheduler() -> None:
    async with Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0") as scheduler:
        print(scheduler.address, flush=True)
        await asyncio.to_thread(sys.stdin.readline)


async def _workers(address: str, first: int, count: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for number in range(first, first + count):
            worker = Worker(address, nthreads=1, name=str(number), memory_limit=0, dashboard=False)
            await stack.enter_async_context(worker)
        print(count, flush=True)
        await asyncio.to_thread(sys.stdin.readline)


def _local(workers: int) -> None:
    with LocalCluster(
        n_workers=workers, threads_per_worker=1, host="127.0.0.1", memory_limit=0, protocol="tcp",
        dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
    ) as cluster:  # fmt: skip
        print(cluster.scheduler_address, flush=True)
        sys.stdin.readline()


@contextlib.contextmanager
def _process(*words: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """Give a process of this file and the first line that it prints; end it."""
    with subprocess.Popen(
        [sys.executable, __file__, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.stdin.close()  # ends it
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def simulated_cluster(workers: int) -> Iterator[tuple[str, int, list[int]]]:
    """Give a scheduler's address, its process id, and those of its workers' processes."""
    with _process("scheduler") as (scheduler, address), contextlib.ExitStack() as stack:
        pids = []
        for first in range(0, workers, _PER_PROCESS):
            count = min(_PER_PROCESS, workers - first)
            each = _process("workers", address, str(first), str(count))
            process, _ = stack.enter_context(each)
            pids.append(process.pid)
        yield address, scheduler.pid, pids


@contextlib.contextmanager
def local_cluster(workers: int) -> Iterator[tuple[subprocess.Popen, str]]:
    """Give the process of a scheduler with worker processes on this machine, and its address."""
    with _process("local", str(workers)) as (process, address):
        yield process, address


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))  # for the plugin of bench.fleet
    with dask.config.set(_CONFIG):
        if sys.argv[1] == "scheduler":
            asyncio.run(_scheduler())
        elif sys.argv[1] == "local":
            _local(int(sys.argv[2]))
        else:
            asyncio.run(_workers(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
