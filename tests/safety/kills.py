# SPDX-License-Identifier: Apache-2.0
"""Kills: either side of a transfer is killed by SIGKILL at a random instant, thousands of times.

    .cache/venv/bin/python tests/safety/kills.py --kills 2000
    .cache/venv/bin/python tests/safety/kills.py --kills 300 --json FILE

The victim is in turn a process that exports, one that imports, a client of an agent, and the
software DPU of a session. The verdict is FAILED after a wrong byte, a transfer or a close that does
not end within 10 s, or an error of another kind than the death of a peer. Ends that took more than
a second, as on a loaded machine, are counted as `late`; after 5 s the stacks of the processes that
are left are written to stderr. The bytes are compared afterwards, which is not part of these times.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.processes.agents import Agent

MIB = 1 << 20
SIZE = 16 * MIB  # of a region
DEPTH = 8  # transfers that are posted before the kill
LATEST_S = 0.02  # of a kill after the first transfer was posted
LATE_S, STACKS_S, HANG_S = 1.0, 5.0, 10.0
GIVE_UP_S = 60.0  # a round that takes longer ends the program
PATTERN = (bytes(range(251)) * (SIZE // 251 + 1))[:SIZE]


@dataclass
class Counts:
    """What a run did, and what it found."""

    kills: int = 0
    transfers_ok: int = 0
    transfers_lost: int = 0
    late: int = 0
    slowest_s: float = 0.0
    slowest: str = ""  # which kind of victim
    wrong: int = 0
    hangs: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether nothing was found."""
        return not (self.wrong or self.hangs or self.errors)

    def took(self, victim: str, began: float) -> None:
        """Count the time from a kill until its effect was there."""
        seconds = time.monotonic() - began
        if seconds > self.slowest_s:
            self.slowest_s, self.slowest = round(seconds, 3), victim
        self.late += seconds > LATE_S
        self.hangs += seconds > HANG_S


def print_stacks(*others: int) -> None:
    """Write the stacks of this process's threads, and of other processes', to stderr."""
    faulthandler.dump_traceback(all_threads=True)
    for pid in (os.getpid(), *others):
        for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
            with suppress(OSError):  # the thread has ended
                stat = (task / "stat").read_text(encoding="utf-8").rpartition(") ")
                where = (task / "wchan").read_text(encoding="utf-8")
                print(f"{pid}: {stat[0]}) state {stat[2][0]} in {where}", file=sys.stderr)
        if gdb := shutil.which("gdb"):
            command = [gdb, "-p", str(pid), "-batch", "-ex", "thread apply all backtrace"]
            subprocess.run(command, stdout=sys.stderr, stderr=subprocess.DEVNULL, check=False)


def exporter(pipe: Connection, kind: str) -> None:
    """Victim: export a region, and wait."""
    import dgkit

    memory = bytearray(SIZE) if kind == "bytearray" else dgkit.empty(SIZE)
    view = memoryview(memory if kind == "bytearray" else memory.buffer)
    view[:] = PATTERN
    with dgkit.Device() as device:
        region = device.register(memory)
        pipe.send(region.export())
        pipe.recv()


def importer(pipe: Connection) -> None:
    """Victim: write to a region without a pause."""
    import dgkit

    with dgkit.Device() as device:
        remote = device.import_region(pipe.recv(), timeout=HANG_S)
        local = device.register(bytearray(b"\x01") * SIZE)
        queue = device.queue(path="worker", depth=DEPTH)
        pipe.send("posting")
        while True:
            posted = [queue.write(local, remote) for _ in range(DEPTH)]
            for transfer in posted:
                transfer.wait(HANG_S)


def client(pipe: Connection, address: str) -> None:
    """Victim: use an agent without a pause."""
    import dgkit

    session = dgkit.connect(address)
    region, other = session.empty(SIZE), session.empty(SIZE)
    pipe.send("connected")
    while True:
        session.write(region, PATTERN)
        session.copy(region, other)
        session.start_read(region, SIZE)


