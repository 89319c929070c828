# SPDX-License-Identifier: Apache-2.0
"""Lab 4, how fast is fast: latency, rate and queue depth of a device, measured and predicted.

The device and its times are simulated, with parameters from the seed, so that a grade does not
depend on the machine. A transfer takes a base latency plus a time for each byte. The engine starts
transfers one after another, with at least a certain gap between two starts. A transfer is
occasionally delayed by an interrupt. Its clock has a number of ticks in a microsecond that differs
between students: see `variants`.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import concepts, submission, verdict
from .verdict import expect

TICKS_PER_US = 1000
MAX_DEPTH, MAX_SIZE = 256, 1 << 20
OPERATIONS = 20_000  # number of operations after which a device refuses more
_COLD, _COLD_FACTOR = 100, 4  # number of cold transfers at the start, and their slowdown
_JITTER = 0.03
_INTERRUPTS, _INTERRUPT_NS = 0.04, (4000, 8000)  # share of the transfers; nanoseconds
_SAMPLES = 30_000  # number of samples that the grader takes
_GRADED, _DRAWN = 8000, 1000  # operations of one measurement: by the grader, for a picture
_BAR = 40  # width in columns
_PLAIN = 10_000  # operations that a plain solution uses to explore
_LIMITS = (0.3, 0.1)  # relative errors of a prediction that are accepted


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a device, in nanoseconds.

    Attributes:
        floor: Result of timing an empty operation: the time of the call and the clock.
        base: Time of a transfer of 0 bytes.
        byte: Time of each byte.
        gap: Minimum time between the starts of two transfers.
    """

    floor: float
    base: float
    byte: float
    gap: float

    @classmethod
    def random(cls, rng: random.Random) -> Parameters:
        """Return parameters that are typical of a DMA engine behind PCIe."""
        return cls(
            floor=rng.uniform(300, 900),
            base=rng.uniform(2000, 6000),
            byte=1 / rng.uniform(5, 25),
            gap=rng.uniform(80, 300),
        )

    def latency(self, size: int) -> float:
        """Return the mean latency of a transfer while no other transfer is in flight."""
        return self.base + self.byte * size + _INTERRUPTS * sum(_INTERRUPT_NS) / 2

    def occupied(self, size: int) -> float:
        """Return the time between the starts of two transfers when many are in flight."""
        return max(self.gap, self.byte * size)

    def knee(self, size: int) -> float:
        """Return the queue depth beyond which the rate does not grow, by Little's law."""
        return self.latency(size) / self.occupied(size)


