# SPDX-License-Identifier: Apache-2.0
"""Rules of the provider `fault`: which operations fail, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..types import Access, Status
from ..validate import LIMIT, whole
from ._ffi import ffi, nanoseconds

if TYPE_CHECKING:
    from ._ffi import native

_ACTIONS = {"error": 0, "delay": 1, "reorder": 2, "lose": 3}
_OPS = {"r": 1, "w": 2, "a": 4 | 8}  # bits of dg_fault_rule.ops
_EVERY_MAX = (1 << 32) - 1
_DELAY_MAX_US = 1e15  # 31 years: a CLOCK_MONOTONIC stamp plus this delay fits 64 bits


@dataclass(frozen=True, slots=True)
class FaultRule:
    """Fault to inject into matching operations. The first rule that matches acts.

    Attributes:
        action: `"error"` completes the operation with `status` and moves no bytes; `"delay"` starts
            it `delay_us` later; `"reorder"` starts it after the next one; `"lose"` moves its bytes
            and loses its completion, which then ends as TIMED_OUT.
        ops: Match reads (`"r"`), writes (`"w"`), atomic operations (`"a"`), or several (`"rw"`).
        status: Status of the action `"error"`.
        every: Act on the first match after `skip` and on each `every`-th one after that.
        skip: Do not act on the first `skip` matches.
        count: Act at most `count` times; 0 for no limit.
        min_size: Smallest operation to match, in bytes.
        max_size: Largest operation to match, in bytes.
        delay_us: Delay of the action `"delay"`, in microseconds.
        probability: Probability of acting, 0 to 1.
        seed: Seed of the random numbers for `probability`.
    """

    action: str
    ops: str = "rw"
    status: Status = Status.IO_FAILED
    every: int = 1
    skip: int = 0
    count: int = 0
    min_size: int = 0
    max_size: int = (1 << 64) - 1
    delay_us: float = 0.0
    probability: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.action not in _ACTIONS:
            raise ValueError(f"action is {self.action!r}; it must be one of {', '.join(_ACTIONS)}")
        _ops(self.ops)
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"probability is {self.probability!r}; it must be from 0 to 1")
        if whole("every", self.every, 1) > _EVERY_MAX:
            raise ValueError(f"every is {self.every}; the limit is {_EVERY_MAX}")
        for name in ("skip", "count", "min_size", "max_size"):
            whole(name, getattr(self, name))
        whole("seed", self.seed, -LIMIT)
        nanoseconds(self.delay_us, "delay_us")
        Status(self.status)


def _ops(ops: str | Access) -> int:
    """Return the bits of `dg_fault_rule.ops`; raise ValueError for unknown letters."""
    if isinstance(ops, Access) and ops:
        return int(ops)
    if not isinstance(ops, str) or not ops or len(set(ops)) < len(ops) or set(ops) - set(_OPS):
        raise ValueError(f"ops is {ops!r}; it must be 'r', 'w', 'a' or several of them")
    return sum(_OPS[letter] for letter in ops)


def native_rules(rules: Sequence[FaultRule]) -> native.Array:
    """Return the rules as a C array of `dg_fault_rule`."""
    array = ffi.new("dg_fault_rule[]", max(1, len(rules)))
    for raw, rule in zip(array, rules, strict=False):
        if not isinstance(rule, FaultRule):
            raise TypeError(f"rules has {rule!r:.60}; each must be FaultRule")
        raw.action = _ACTIONS[rule.action]
        raw.ops = _ops(rule.ops)
        raw.status = int(Status(rule.status))
        raw.every, raw.skip, raw.count = rule.every, rule.skip, rule.count
        raw.min_size, raw.max_size = rule.min_size, rule.max_size
        raw.delay_ns = nanoseconds(min(rule.delay_us, _DELAY_MAX_US) / 1e6)
        raw.ppm = round(rule.probability * 1_000_000)
        raw.seed = rule.seed & 0xFFFFFFFF
    return array
