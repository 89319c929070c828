# SPDX-License-Identifier: Apache-2.0
"""Random interrupts: Ctrl-C at any instant of a session's calls, for minutes.

    .cache/venv/bin/python tests/safety/interrupts.py --minutes 10
    .cache/venv/bin/python tests/safety/interrupts.py --minutes 2 --side local --json FILE
    .cache/venv/bin/python tests/safety/interrupts.py --connects 200

A timer raises KeyboardInterrupt in the main thread at a random instant of a random call, while
another thread writes and reads a region of its own without a pause. After every few interrupts the
session must move the right bytes and have all of its staging slots, and both sides must hold what
they held before: regions, monitors, memory, descriptors. The verdict is FAILED after a wrong byte,
a slot that is lost, counts that differ, another error, or a call that does not return within 30 s.
With --connects, dgkit.connect() is interrupted instead, until so many were: then this process has
its descriptors of before, and no child, not even a zombie.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MIB = 1 << 20
SIZE = 9 * MIB  # more than the staging memory
HANG_S = 30.0
CHECK_EVERY = 10  # interrupts
LATEST_S = 0.03  # of an interrupt after the start of a call
SIDES = {"remote": "dpu", "local": "host"}  # this process is the host, or the DPU


@dataclass
class Counts:
    """What a run did, and what it found."""

    side: str
    seconds: float = 0.0
    calls: int = 0
    interrupts: int = 0
    checks: int = 0
    bystander_transfers: int = 0
    wrong: int = 0
    slots_lost: int = 0
    left_behind: int = 0
    hangs: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether nothing was found."""
        return not (self.wrong or self.slots_lost or self.left_behind or self.hangs or self.errors)


class Watchdog:
    """Thread that ends the process if a call does not return within HANG_S."""

    def __init__(self, counts: Counts, report: Callable[[], None]) -> None:
        self.counts, self._report = counts, report
        self.began: dict[str, float] = {}  # by thread
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(1.0)
            now = time.monotonic()
            if any(now - began > HANG_S for began in list(self.began.values())):
                self.counts.hangs += 1
                faulthandler.dump_traceback(all_threads=True)
                if gdb := shutil.which("gdb"):
                    subprocess.run(
                        [gdb, "-p", str(os.getpid()), "-batch", "-ex", "thread apply all bt"],
                        check=False,
                    )
                self._report()
                os._exit(1)  # neither the call nor the session could be ended

    def watch(self, name: str) -> None:
        """Note that a call begins in the thread of this name."""
        self.began[name] = time.monotonic()

    def done(self, name: str) -> None:
        """Note that the thread of this name makes no call now."""
        self.began.pop(name, None)


class Bystander:
    """Thread whose writes and reads of a region of its own must not notice the interrupts."""

    def __init__(self, session: Any, counts: Counts, watchdog: Watchdog) -> None:
        self._session, self._counts, self._watchdog = session, counts, watchdog
        self._region = session.empty(SIZE)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        chance = random.Random(1)
        while not self._end.is_set():
            data = chance.randbytes(chance.choice([100, MIB, SIZE]))
            self._watchdog.watch("bystander")
            try:
                self._session.write(self._region, data)
                right = self._session.read(self._region, len(data)) == data
                digest = self._session.digest(self._region, len(data))
                right = right and digest == hashlib.sha256(data).hexdigest()
            except Exception:
                self._counts.errors.append(traceback.format_exc())
                return
            self._counts.wrong += not right
            self._counts.bystander_transfers += 3
        self._watchdog.done("bystander")

    def end(self) -> None:
        """End the thread."""
        self._end.set()
        self._thread.join(HANG_S)


