# SPDX-License-Identifier: Apache-2.0
"""Lab 6, Conspirator: a DPU feeds a training job from the loader's memory by DMA.

The loader, on the host's CPU, writes one batch after another into its memory. The DPU copies each
batch into a slot of the accelerator's memory, signals it, and reads the losses back. The
accelerator trains a small network. Bytes are moved by DMA; time is simulated, so that a grade does
not depend on the machine. A copy moves the second half of a batch when it starts and the first half
when it ends; a training step reads the first half when it starts and the second half when it ends.
Therefore a batch is torn whenever a copy and a training step overlap in a slot.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dma import Device, RemoteRegion
from ..memory import empty
from ..unique import Closable
from . import concepts, submission, verdict
from .verdict import expect

_ROWS, _COLUMNS = 32, 7  # shape of a batch; the last column is the label
_SIZE = _ROWS * _COLUMNS * 8  # bytes of a batch
_HALF = _SIZE // 2
_HIDDEN, _RATE = 8, 0.5
_POLLS = 500  # requests without wait() before the next one is refused
_TIMEOUT_S = 10.0
_COLUMNS_SHOWN = 64
_SLACK = 1.02  # accepted multiple of the shortest completion time


class Network:
    """A network with one hidden layer, trained by gradient descent.

    Args:
        xp: NumPy, or a library that has the same functions.
    """

    def __init__(self, xp: Any = np) -> None:
        rng = np.random.default_rng(1)
        self._xp = xp
        self.inner = xp.asarray(rng.normal(0, 0.5, (_COLUMNS - 1, _HIDDEN)))
        self.outer = xp.asarray(rng.normal(0, 0.5, _HIDDEN))

    def train(self, batch: Any) -> float:
        """Train on a batch (rows of features and a label of 0 or 1); return the loss."""
        xp, (features, labels) = self._xp, (batch[:, :-1], batch[:, -1])
        hidden = xp.tanh(features @ self.inner)
        guess = 1 / (1 + xp.exp(-xp.clip(hidden @ self.outer, -30, 30)))
        loss = -xp.mean(labels * xp.log(guess) + (1 - labels) * xp.log(1 - guess))
        error = (guess - labels) / len(labels)
        back = error[:, None] * self.outer * (1 - hidden**2)
        self.outer = self.outer - _RATE * (hidden.T @ error)
        self.inner = self.inner - _RATE * (features.T @ back)
        return float(loss)


@dataclass(frozen=True, slots=True)
class Times:
    """Durations of each batch, in milliseconds.

    Attributes:
        decode: Time in which the CPU writes the batch into the loader's memory.
        copy: Time of the copy into the accelerator's memory.
        compute: Time of the training step.
    """

    decode: tuple[int, ...]
    copy: tuple[int, ...]
    compute: tuple[int, ...]

    @classmethod
    def uniform(cls, count: int, decode: int, copy: int, compute: int) -> Times:
        """Return the times of `count` equal batches."""
        return cls((decode,) * count, (copy,) * count, (compute,) * count)

    def shortest(self, slots: int) -> int:
        """Return the shortest completion time with this number of slots."""
        ready = copied = 0
        ends = [0] * slots
        for decode, copy, compute in zip(self.decode, self.copy, self.compute, strict=True):
            ready += decode
            copied = max(ready, copied, ends[-slots]) + copy
            ends.append(max(copied, ends[-1]) + compute)
        return ends[-1]


def fed_by_cpu(times: Times, slots: int = 2) -> tuple[int, float]:
    """Return completion time and CPU share if the CPU that decodes also performs the copies.

    It copies a batch before it decodes the next one.
    """
    now = busy = 0
    ends = [0] * slots
    for decode, copy, compute in zip(times.decode, times.copy, times.compute, strict=True):
        now = max(now + decode, ends[-slots]) + copy
        busy += decode + copy
        ends.append(max(now, ends[-1]) + compute)
    return ends[-1], busy / ends[-1]


@dataclass(slots=True)
class _Span:
    """Interval of a batch in a row of the picture."""

    batch: int
    slot: int
    start: int
    end: int
    wrong: bool = False


class Dpu(submission.Served, Closable):
    """The DPU of a training job, its loader and its accelerator.

    Args:
        times: Durations of each batch.
        slots: Slots in the accelerator's memory.
        seed: Seed of the batches.
        slot_base: Address of the first slot, which differs between students: see `variants`.
        slot_size: Distance between the addresses of two slots.
    """

    methods = ("batches", "slots", "ready", "copy", "copied", "signal", "losses", "wait")

    def __init__(
        self,
        times: Times,
        slots: int = 2,
        seed: object = "example",
        *,
        slot_base: int = 0,
        slot_size: int = 1,
    ) -> None:
        self._addresses = range(slot_base, slot_base + slots * slot_size, slot_size)
        self.times, self._slots, self.now = times, slots, 0
        self.data = _batches(random.Random(f"{seed}"), len(times.copy))
        self.network = Network()
        self.spans: dict[str, list[_Span]] = {"CPU": [], "DMA": [], "accelerator": []}
        self.mistake = ""
        self.trained: list[int] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()  # the order of simultaneous events
        self._posted: list[_Span] = []
        self._signals: list[tuple[int, int]] = []
        self._written = self._copied = self._polls = 0
        self._computing: _Span | None = None
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self._allocate(stack)
            self._closing = stack.pop_all()
        self._decode()

    def _allocate(self, stack: contextlib.ExitStack) -> None:
        device = stack.enter_context(Device("soft"))

        def shared(size: int) -> tuple[Any, RemoteRegion]:
            memory = stack.enter_context(empty(size, dtype="u1"))
            region = device.register(memory, access="rw")
            stack.callback(region.close)
            remote = device.import_region(region.export())
            stack.callback(remote.close)
            return memory.array, remote

        count = len(self.data)
        self._loader, self._loader_remote = shared(count * _SIZE)
        self._slot_bytes, self._slots_remote = shared(self._slots * _SIZE)
        losses, self._losses_remote = shared(count * 8)
        self._losses = losses.view("f8")
        staging = stack.enter_context(empty(max(_SIZE, count * 8), dtype="u1"))
        self._staging = staging.array
        self._local = device.register(staging, access="rw")
        stack.callback(self._local.close)
        self._queue = stack.enter_context(device.queue(depth=4))

    def _move(self, batch: int, slot: int, start: int) -> None:
        """Copy half a batch from the loader's memory into a slot, with two DMAs."""
        source, target = batch * _SIZE + start, slot * _SIZE + start
        read = self._queue.read(self._local, self._loader_remote, size=_HALF, remote_offset=source)
        read.wait(timeout=_TIMEOUT_S)
        write = self._queue.write(self._local, self._slots_remote, size=_HALF, remote_offset=target)
        write.wait(timeout=_TIMEOUT_S)

    # Methods that the student's function calls.

    def batches(self) -> int:
        """Return the number of batches."""
        return len(self.data)

    def slots(self) -> int:
        """Return the number of slots in the accelerator's memory."""
        return self._slots

    def ready(self, batch: int) -> bool:
        """Return whether the loader has written a batch."""
        self._poll()
        return self._number("batch", batch, len(self.data)) < self._written

    def copy(self, batch: int, slot: int) -> int:
        """Start a copy of a batch into a slot; return the copy's number. Copies run in order."""
        self._number("batch", batch, len(self.data))
        slot = self._slot_at(slot)
        self._poll()
        self._posted.append(_Span(batch, slot, -1, -1))
        if len(self._posted) == self._copied + 1:
            self._start_copy()
        return len(self._posted) - 1

    def copied(self, copy: int) -> bool:
        """Return whether a copy is complete."""
        self._poll()
        return self._number("copy", copy, len(self._posted)) < self._copied

    def signal(self, batch: int, slot: int) -> None:
        """Tell the accelerator to train on the batch in a slot, after earlier signalled batches."""
        self._number("batch", batch, len(self.data))
        slot = self._slot_at(slot)
        self._poll()
        self._signals.append((batch, slot))
        if not self._computing:
            self._start_compute()

    def losses(self) -> list[float]:
        """Read the losses of all trained batches by DMA, in the order of their training."""
        self._poll()
        size = 8 * min(len(self.trained), len(self.data))
        if not size:
            return []
        self._queue.read(self._local, self._losses_remote, size=size).wait(timeout=_TIMEOUT_S)
        return [float(loss) for loss in self._staging[:size].view("f8")]

    def wait(self) -> int:
        """Sleep until a batch is written, copied or trained; return the time in milliseconds."""
        if not self._events:
            raise ValueError("wait() would not end: nothing is decoded, copied or trained")
        self._polls = 0
        self.now = self._events[0][0]
        while self._events and self._events[0][0] == self.now:
            heapq.heappop(self._events)[2]()
        return self.now

    # The parts of the machine.

    @staticmethod
    def _number(what: str, value: Any, count: int) -> int:
        if type(value) is not int or not 0 <= value < count:
            raise ValueError(f"{what} {value!r:.40} does not exist: there are {count}, from 0")
        return value

    def _slot_at(self, address: Any) -> int:
        if type(address) is not int or address not in self._addresses:
            known = ", ".join(map(str, self._addresses))
            raise ValueError(f"no slot is at {address!r:.40}: slots are at {known}")
        return self._addresses.index(address)

    def _poll(self) -> None:
        self._polls += 1
        if self._polls > _POLLS:
            raise ValueError(f"{_POLLS} requests without wait(): time passes in wait() only")

    def _after(self, duration: int, call: Callable[[], None]) -> int:
        end = self.now + duration
        heapq.heappush(self._events, (end, next(self._numbers), call))
        return end

    def _decode(self) -> None:
        """Write the decoded batch, and start decoding the next one."""
        if self.spans["CPU"]:
            start = self._written * _SIZE
            self._loader[start : start + _SIZE] = self.data[self._written].view("u1").ravel()
            self._written += 1
        if self._written < len(self.data):
            end = self._after(self.times.decode[self._written], self._decode)
            self.spans["CPU"].append(_Span(self._written, -1, self.now, end))

    def _start_copy(self) -> None:
        span = self._posted[self._copied]
        batch, slot = span.batch, span.slot
        span.start = self.now
        span.end = self._after(self.times.copy[batch], self._end_copy)
        self.spans["DMA"].append(span)
        if batch >= self._written:
            self._wrong(span, f"copies batch {batch}, which the loader has not written yet")
        waiting = [signalled for signalled, used in self._signals if used == slot]
        computing = self._computing
        if computing and computing.slot == slot:
            self._wrong(span, f"overwrites slot {slot} while batch {computing.batch} is trained")
        elif waiting:
            self._wrong(span, f"overwrites slot {slot}, where batch {waiting[0]} is to be trained")
        self._move(batch, slot, _HALF)

    def _end_copy(self) -> None:
        span = self._posted[self._copied]
        self._move(span.batch, span.slot, 0)
        self._copied += 1
        if self._copied < len(self._posted):
            self._start_copy()

    def _start_compute(self) -> None:
        batch, slot = self._signals.pop(0)
        end = self._after(self.times.compute[batch], self._end_compute)
        self._computing = span = _Span(batch, slot, self.now, end)
        self.spans["accelerator"].append(span)
        if any(copy.slot == slot for copy in self._posted[self._copied :]):
            self._wrong(span, f"starts batch {batch} while slot {slot} is being filled")
        self._read = self._slot(slot)[:_HALF].copy()

    def _slot(self, slot: int) -> Any:
        return self._slot_bytes[slot * _SIZE : (slot + 1) * _SIZE]

    def _end_compute(self) -> None:
        span = self._computing
        assert span
        whole = np.concatenate([self._read, self._slot(span.slot)[_HALF:]])
        loss = self.network.train(np.nan_to_num(whole.view("f8")).reshape(_ROWS, _COLUMNS))
        if len(self.trained) < len(self.data):
            self._losses[len(self.trained)] = loss
        self.trained.append(span.batch)
        self._computing = None
        if self._signals:
            self._start_compute()

    def _wrong(self, span: _Span, text: str) -> None:
        span.wrong = True
        row = "the DMA" if span in self.spans["DMA"] else "the accelerator"
        self.mistake = self.mistake or f"at {self.now} ms {row} {text}"

    # Results that the grader checks.

    @property
    def busy(self) -> int:
        """Milliseconds that the host's CPU was busy."""
        return sum(min(span.end, self.now) - span.start for span in self.spans["CPU"])

    def expected(self) -> list[float]:
        """Return the losses of training the batches in order, without a DPU."""
        network = Network()
        return [network.train(batch) for batch in self.data]

    @property
    def torn(self) -> bool:
        """True if a batch was trained from other bytes than its own."""
        return [float(loss) for loss in self._losses] != self.expected()

    def picture(self) -> str:
        """Return a picture of what the CPU, the DMA and the accelerator did over time.

        Each digit or letter stands for a batch; wrong batches are underlined.
        """
        scale = max(1, -(-self.now // _COLUMNS_SHOWN))
        lines = [f"{'':12} one column is {scale} ms; a digit or letter is a batch"]
        for row, spans in self.spans.items():
            cells, under = ([mark] * (self.now // scale + 1) for mark in ". ")
            for span in spans:
                start, end = span.start // scale, span.end // scale
                for at in range(start, min(max(start + 1, end), len(cells))):
                    cells[at], under[at] = _name(span.batch), "^" if span.wrong else " "
            lines.append(f"{row:12} {''.join(cells).rstrip('.')}")
            lines += [f"{'':12} {''.join(under).rstrip()}"] * ("^" in under)
        return "\n".join(lines)

    def close(self) -> None:
        """Release the memory. Idempotent."""
        self._closing.close()


def _name(batch: int) -> str:
    return "0123456789abcdefghijklmnopqrstuvwxyz"[batch % 36]


def _batches(rng: random.Random, count: int) -> list[Any]:
    """Return batches whose labels follow from the features, except for some noise."""
    made = []
    for _ in range(count):
        rows = np.array([[rng.gauss(0, 1) for _ in range(_COLUMNS)] for _ in range(_ROWS)])
        rows[:, -1] = rows[:, 0] + rows[:, 1] - rows[:, 2] + 0.3 * rows[:, -1] > 0
        made.append(np.ascontiguousarray(rows))
    return made


def example(**slots: int) -> Dpu:
    """Return the job of the lab's story: 12 batches, two slots."""
    return Dpu(Times.uniform(12, decode=3, copy=4, compute=6), **slots)


Function = Callable[..., Any]


@contextlib.contextmanager
def fed(function: submission.RemoteFunction, dpu: Dpu, *, whole: bool = True) -> Iterator[None]:
    """Run a student's feed, check the training, and yield; failures show the picture.

    Args:
        function: The student's function.
        whole: Also check that each batch was trained from its own bytes.
    """
    with dpu:
        try:
            got = function(dpu)
            _check_training(got, dpu)
            if whole:
                _check_bytes(got, dpu)
            yield
        except (verdict.WrongAnswer, submission.SubmissionFailed) as exc:
            raise verdict.WrongAnswer(f"{exc}\n{dpu.picture()}") from None


def _check_training(got: Any, dpu: Dpu) -> None:
    count = len(dpu.data)
    why = f": {dpu.mistake}" if dpu.mistake else ""
    expect(
        dpu.trained == list(range(count)),
        f"it returned at {dpu.now} ms; the batches trained by then are {dpu.trained}, "
        f"not 0 to {count - 1}{why}",
    )
    made = [float(loss) for loss in dpu._losses]
    expect(got == made, f"it returned {got!r:.80}; the losses are {made!r:.80}")


def _check_bytes(got: Any, dpu: Dpu) -> None:
    why = f": {dpu.mistake}" if dpu.mistake else ""
    right = dpu.expected()
    for batch, (loss, answer) in enumerate(zip(right, got, strict=True)):
        expect(
            loss == answer,
            f"batch {batch} was trained from wrong bytes: its loss is {answer:.6f}, that of the "
            f"loader's batch is {loss:.6f}{why}",
        )


def unlike(rng: random.Random, count: int) -> Times:
    """Return random times in which copies and training steps take about equally long."""
    copy, compute = ([rng.randrange(4, 30) for _ in range(count)] for _ in range(2))
    return Times((2,) * count, tuple(copy), tuple(compute))


def test_feed(feed: Function, **where: int) -> None:
    """Test the training and the return value of feed, regardless of the time."""
    rng, report = verdict.seeded("feed"), verdict.Report(concepts.LAB6)
    cases = {
        "one batch": ("feeding", Times.uniform(1, 3, 5, 7), 2),
        "a loader that is slower than the accelerator": (
            "training",
            Times.uniform(8, 20, 4, 6),
            2,
        ),
        "12 batches": ("overwriting", Times.uniform(12, 3, 4, 6), 2),
        "one slot": ("overwriting", Times.uniform(6, 3, 5, 7), 1),
        "batches that take unlike times": ("overwriting", unlike(rng, 14), 2),
    }
    with submission.local(feed) as (function,):
        for number, (title, (concept, times, slots)) in enumerate(cases.items()):
            with (
                report.case(title, concept, required=number == 0),
                fed(function, Dpu(times, slots, rng.random(), **where)),
            ):
                pass
    report.finish()


def check_time(dpu: Dpu) -> None:
    """Expect that all batches took hardly longer than necessary."""
    shortest = dpu.times.shortest(dpu.slots())
    taken = dpu.spans["accelerator"][-1].end
    cpu, share = fed_by_cpu(dpu.times, dpu.slots())
    expect(
        taken <= shortest * _SLACK,
        f"it took {taken} ms; {shortest} ms are enough with {dpu.slots()} slots "
        f"(fed by the CPU: {cpu} ms, {share:.0%} of the CPU)",
    )


def test_cpu_share(cpu_share: Function, ticks_per_s: int) -> None:
    """Test cpu_share on recorded clocks of a process."""
    rng, report = verdict.seeded("cpu share"), verdict.Report(concepts.LAB6)
    with submission.local(cpu_share) as (function,):
        for number, title in enumerate(("a busy process", "an idle one", "two busy threads")):
            before = {name: rng.uniform(1, 100) for name in ("wall", "user", "system")}
            wall = rng.uniform(0.5, 20)
            share = (rng.uniform(0.4, 0.9), rng.uniform(0, 0.01), rng.uniform(1.2, 2))[number]
            user = share * rng.uniform(0.2, 0.8)
            after = {
                "wall": before["wall"] + wall,
                "user": before["user"] + user * wall * ticks_per_s,
                "system": before["system"] + (share - user) * wall * ticks_per_s,
            }
            with report.case(title, "CPU share", required=number == 0):
                _check_share(function(before, after), share, before, after)
    report.finish()


def _check_share(got: Any, share: float, before: dict[str, float], after: dict[str, float]) -> None:
    spent = {name: round(after[name] - before[name], 4) for name in after}
    expect(
        type(got) in (int, float) and share - 1e-6 < got < share + 1e-6,
        f"it returned {got!r:.40}; {spent['user']} ticks of user and {spent['system']} of system "
        f"time in {spent['wall']} s are {share:.6f}",
    )
