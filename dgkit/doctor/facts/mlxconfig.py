# SPDX-License-Identifier: Apache-2.0
"""Card settings from mlxconfig (MFT) and mstconfig (mstflint)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import msgspec

from ..collect.reader import Reading
from ..machine import Machine

_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?:\[\d+(?:\.\.\d+)?\])?")
_COLUMNS = {"Default": "default", "Current": "current", "Next": "next", "New": "new"}
_END = re.compile(r"^[ \t]*(?:The '|Apply new|-[EIW]-)", re.MULTILINE)
_HEAD = re.compile(r"^[ \t]*Configurations:(.*)$", re.MULTILINE)


class Setting(msgspec.Struct, frozen=True):
    """A setting as text, such as `ETH(2)`; "" for a column that was not printed.

    Attributes:
        current: Value in effect.
        next: Value after the next power cycle.
    """

    name: str
    default: str = ""
    current: str = ""
    next: str = ""

    @property
    def now(self) -> str:
        """Value in effect if known, else the next value: without -e only Next Boot is printed."""
        return self.current or self.next

    @property
    def pending(self) -> bool:
        """True if a power cycle changes the value."""
        return bool(self.current and self.next and self.current != self.next)


class Config(msgspec.Struct, frozen=True):
    """Settings of a card, by name.

    Attributes:
        device: Device that was queried.
        type: Device type, such as BlueField3 or ConnectX7.
        tool: Program that answered, mlxconfig or mstconfig; "" if there is neither.
        fault: Fault as in `Reading`; "" if there are settings.
        why: Description of the fault.
    """

    settings: dict[str, Setting] = {}
    device: str = ""
    type: str = ""
    description: str = ""
    fault: Literal["", "absent", "denied", "late", "failed", "unrecorded"] = ""
    why: str = ""
    tool: str = ""

    def now(self, name: str) -> int | None:
        """Return the numeric value in effect; None if unknown."""
        return number(self.settings[name].now) if name in self.settings else None

    def next(self, name: str) -> int | None:
        """Return the numeric value after a power cycle; None if unknown."""
        found = self.settings.get(name)
        return number(found.next or found.now) if found else None


def number(value: str) -> int | None:
    """Parse a value: `ETH(2)` is 2, `63` is 63, `0x10` is 16. Return None for `Array[0..7]` etc."""
    match = re.fullmatch(r"(?:[^\s()]*\()?(0[xX][0-9a-fA-F]{1,16}|\d{1,19})\)?", value)
    return int(match[1], 0 if match[1][:2].lower() == "0x" else 10) if match else None


def parse(text: str) -> tuple[Config, ...]:
    """Parse the devices in an output, even if the header and the line breaks are missing."""
    parts = re.split(r"^[ \t]*Device #\d+:.*$", text, flags=re.MULTILINE)
    configs = (_parse_device(part) for part in parts)
    return tuple(config for config in configs if config.settings or config.type)


def _parse_device(text: str) -> Config:
    head = _HEAD.search(text)
    body = text[head.end() :] if head else text
    end = _END.search(body)
    columns = [_COLUMNS[word] for word in head[1].split() if word in _COLUMNS] if head else []
    parsed = _settings(body[: end.start() if end else None], columns)
    before = text[: head.start()] if head else ""
    return Config(
        {setting.name: setting for setting in parsed},
        device=_field(before, "Device"),
        type=_field(before, "Device type"),
        description=_field(before, "Description"),
    )


def _field(text: str, name: str) -> str:
    match = re.search(rf"^[ \t]*{name}:(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _settings(body: str, columns: list[str]) -> Iterator[Setting]:
    """Yield each name with the words up to the next name as values, without marks (`*`, `RO`)."""
    name, values = "", list[str]()
    for word in [*body.split(), ""]:
        if word in ("*", "RO"):
            continue
        if word and not _NAME.fullmatch(word):
            values.append(word)
            continue
        if name and len(values) == len(columns) and columns:
            known = dict(zip(columns, values, strict=True))
            known.pop("new", None)
            yield Setting(name, **known)
        elif name and len(values) == 1:
            yield Setting(name, next=values[0])
        name, values = word, []


def command(address: str, names: Collection[str] = ()) -> tuple[str, ...]:
    """Return the query command; `-e` prints the current values as well as the next ones."""
    return ("mlxconfig", "-d", address, "-e", "q", *names)


def queries(machine: Machine, addresses: Sequence[str], names: Collection[str]) -> list[Config]:
    """Query several cards in parallel; see `query`."""
    machine.read.together([f"run {shlex.join(command(address, names))}" for address in addresses])
    return [query(machine, address, names) for address in addresses]


def query(machine: Machine, address: str, names: Collection[str]) -> Config:
    """Query settings of a card by name, or all its settings if it lacks one of the names.

    mstconfig is the distribution's build of the same program. Both need root; otherwise they exit
    before opening a device.
    """
    tool = "mlxconfig"
    reading = machine.read.run(*command(address, names))
    if reading.fault == "unrecorded":  # a recording of another program has all settings
        all_settings = machine.read.run(*command(address))
        reading = all_settings if all_settings.ok else reading
    if reading.absent:
        tool = "mstconfig"
        reading = machine.read.run(tool, *command(address, names)[1:])
    found = _first(reading)
    if not found and re.search("support|unknown", reading.said + reading.text, re.IGNORECASE):
        found = _first(machine.read.run(tool, *command(address)[1:]))
    if found:
        return msgspec.structs.replace(found, tool=tool)
    if reading.absent:
        why = "neither mlxconfig nor mstconfig is installed"
        return Config(device=address, fault="absent", why=why)
    if not reading.ok:
        return Config(device=address, fault=reading.fault, why=reading.why, tool=tool)
    return _refused_config(machine, address, tool, reading)


def _first(reading: Reading) -> Config | None:
    return next((config for config in parse(reading.text) if config.settings), None)


def _refused_config(machine: Machine, address: str, tool: str, reading: Reading) -> Config:
    error = re.search(r"-E-\s*(.*)", reading.text + "\n" + reading.said)
    message = error[1].strip() if error else (reading.said or reading.text).strip()[:200]
    if machine.read.ask("euid").data not in (0, None):
        why = f"{tool} needs root: {message}"
        return Config(device=address, fault="denied", why=why, tool=tool)
    why = f"{tool}: {message or 'no output'}"
    return Config(device=address, fault="failed", why=why, tool=tool)