def interrupt(*_: object) -> None:
    """Raise what Ctrl-C raises."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Have KeyboardInterrupt raised in the block after some seconds, if it still runs."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def calls_of(session: Any, region: Any, other: Any) -> list[Callable[[], object]]:
    """Return the calls that are interrupted."""
    large, small = b"x" * SIZE, b"x" * 100

    def cancelled() -> None:
        session.start_write(region, large).cancel()

    def polled() -> None:
        transfer = session.start_read(region, SIZE)
        while not transfer.done():
            pass

    return [
        lambda: session.write(region, large),
        lambda: session.read(region, SIZE),
        lambda: session.write(region, small),
        lambda: session.read(region, 100),
        lambda: session.start_write(region, small).wait(),
        lambda: session.write(region, large[:MIB]),
        lambda: session.read(region, MIB),
        lambda: session.copy(region, other),
        lambda: session.digest(region),
        lambda: session.latency(region, count=1000),
        lambda: session.bandwidth(region, size=64, seconds=0.01),
        session.stats,
        session.telemetry,
        cancelled,
        polled,
        *creations_of(session, region),
    ]


def creations_of(session: Any, region: Any) -> list[Callable[[], object]]:
    """Return calls that create something and close it."""

    def closed(create: Callable[[], Any]) -> Callable[[], None]:
        def call() -> None:
            with create():
                pass

        return call

    at_dpu = session.empty(MIB, on="dpu")
    creations: list[Callable[[], Any]] = [
        lambda: session.empty(MIB),
        lambda: session.empty(MIB, on="dpu"),
        lambda: session.empty(MIB, name="replaced", replace=True),
        lambda: session.register(bytearray(MIB)),
        lambda: session.monitor(region, every_s=0.01),
    ]
    if session.role == "host":
        creations.append(lambda: session.gpu_queue(at_dpu, region))
    return [closed(create) for create in creations]


def leftovers(session: Any, want: Any, lasting: set[Any]) -> str:
    """Close what the session lists; return how the counts then differ from `want`, "" if equal."""
    from support.interrupting import held

    for each in (*session.monitors, *({*session.regions} - lasting)):
        each.close()
    deadline = time.monotonic() + HANG_S / 2
    while (found := held(session)) != want:
        if time.monotonic() > deadline:
            return f"both sides hold {found}; before the interrupts {want}"
    return ""


def is_settled(session: Any) -> bool:
    """Return whether all slots of a session are free, and no request is pending."""
    from dgkit.sizes import LARGE_SLOTS

    dpu = session.dpu
    if session.role == "dpu":
        worker, pending = dpu.service._worker, ()
    else:
        worker, pending = dpu._worker, dpu.link.pending
    return worker.slots.n_free == LARGE_SLOTS and not worker.jobs and not pending


def settle(session: Any, region: Any) -> bool:
    """Wait for what interrupted calls left in progress; return False if a slot stays taken."""
    deadline = time.monotonic() + HANG_S / 2
    while time.monotonic() < deadline:
        session.read(region, 1)
        if is_settled(session):
            return True
    return False


def close_idle_copiers(session: Any) -> None:
    """Close what the service keeps for the next calls: how much depends on how threads meet."""
    if session.role == "dpu":
        for pool in (session.dpu.service._small, session.dpu.service._large):
            pool._close_idle()


def warm_up(session: Any, region: Any, calls: list[Callable[[], object]]) -> tuple[set[Any], Any]:
    """Make each call once; return the regions that last, and what both sides hold then."""
    from support.interrupting import held

    lasting = {*session.regions}
    for call in calls:
        call()
    for each in {*session.regions} - lasting:
        each.close()
    settle(session, region)
    close_idle_copiers(session)
    time.sleep(1)  # the agent notices the end of a subscription late
    return lasting, held(session)


def run(side: str, minutes: float, counts: Counts, watchdog: Watchdog) -> None:
    """Interrupt calls of a session with an agent for some minutes."""
    from support.processes.agents import agent

    import dgkit

    chance, end = random.Random(), time.monotonic() + 60 * minutes
    signal.signal(signal.SIGALRM, interrupt)
    with agent(role=SIDES[side]) as running, dgkit.connect(running.address) as session:
        region, other = session.empty(SIZE), session.empty(SIZE)
        calls = calls_of(session, region, other)
        lasting, want = warm_up(session, region, calls)
        while time.monotonic() < end and not counts.errors:
            bystander = Bystander(session, counts, watchdog)
            target = counts.interrupts + CHECK_EVERY
            while counts.interrupts < target and time.monotonic() < end and not counts.errors:
                one_call(chance.choice(calls), chance.uniform(0, LATEST_S), counts, watchdog)
            bystander.end()
            check(session, region, counts, watchdog)
            close_idle_copiers(session)
            if left := leftovers(session, want, lasting):
                counts.left_behind += 1
                counts.errors.append(left)


def connects(count: int, counts: Counts, watchdog: Watchdog) -> None:
    """Interrupt dgkit.connect(), and look at what is left of it."""
    from support.interrupting import open_files
    from support.processes.waiting import child_states, until

    import dgkit

    warnings.simplefilter("ignore")
    chance = random.Random()
    signal.signal(signal.SIGALRM, interrupt)
    dgkit.connect().close()
    want = open_files()
    while counts.interrupts < count and not counts.errors:
        latest_s = chance.choice([0.01, 0.1, 0.5])
        one_call(lambda: dgkit.connect().close(), chance.uniform(0, latest_s), counts, watchdog)
    try:
        until(lambda: not child_states(), "all children are gone")
        gc.collect()
        until(lambda: open_files() == want, f"only {want} are open")
    except AssertionError as error:
        counts.left_behind += 1
        counts.errors.append(f"{error}: {child_states()}, {open_files()}")


def one_call(call: Callable[[], object], after: float, counts: Counts, watchdog: Watchdog) -> None:
    """Make one call, which may be interrupted."""
    from dgkit.errors import PeerError

    watchdog.watch("main")
    try:
        with interrupted_after(after):
            call()
    except KeyboardInterrupt:
        counts.interrupts += 1
    except PeerError as error:
        if "interrupted" not in str(error):
            counts.errors.append(traceback.format_exc())
    except Exception:
        counts.errors.append(traceback.format_exc())
    counts.calls += 1


def check(session: Any, region: Any, counts: Counts, watchdog: Watchdog) -> None:
    """Check that the session has all of its slots, and moves the right bytes."""
    watchdog.watch("main")
    try:
        if not settle(session, region):
            counts.slots_lost += 1
            counts.errors.append("a staging slot stays taken")
            return
        data = random.randbytes(SIZE)
        session.write(region, data)
        counts.wrong += session.read(region, SIZE) != data
    except Exception:
        counts.errors.append(traceback.format_exc())
    counts.checks += 1


def main() -> int:
    """Read the command line, run, print the figures; 1 if something was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="for each side")
    parser.add_argument("--side", choices=[*SIDES, "both"], default="both")
    parser.add_argument("--connects", type=int, metavar="N", help="interrupts of connect()")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    done: list[Counts] = []

    def report() -> None:
        figures = {"ok": all(counts.ok for counts in done), "sides": [asdict(c) for c in done]}
        text = json.dumps(figures, indent=1)
        print(text, "OK" if figures["ok"] else "FAILED", sep="\n", flush=True)
        if arguments.json:
            arguments.json.write_text(text + "\n")

    sides = [*SIDES] if arguments.side == "both" else [arguments.side]
    for side in ["connect"] if arguments.connects else sides:
        done.append(Counts(side))
        start = time.monotonic()
        watchdog = Watchdog(done[-1], report)
        if arguments.connects:
            connects(arguments.connects, done[-1], watchdog)
        else:
            run(side, arguments.minutes, done[-1], watchdog)
        watchdog.done("main")
        done[-1].seconds = round(time.monotonic() - start, 1)
    report()
    return int(not all(counts.ok for counts in done))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.exit(main())
