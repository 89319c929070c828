#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Grade capstones in the two guests of a testbed.

    dgkit testbed up --agents wheels
    python teaching/capstone/grade.py submitted/*/capstone/capstone.ipynb

The feeder of each notebook (of the DPU's side) runs twice, as two processes of the DPU guest, of
which the one that holds the lease is killed, or paused until the other one has taken over. The
verdict is that of a trainer in the host guest, whose memory the feeders reach by RDMA alone.

A fence that is missing before the count is not found: one reliable connection of Soft-RoCE keeps
the order of writes. Lab 3 grades it.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import ctypes
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dgkit

SLOTS, BATCH, BATCHES = 4, 1024, 24
TAIL, HEAD = 0, 8
RING, EVENTS = 64, 64 + SLOTS * BATCH
SIZE = EVENTS + 16 * 256
LENGTH = 10  # seconds of a lease
PAUSED_AT = 5  # batches that are trained before the takeover: the ring is full behind them
SKEW_S = 3  # of the guests' clocks, and of a lease's whole seconds
WAIT_S = 180.0  # for one event
RUN_S = 600.0
END = "/tmp/capstone-end"

# title, points; of both runs
CHECKS = {
    "killed": {
        "each batch is trained once, and whole": 30,
        "the holder renews its lease; the other feeder waits": 15,
        "the lease is taken when it has expired": 15,
    },
    "paused": {
        "each batch is trained once, and whole": 20,
        "the old holder changes nothing more, and ends with an error": 10,
    },
}


def emit(**event: Any) -> None:
    """Print an event for `grade`, with this guest's time."""
    print(json.dumps(event | {"at": time.time()}), flush=True)


def train() -> None:
    """Run the host's side; print each lease, and in the end the losses."""
    fence = ctypes.CDLL("libatomic.so.1").atomic_thread_fence
    device = dgkit.Device("verbs")
    memory, lease = dgkit.empty(SIZE), dgkit.empty(8)
    words, lease_word = memory.array[:64].view("u8"), lease.array.view("u8")
    lease_region = device.register(lease)
    dgkit.testbed.share("lease", lease_region)
    losses: list[int] = []
    ring, seen, epoch, full = None, 0, 0, False

    def is_behind() -> bool:
        holds = len(losses) == PAUSED_AT and epoch < 2  # until another feeder has the lease
        return len(losses) < min(BATCHES, int(words[TAIL // 8])) and not holds

    def train_next() -> None:
        fence(2)  # memory_order_acquire, between the load of the count and those of the batch
        losses.append(int(memory.array[RING + len(losses) % SLOTS * BATCH :][:BATCH].sum()))
        words[HEAD // 8] = len(losses)

    deadline = time.monotonic() + RUN_S
    emit(ready=True)
    while time.monotonic() < deadline and (is_behind() or not Path(END).exists()):
        if (found := int(lease_word[0])) != seen:
            seen = found
            if found >> 48 != epoch:
                if ring:
                    with contextlib.suppress(dgkit.RegionBusy):  # of one that is paused
                        ring.close()
                if full and len(losses) == PAUSED_AT:
                    train_next()
                    # What a feeder leaves that dies in the middle of the next batch.
                    memory.array[RING + PAUSED_AT % SLOTS * BATCH :][: BATCH // 2] = 255
                ring, epoch = device.register(memory), found >> 48
                dgkit.testbed.share(f"ring-{epoch}", ring)
            emit(lease=[found >> 48, found >> 32 & 0xFFFF, found & 0xFFFFFFFF])
        if words[TAIL // 8] == PAUSED_AT + SLOTS and not full:
            full = True
            emit(full=True)
        if is_behind():
            train_next()
        else:
            time.sleep(0.001)
    emit(losses=losses, tail=int(words[TAIL // 8]))


class Run:
    """A trainer and two feeders that run; events of all in one queue."""

    def __init__(self, bed: Any, feeder: str) -> None:
        self._bed = bed
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.leases: list[tuple[list[int], float]] = []  # epoch, holder, expiry; the DPU's second
        self.before = self.leases  # those before the holder was killed or paused
        self.old = 1
        self.losses: list[int] = []
        self.tail = 0
        self._ending = False
        self.ended: dict[int, tuple[int, float, str]] = {}  # status, time, what it printed
        text = base64.b64encode(feeder.encode()).decode()
        bed.run("dpu", f"echo {text} | base64 -d > /tmp/feeder.py", check=True, timeout=60)
        bed.run("host", f"rm -f {END}", check=True, timeout=60)
        times = [float(bed.run(guest, "date +%s").stdout) for guest in ("host", "dpu")]
        self.offset = times[1] - times[0]
        self._start("host", [sys.executable, "-B", str(Path(__file__).resolve()), "--train"])
        self.until(lambda event: "ready" in event, WAIT_S)
        for number in (1, 2):
            line = f"echo $$ > /tmp/feeder{number}; exec python3 /tmp/feeder.py {number} -1"
            self._start("dpu", ["sh", "-c", line], number)

    def _start(self, guest: str, command: Sequence[str], number: int = 0) -> None:
        def follow() -> None:
            printed, other, status = b"", b"", -1
            with contextlib.suppress(TimeoutError, dgkit.TestbedError):
                for kind, content in self._bed.start(guest, command, timeout=RUN_S + 60):
                    if kind == b"d":
                        status = int(content)
                        break
                    *lines, printed = (printed + content).split(b"\n")
                    for line in lines:
                        if number == 0 and line.startswith(b"{"):
                            self.events.put(json.loads(line))
                        else:
                            other += line + b"\n"
            text = (other + printed).decode(errors="replace")[-2000:]
            self.events.put({"ended": number, "status": status, "text": text})

        threading.Thread(target=follow, daemon=True).start()

    def until(self, wanted: Any, seconds: float) -> dict[str, Any] | None:
        """Take events until one is wanted; return it, or None after that time.

        Or None once both feeders have ended: they cause no more events.
        """
        deadline = time.monotonic() + seconds
        while self._ending or not {1, 2} <= self.ended.keys():
            if (left := deadline - time.monotonic()) <= 0:
                return None
            try:
                event = self.events.get(timeout=left)
            except queue.Empty:
                return None
            if "lease" in event:
                self.leases.append((event["lease"], event["at"] + self.offset))
            elif "losses" in event:
                self.losses, self.tail = event["losses"], event["tail"]
            elif "ended" in event:
                status = event["status"], time.monotonic(), event["text"]
                self.ended[event["ended"]] = status
                if event["ended"] == 0 and not self._ending:
                    raise RuntimeError(f"the trainer in the host guest ended: {event['text']}")
            if wanted(event):
                return event
        return None

    def signal(self, holder: int, name: str) -> None:
        """Send a signal to a feeder."""
        self._bed.run("dpu", f"kill -{name} $(cat /tmp/feeder{holder})", timeout=60)

    def end(self) -> None:
        """Let the trainer end, which prints the losses."""
        self._ending = True
        self._bed.run("host", f"touch {END}", timeout=60)
        self.until(lambda event: event.get("ended") == 0, WAIT_S)


def is_epoch(number: int) -> Any:
    """Return whether an event is a lease of that epoch or a later one, as a function."""
    return lambda event: "lease" in event and event["lease"][0] >= number


def run(bed: Any, feeder: str, how: str) -> Iterator[tuple[str, str]]:
    """Run a feeder twice, end or pause the holder; yield each check and what was wrong."""
    it = Run(bed, feeder)
    try:
        _play(it, how)
    finally:
        for number in (1, 2):
            it.signal(number, "KILL")
    yield from zip(CHECKS[how], VERDICTS[how](it), strict=True)


def _play(it: Run, how: str) -> None:
    it.until(lambda event: "full" in event or is_epoch(2)(event), WAIT_S)
    held = it.leases[-1][0] if it.leases else [0, 0, 0]
    it.until(lambda event: "lease" in event, LENGTH + SKEW_S)  # renewed, or taken
    before = it.before = list(it.leases)
    old = it.old = held[1] if held[1] in (1, 2) else 1
    it.signal(old, "KILL" if how == "killed" else "STOP")
    if not before or before[-1][0][0] < 2:
        it.until(is_epoch(2), WAIT_S)
    if how == "paused":
        it.signal(old, "CONT")
        it.until(lambda event: event.get("ended") == old, 60)
    it.until(lambda event: event.get("ended") == 3 - old, WAIT_S)
    it.end()


def batches(it: Run) -> str:
    """Return what is wrong with the batches."""
    right = [(n + 1) % 256 * BATCH for n in range(BATCHES)]
    wrong = [n for n, each in enumerate(it.losses) if each != right[n]]
    if wrong:
        n = wrong[0]
        return f"batch {n} was not whole: its sum is {it.losses[n]}, not {right[n]}"
    if len(it.losses) < BATCHES:
        printed = "".join(f"\nfeeder {n}: {it.ended[n][2]}" for n in (1, 2) if n in it.ended)
        return f"{len(it.losses)} of {BATCHES} batches were announced{printed}"
    return "" if it.tail == BATCHES else f"the count is {it.tail} at the end"


def killed(it: Run) -> Iterator[str]:
    """Yield what is wrong for each check of a run whose holder was killed."""
    yield batches(it)
    fields = [lease for lease, _ in it.before]
    if len({(epoch, holder) for epoch, holder, _ in fields}) > 1:
        yield f"another feeder took the lease of one that lives (epoch, holder, expiry): {fields}"
    elif len(fields) < 2:
        yield f"the lease was not renewed for {LENGTH + SKEW_S} s: {fields}"
    else:
        yield ""
    after = [each for each in it.leases if each[0][0] >= 2]
    if not after:
        yield "nobody took the lease of the holder that was killed"
        return
    expiry, (new, taken) = max([e for _, _, e in fields], default=0), after[0]
    wrong = [lease for lease, at in it.leases if abs(lease[2] - at - LENGTH) > SKEW_S]
    if taken < expiry - SKEW_S or new[0] != 2:
        yield f"{new} was taken {expiry - taken:.0f} s before the lease had expired"
    elif wrong:
        yield f"the lease {wrong[0]} does not expire {LENGTH} s after it was written"
    else:
        yield ""


def paused(it: Run) -> Iterator[str]:
    """Yield what is wrong for each check of a run whose holder was paused."""
    yield batches(it)
    later = [lease for lease, _ in it.leases if lease[0] >= 2]
    if it.old not in it.ended:
        yield "the old holder did not end"
    elif not it.ended[it.old][0]:
        yield "the old holder ended as if all batches were its own"
    elif any(lease[1] == it.old for lease in later) or not later:
        yield f"leases after the takeover: {later}"
    else:
        yield ""


VERDICTS = {"killed": killed, "paused": paused}


def feeder_of(notebook: Path) -> str:
    """Return the text of FEEDER in a notebook, none of which runs here.

    Raises:
        ValueError: There is none.
    """
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code" and "FEEDER = " in (text := "".join(cell["source"])):
            for line in ast.parse(text).body:
                names = line.targets if isinstance(line, ast.Assign) else []
                if any(getattr(name, "id", "") == "FEEDER" for name in names):
                    text = getattr(line.value, "value", None)
                    if isinstance(text, str):
                        return text
    raise ValueError(f"{notebook} has no cell with FEEDER = a text")


def grade(bed: Any, feeder: str, kinds: Sequence[str] = tuple(CHECKS)) -> int:
    """Print each check; return the points."""
    points = 0
    for how in kinds:
        print(f"the holder is {how}:")
        for title, wrong in run(bed, feeder, how):
            got = 0 if wrong else CHECKS[how][title]
            points += got
            print(f"  {got:2} of {CHECKS[how][title]}  {title}")
            for line in wrong.splitlines():
                print(f"            {line}")
    return points


def main() -> None:
    """Grade the notebooks that are named."""
    if sys.argv[1:] == ["--train"]:
        train()
        return
    if not (bed := dgkit.testbed.running()):
        sys.exit("no testbed runs: dgkit testbed up --agents FOLDER")
    for name in sys.argv[1:]:
        print(name)
        try:
            feeder = feeder_of(Path(name))
        except (OSError, ValueError, SyntaxError, KeyError, TypeError) as error:
            print(f"0 of 90: {error!r}", flush=True)
            continue
        try:
            print(f"{grade(bed, feeder)} of 90", flush=True)
        except (RuntimeError, dgkit.DgkitError, subprocess.SubprocessError) as error:
            print(f"not graded: {error!r}", flush=True)


if __name__ == "__main__":
    main()
