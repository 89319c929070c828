"""Rules of the provider `fault`: what goes wrong, when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..types import Status, parse_access
from ..validate import whole
from ._ffi import ffi, nanoseconds

__all__ = ["FaultRule", "native_rules"]

_ACTIONS = {"error": 0, "delay": 1, "reorder": 2, "lose": 3}
_EVERY_MAX = (1 << 32) - 1
_DELAY_MAX_US = 1e15  # 31 years: a clock plus this is still no more than 64 bits


@dataclass(frozen=True, slots=True)
class FaultRule:
    """Does `action` to operations that match.

    `"error"` completes one with `status` and moves nothing; `"delay"` starts it `delay_us` later;
    `"reorder"` starts it after the next one; `"lose"` moves its bytes and loses its completion,
    which then ends as TIMED_OUT. A rule matches reads (`"r"`), writes (`"w"`) or both, of min_size
    to max_size bytes, past the first `skip`, then each `every`-th, at most `count` times (0: no
    limit), with `probability` drawn from `seed`. The first rule that matches acts.
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
        parse_access(self.ops)
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(f"probability is {self.probability!r}; it must be from 0 to 1")
        if whole("every", self.every, 1) > _EVERY_MAX:
            raise ValueError(f"every is {self.every}; the limit is {_EVERY_MAX}")
        for name in ("skip", "count", "min_size", "max_size"):
            whole(name, getattr(self, name))
        whole("seed", abs(self.seed) if isinstance(self.seed, int) else self.seed)
        nanoseconds(self.delay_us, "delay_us")
        Status(self.status)


def native_rules(rules: Sequence[FaultRule]) -> Any:
    """The rules as a C array."""
    array = ffi.new("dg_fault_rule[]", max(1, len(rules)))
    for to, rule in zip(array, rules, strict=False):
        if not isinstance(rule, FaultRule):
            raise TypeError(f"rules has {rule!r:.60}; each must be FaultRule")
        to.action = _ACTIONS[rule.action]
        to.ops = int(parse_access(rule.ops))
        to.status = int(Status(rule.status))
        to.every, to.skip, to.count = rule.every, rule.skip, rule.count
        to.min_size, to.max_size = rule.min_size, rule.max_size
        to.delay_ns = nanoseconds(min(rule.delay_us, _DELAY_MAX_US) / 1e6)
        to.ppm = round(rule.probability * 1_000_000)
        to.seed = rule.seed & 0xFFFFFFFF
    return array
