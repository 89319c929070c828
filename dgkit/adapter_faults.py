# SPDX-License-Identifier: Apache-2.0
"""Faults that the software adapter injects into a program: the rules of `dgkit mlx5 run --fault`.

A rule is an action and fields, with the words of `dgkit.FaultRule`:
"error,ops=write,skip=99,syndrome=0x15". The library of native/mlx5 gets them as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

VARIABLE = "DGKIT_MLX5_FAULT"
MAX_RULES = 16

_OPS = {"read": 1, "write": 2, "atomic": 4 | 8, "send": 16, "receive": 32}
_REQUESTS = frozenset({"read", "write", "atomic", "send"})
_RETRIES_EXCEEDED = 0x15


class _Action(NamedTuple):
    number: int
    ops: frozenset[str]
    fields: frozenset[str] = frozenset()


_ACTIONS = {
    "error": _Action(0, frozenset(_OPS), frozenset({"syndrome", "vendor"})),
    "delay": _Action(1, _REQUESTS, frozenset({"delay_us"})),
    "lose": _Action(3, frozenset(_OPS)),
    "drop": _Action(16, _REQUESTS),
    "corrupt": _Action(17, frozenset({"write", "send"})),
    "die": _Action(18, frozenset(_OPS)),
    "flap": _Action(19, _REQUESTS, frozenset({"delay_us"})),
}


class _Field(NamedTuple):
    default: float
    low: float
    high: float
    read: Callable[[str], float]


def _whole(text: str) -> int:
    return int(text, 0)


_U64 = (1 << 64) - 1
_FIELDS = {
    "skip": _Field(0, 0, _U64, _whole),
    "every": _Field(1, 1, (1 << 32) - 1, _whole),
    "count": _Field(0, 0, _U64, _whole),
    "min_size": _Field(0, 0, _U64, _whole),
    "max_size": _Field(_U64, 0, _U64, _whole),
    "probability": _Field(1, 0, 1, float),
    "seed": _Field(1, 0, (1 << 32) - 1, _whole),
    "syndrome": _Field(_RETRIES_EXCEEDED, 1, 0xFF, _whole),
    "vendor": _Field(0, 0, 0xFF, _whole),
    "delay_us": _Field(1000, 0, 1e12, float),
}
_OF_ALL = frozenset(_FIELDS) - {"syndrome", "vendor", "delay_us"}


def encode(rules: Iterable[str]) -> str:
    """Return rules as the library reads them, which is empty if there are none.

    Raises:
        ValueError: A rule is wrong, or there are more than 16.
    """
    encoded = [_encode_rule(rule) for rule in rules]
    if len(encoded) > MAX_RULES:
        raise ValueError(f"there are {len(encoded)} rules; the limit is {MAX_RULES}")
    return "".join(encoded)


def _encode_rule(rule: str) -> str:
    name, *fields = rule.split(",")
    action = _ACTIONS.get(name)
    if action is None:
        raise ValueError(f"rule {rule!r}: the action is {name!r}; {_choice(_ACTIONS)}")
    ops = sum(_OPS[op] for op in action.ops & _REQUESTS)
    values = {field: _FIELDS[field].default for field in _FIELDS}
    for text in fields:
        field, _, value = text.partition("=")
        if field == "ops":
            ops = _read_ops(rule, name, value)
        elif field in _OF_ALL | action.fields:
            values[field] = _parse_number(rule, field, value)
        else:
            allowed = ["ops", *sorted(_OF_ALL | action.fields)]
            raise ValueError(f"rule {rule!r}: {name} has no field {field!r}; {_choice(allowed)}")
    if values["min_size"] > values["max_size"]:
        raise ValueError(f"rule {rule!r}: min_size is more than max_size")
    numbers = [
        action.number, ops, int(values["vendor"]) << 8 | int(values["syndrome"]), values["skip"],
        values["every"], values["count"], values["min_size"], values["max_size"],
        round(values["delay_us"] * 1000), round(values["probability"] * 1_000_000), values["seed"],
    ]  # fmt: skip
    return ":".join(map(str, numbers)) + ";"


def _read_ops(rule: str, action: str, text: str) -> int:
    names, allowed = text.split("+"), _ACTIONS[action].ops
    for name in names:
        if name not in allowed:
            raise ValueError(
                f"rule {rule!r}: ops has {name!r}; for {action} {_choice(sorted(allowed))}, or "
                "several joined by +"
            )
    return sum(_OPS[name] for name in set(names))


def _parse_number(rule: str, name: str, text: str) -> float:
    field = _FIELDS[name]
    try:
        value = field.read(text)
    except ValueError:
        value = -1
    if not field.low <= value <= field.high:
        limits = f"{field.low:,} to {field.high:,}"
        raise ValueError(f"rule {rule!r}: {name} is {text!r}; it must be from {limits}")
    return value


def _choice(names: Iterable[str]) -> str:
    return f"it must be one of {', '.join(names)}"