class Device(submission.Served):
    """A simulated device, and the loops that measure it.

    Args:
        seed: Seed of its noise.
        ticks_per_us: Ticks of its clock in a microsecond.
    """

    methods = ("nothing", "transfers", "elapsed")

    def __init__(
        self, made: Parameters, seed: object = 0, *, ticks_per_us: int = TICKS_PER_US
    ) -> None:
        self.parameters, self.used = made, 0
        self._ticks_per_us = ticks_per_us
        self._rng = random.Random(f"{seed}")
        self._warmth = 0  # transfers so far

    def nothing(self, count: int) -> list[int]:
        """Time an empty operation `count` times, in ticks. The clock itself takes time."""
        self._check("count", count, 1, OPERATIONS)
        self._use(count)
        return [self._ticks(self._noisy(self.parameters.floor)) for _ in range(count)]

    def transfers(self, size: int, count: int) -> list[int]:
        """Time transfers, one after another; return ticks. The first ones are cold."""
        self._check("size", size, 0, MAX_SIZE)
        self._check("count", count, 1, OPERATIONS)
        self._use(count)
        made = []
        for _ in range(count):
            self._warmth += 1
            slow = _COLD_FACTOR if self._warmth <= _COLD else 1
            time = self._noisy(self.parameters.floor) + self._latency(size)
            made.append(self._ticks(slow * time))
        return made

    def elapsed(self, size: int, depth: int, count: int) -> int:
        """Perform `count` transfers with `depth` in flight; return the time in ticks."""
        self._check("size", size, 0, MAX_SIZE)
        self._check("depth", depth, 1, MAX_DEPTH)
        self._check("count", count, 1, OPERATIONS)
        self._use(count)
        return self._ticks(self._run(size, depth, count))

    def _ticks(self, nanoseconds: float) -> int:
        return round(nanoseconds * self._ticks_per_us / 1000)

    @staticmethod
    def _check(what: str, value: Any, low: int, high: int) -> None:
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"{what} is {value!r:.40}; it must be a whole number, {low} to {high}")

    def _use(self, count: int) -> None:
        if self.used + count > OPERATIONS:
            raise ValueError(f"{self.used} + {count} operations; the limit is {OPERATIONS}")
        self.used += count

    def _noisy(self, duration: float) -> float:
        return duration * self._rng.uniform(1 - _JITTER, 1 + _JITTER)

    def _latency(self, size: int) -> float:
        late = self._rng.uniform(*_INTERRUPT_NS) if self._rng.random() < _INTERRUPTS else 0.0
        return self._noisy(self.parameters.base + self.parameters.byte * size) + late

    def _run(self, size: int, depth: int, count: int) -> float:
        """Return the time of a measurement with a queue."""
        now = engine = 0.0
        flying: list[float] = []
        for _ in range(count):
            if len(flying) == depth:
                now = max(now, heapq.heappop(flying))
            start = max(now, engine)
            engine = start + self._noisy(self.parameters.occupied(size))
            heapq.heappush(flying, start + self._latency(size))
        return max(flying)

    def rate(self, size: int, depth: int, count: int = _GRADED) -> float:
        """Return operations per second in a long measurement that does not count as used."""
        short = self._run(size, depth, count // 4)  # so that ramp-up and ramp-down cancel out
        return (count - count // 4) * 1e9 / (self._run(size, depth, count) - short)

    def quantiles(self, size: int) -> dict[str, float]:
        """Return quantiles of `nothing` and, on a warm device, of `transfers`.

        Returns:
            The medians "floor" and "p50", and the 99th percentile "p99", in nanoseconds.
        """
        floors = sorted(self._noisy(self.parameters.floor) for _ in range(999))
        shown = sorted(
            self._noisy(self.parameters.floor) + self._latency(size) for _ in range(_SAMPLES)
        )
        at = {"p50": shown[_SAMPLES // 2], "p99": shown[_SAMPLES * 99 // 100]}
        return {"floor": floors[len(floors) // 2], **at}


def example(ticks_per_us: int = TICKS_PER_US) -> Device:
    """Return the device of the lab's story."""
    return Device(Parameters.random(random.Random("story")), ticks_per_us=ticks_per_us)


Function = Callable[..., Any]


def test_latency(latency: Function, ticks_per_us: int) -> None:
    """Test latency: the floor, the median and the 99th percentile of two devices."""
    rng, report = verdict.seeded("latency"), verdict.Report(concepts.LAB4)
    limits = {"p50": 0.02, "floor": 0.05, "p99": 0.15}
    about = {"p50": "median", "floor": "floor", "p99": "tail"}
    with submission.local(latency) as (function,):
        for number, size in enumerate((64, rng.randrange(1 << 14, 1 << 16)), 1):
            device = Device(Parameters.random(rng), rng.random(), ticks_per_us=ticks_per_us)
            right = device.quantiles(size)
            got: Any = None
            for name, limit in limits.items():
                title = f"device {number}, {size} bytes: {name}"
                with report.case(title, about[name], required=(number, name) == (1, "p50")):
                    if name == "p50":
                        got = function(device, size)
                    _check_quantile(got, name, right, limit)
    report.finish()


def _check_quantile(got: Any, name: str, right: dict[str, float], limit: float) -> None:
    expect(isinstance(got, dict), f"it returned {got!r:.60}; it must return a dict")
    value = got.get(name)
    expect(_is_number(value), f"{name!r} is {value!r:.40}; it must be a number")
    shown = {f"right {each}": right[each] for each in ("floor", "p50", "p99")}
    error = value / right[name] - 1
    expect(
        abs(error) <= limit,
        f"{name!r} is {value:.0f} ns, {error:+.0%}; within {limit:.0%} of {right[name]:.0f} ns is "
        f"right\n{_bars({**shown, f'your {name}': value})}",
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -1e18 < value < 1e18


def _bars(values: dict[str, float]) -> str:
    """Return a bar for each value."""
    most = max(1e-9, *values.values())
    width = max(map(len, values))
    return "\n".join(
        f"{name:{width}} {'#' * max(0, round(value / most * _BAR)):{_BAR}} {value:,.0f}"
        for name, value in values.items()
    )


def _situations(made: Parameters) -> dict[str, tuple[int, int]]:
    """Return sizes and depths, such that each is limited by a different part of the device."""
    rare = 1 << 18
    between = max(64, int(made.base / made.byte / 6))
    return {
        "a small transfer at a time": (64, 1),
        "a large transfer at a time": (rare, 1),
        "many small transfers": (64, min(MAX_DEPTH, math.ceil(made.knee(64) * 2))),
        "many large transfers": (rare, 16),
        "a few transfers": (between, max(2, round(made.knee(between) / 2))),
    }


def test_predict(explore: Function, predict: Function, ticks_per_us: int) -> None:
    """Test predictions: explore the device, predict its rates, then measure them."""
    rng, report = verdict.seeded("predict"), verdict.Report(concepts.LAB4)
    device = Device(Parameters.random(rng), rng.random(), ticks_per_us=ticks_per_us)
    with submission.local(explore, predict) as (first, second):
        notes: Any = None
        for title, (size, depth) in _situations(device.parameters).items():
            rate = device.rate(size, depth)
            got: Any = None
            for limit in _LIMITS:
                loose, alone = limit == _LIMITS[0], depth == 1 and size == 64
                name = f"{title}, {size} bytes, depth {depth}: within {limit:.0%}"
                concept = "one at a time" if depth == 1 else "busy engine"
                with report.case(name, concept, required=loose and alone):
                    if loose:
                        notes = first(device) if notes is None else notes
                        got = second(notes, size, depth)
                    _check_rate(got, rate, limit, device, size)
    report.finish()


def _check_rate(got: Any, rate: float, limit: float, device: Device, size: int) -> None:
    expect(_is_number(got), f"it returned {got!r:.60}; it must return a number")
    error = got / rate - 1
    if abs(error) <= limit:
        return
    depths = (1, 2, 4, 8, 16, 32, 64)
    shown = {f"measured, depth {depth}": device.rate(size, depth, _DRAWN) for depth in depths}
    raise verdict.WrongAnswer(
        f"it returned {got:,.0f}; measured: {rate:,.0f} operations per second: {error:+.0%}\n"
        + _bars({**shown, "your prediction": got})
    )


def check_depth(got: Any, size: int, share: float, device: Device) -> None:
    """Expect the smallest depth that gives a share of the highest rate, within 1 or 10 %."""
    expect(type(got) is int, f"it returned {got!r:.60}; it must return an int")
    right = max(1, math.ceil(share * device.parameters.knee(size)))
    if abs(got - right) <= max(1, 0.1 * right):
        return
    highest = 1e9 / device.parameters.occupied(size)
    depths = {"half of it": max(1, right // 2), "right": right, "twice": 2 * right}
    shown = {f"depth {at} ({name})": device.rate(size, at, _DRAWN) for name, at in depths.items()}
    raise verdict.WrongAnswer(
        f"it returned {got!r:.40}; depth {right} is enough for {share:.0%} of {highest:,.0f} "
        f"operations per second\n{_bars(shown)}"
    )


def test_few_operations(explore: Function, predict: Function, ticks_per_us: int) -> None:
    """Test the bonus: explore with few operations, and predict within 10 % nevertheless.

    The ratio is 10,000 operations for each of three devices, divided by the operations used.
    """
    rng, report = verdict.seeded("few operations"), verdict.Report(concepts.LAB4)
    used = 0
    with (
        submission.local(explore, predict) as (first, second),
        report.case("three devices", "busy engine", required=True),
    ):
        for _ in range(3):
            device = Device(Parameters.random(rng), rng.random(), ticks_per_us=ticks_per_us)
            notes = first(device)
            used += device.used
            for size, depth in _situations(device.parameters).values():
                rate = device.rate(size, depth)
                _check_rate(second(notes, size, depth), rate, _LIMITS[1], device, size)
    report.bonus(3 * _PLAIN / max(1, used))
    report.finish()
