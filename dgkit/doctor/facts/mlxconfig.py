"""What mlxconfig (MFT) and mstconfig (mstflint) print of a card's settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import msgspec

from ..collect.reading import Reading
from ..machine import Machine

__all__ = ["Config", "Setting", "command", "number", "parse", "queries", "query"]

_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+(?:\[\d+(?:\.\.\d+)?\])?")
_COLUMNS = {"Default": "default", "Current": "current", "Next": "next", "New": "new"}
_END = re.compile(r"^[ \t]*(?:The '|Apply new|-[EIW]-)", re.MULTILINE)
_HEAD = re.compile(r"^[ \t]*Configurations:(.*)$", re.MULTILINE)


class Setting(msgspec.Struct, frozen=True):
    """One setting as text, `ETH(2)`. "" where that column was not printed.

    `current` is what the card runs with; `next` what it will after a power cycle.
    """

    name: str
    default: str = ""
    current: str = ""
    next: str = ""

    @property
    def now(self) -> str:
        """What is in force, as far as it was told: a query without -e prints Next Boot alone."""
        return self.current or self.next

    @property
    def pending(self) -> bool:
        """Whether a power cycle will change it."""
        return bool(self.current and self.next and self.current != self.next)


class Config(msgspec.Struct, frozen=True):
    """A card's settings by name; `device`: what was asked; `type`: BlueField3, ConnectX7.

    `fault` as in a Reading, "" if there are settings; then `why` says why not.
    """

    settings: dict[str, Setting] = {}
    device: str = ""
    type: str = ""
    description: str = ""
    fault: Literal["", "absent", "denied", "late", "failed", "unrecorded"] = ""
    why: str = ""

    def now(self, name: str) -> int | None:
        """The number of what is in force; None if it is not told."""
        return number(self.settings[name].now) if name in self.settings else None

    def next(self, name: str) -> int | None:
        """The number after a power cycle."""
        found = self.settings.get(name)
        return number(found.next or found.now) if found else None


def number(value: str) -> int | None:
    """2 of `ETH(2)`, 63 of `63`, 16 of `0x10`; None of `Array[0..7]` and what else there is."""
    match = re.fullmatch(r"(?:[^\s()]*\()?(0[xX][0-9a-fA-F]{1,16}|\d{1,19})\)?", value)
    return int(match[1], 0 if match[1][:2].lower() == "0x" else 10) if match else None


def parse(text: str) -> tuple[Config, ...]:
    """All devices of an output; also of one whose header and line ends got lost."""
    parts = re.split(r"^[ \t]*Device #\d+:.*$", text, flags=re.MULTILINE)
    found = (_device(part) for part in parts)
    return tuple(one for one in found if one.settings or one.type)


def _device(text: str) -> Config:
    head = _HEAD.search(text)
    body = text[head.end() :] if head else text
    end = _END.search(body)
    columns = [_COLUMNS[word] for word in head[1].split() if word in _COLUMNS] if head else []
    settings = {one.name: one for one in _settings(body[: end.start() if end else None], columns)}
    before = text[: head.start()] if head else ""
    return Config(
        settings,
        device=_field(before, "Device"),
        type=_field(before, "Device type"),
        description=_field(before, "Description"),
    )


def _field(text: str, name: str) -> str:
    match = re.search(rf"^[ \t]*{name}:(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _settings(body: str, columns: list[str]) -> Iterator[Setting]:
    """Each name takes the words up to the next name. Marks (`*`, `RO`) belong to neither."""
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
    """What asks a card: `-e` prints what is in force beside what will be."""
    return ("mlxconfig", "-d", address, "-e", "q", *names)


def queries(machine: Machine, addresses: Sequence[str], names: Collection[str]) -> list[Config]:
    """Asks several cards at once, each as `query` does."""
    machine.read.together([f"run {shlex.join(command(one, names))}" for one in addresses])
    return [query(machine, one, names) for one in addresses]


def query(machine: Machine, address: str, names: Collection[str]) -> Config:
    """Asks a card for some settings; for all, if it does not know one of them.

    mstconfig is the same program from the distribution. Both need root: without it they refuse
    before they open anything.
    """
    tool = "mlxconfig"
    reading = machine.read.run(*command(address, names))
    if reading.absent:
        tool = "mstconfig"
        reading = machine.read.run(tool, *command(address, names)[1:])
    found = _first(reading)
    if not found and re.search("support|unknown", reading.said + reading.text, re.IGNORECASE):
        found = _first(machine.read.run(tool, *command(address)[1:]))
    if found:
        return found
    if reading.absent:
        why = "neither mlxconfig nor mstconfig is installed"
        return Config(device=address, fault="absent", why=why)
    if not reading.ok:
        return Config(device=address, fault=reading.fault, why=reading.why)
    return _refused(machine, address, tool, reading)


def _first(reading: Reading) -> Config | None:
    return next((one for one in parse(reading.text) if one.settings), None)


def _refused(machine: Machine, address: str, tool: str, reading: Reading) -> Config:
    said = re.search(r"-E-\s*(.*)", reading.text + "\n" + reading.said)
    words = said[1].strip() if said else (reading.said or reading.text).strip()[:200]
    if machine.read.ask("euid").data not in (0, None):
        return Config(device=address, fault="denied", why=f"{tool} needs root: {words}")
    return Config(device=address, fault="failed", why=f"{tool}: {words or 'it said nothing'}")