class Rounds:
    """One method for each kind of victim, and what survives of all rounds."""

    def __init__(self, counts: Counts, chance: random.Random, agent: Agent) -> None:
        import dgkit

        self._counts, self._chance = counts, chance
        self._address, self._agent = agent.address, agent.pid
        self._spawn = multiprocessing.get_context("forkserver")
        self._device = dgkit.Device()
        self._local = self._device.register(bytearray(DEPTH * SIZE))
        self._session = dgkit.connect(self._address)
        self._region = self._session.empty(SIZE)

    def kinds(self) -> list[Callable[[], None]]:
        """Return the rounds in their order."""
        return [self.exporter, self.importer, self.client, self.dpu]

    def _start(self, role: Callable[..., None], *args: object) -> tuple[Any, Connection]:
        ours, theirs = self._spawn.Pipe()
        process = self._spawn.Process(target=role, args=(theirs, *args), daemon=True)
        process.start()
        theirs.close()
        return process, ours

    def _pause(self) -> None:
        time.sleep(self._chance.uniform(0, LATEST_S))  # the instant of the kill is what is drawn

    @contextmanager
    def _killed(self, victim: str, pid: int, *others: int) -> Iterator[None]:
        """Kill a process; count the time that the block takes, in which its effect is waited for.

        `others` are processes beside this one whose stacks are written if that takes STACKS_S.
        """
        os.kill(pid, signal.SIGKILL)
        self._counts.kills += 1
        timer = threading.Timer(STACKS_S, print_stacks, others)
        timer.daemon = True
        timer.start()
        killed = time.monotonic()
        try:
            yield
        finally:
            self._counts.took(victim, killed)
            timer.cancel()

    def exporter(self) -> None:
        """Kill an exporter under queued reads and writes."""
        from dgkit import Status
        from dgkit.errors import TransferError

        process, pipe = self._start(exporter, self._chance.choice(["memfd", "bytearray"]))
        with self._device.import_region(pipe.recv(), timeout=HANG_S) as remote:
            queue = self._device.queue(path="worker", depth=DEPTH)
            memory = memoryview(self._local.memory)
            memory[:: SIZE // 64] = bytes(len(memory[:: SIZE // 64]))
            posted = [
                queue.read(self._local, remote, size=SIZE, local_offset=number * SIZE)
                for number in range(DEPTH)
            ]
            self._pause()
            moved = []  # for each transfer whether it was OK
            with self._killed("exporter", process.pid):
                for transfer in posted:
                    try:
                        transfer.wait(HANG_S)
                        moved.append(True)
                    except TransferError as error:
                        moved.append(False)
                        if error.completion.status is not Status.PEER_LOST:
                            raise
            queue.close()
        process.join()
        self._counts.transfers_ok += sum(moved)
        self._counts.transfers_lost += DEPTH - sum(moved)
        self._counts.wrong += moved != sorted(moved, reverse=True)  # OK after what was lost
        for number in range(sum(moved)):
            # Not by a memoryview, which compares byte by byte: 16 s on a loaded machine.
            self._counts.wrong += not self._local.memory.startswith(PATTERN, number * SIZE)

    def importer(self) -> None:
        """Kill an importer that writes, and use the memory for something else."""
        import dgkit

        memory = dgkit.empty(SIZE)
        region = self._device.register(memory)
        process, pipe = self._start(importer)
        pipe.send(region.export())
        pipe.recv()
        self._pause()
        with self._killed("importer", process.pid):
            region.close(timeout=HANG_S)
        memory.buffer[:] = PATTERN
        process.join()
        self._counts.wrong += memory.buffer.tobytes() != PATTERN
        memory.close()

    def client(self) -> None:
        """Kill a client of an agent that others use."""
        process, pipe = self._start(client, self._address)
        pipe.recv()
        self._pause()
        with self._killed("client", process.pid, self._agent):
            self._wait_until_gone(process.pid)
        data = self._chance.randbytes(SIZE)
        self._session.write(self._region, data)
        self._counts.wrong += self._session.read(self._region, SIZE) != data
        process.join()

    def _wait_until_gone(self, pid: int) -> None:
        """Wait until the agent has freed what the client with this pid had."""
        until = time.monotonic() + HANG_S
        while (stats := self._session.stats())["clients"] > 1 or stats["regions"] > 3:
            if time.monotonic() > until:
                state = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
                self._counts.errors.append(f"the agent has {stats}, the client is {state}")
                return

    def dpu(self) -> None:
        """Kill the software DPU of a session under transfers."""
        import dgkit

        with dgkit.connect() as session:
            region = session.empty(SIZE)
            data = self._chance.randbytes(SIZE)
            session.write(region, data)
            started = [session.start_read(region, SIZE) for _ in range(DEPTH)]
            self._pause()
            moved = []
            with self._killed("dpu", session.owned_pid):
                for transfer in started:
                    try:
                        transfer.wait(HANG_S)
                        moved.append(transfer)
                    except (dgkit.PeerLost, dgkit.TransferError):
                        self._counts.transfers_lost += 1
            self._counts.transfers_ok += len(moved)
            self._counts.wrong += sum(transfer.data != data for transfer in moved)


def run(kills: int, seed: int, counts: Counts) -> None:
    """Kill until the count is reached or something was found."""
    from support.processes.agents import agent

    multiprocessing.set_forkserver_preload(["numpy", "dgkit", "dgkit.session"])
    with agent() as running:
        rounds = Rounds(counts, random.Random(seed), running)
        while counts.kills < kills and counts.ok:
            for each in rounds.kinds():
                faulthandler.dump_traceback_later(GIVE_UP_S, exit=True)
                try:
                    each()
                except Exception:
                    counts.errors.append(f"{each.__name__}: {traceback.format_exc()}")
                    break
        faulthandler.cancel_dump_traceback_later()
        rounds._session.close()
        rounds._device.close()


def main() -> int:
    """Read the command line, kill, print the figures; 1 if something was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 30))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    counts, start = Counts(), time.monotonic()
    run(arguments.kills, arguments.seed, counts)
    seconds = round(time.monotonic() - start, 1)
    report = {"ok": counts.ok, "seed": arguments.seed, "seconds": seconds, **asdict(counts)}
    report["load"] = [round(load, 1) for load in os.getloadavg()]
    text = json.dumps(report, indent=1)
    print(text, "OK" if counts.ok else "FAILED", sep="\n")
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return int(not counts.ok)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
