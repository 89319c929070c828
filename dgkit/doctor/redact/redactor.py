"""Stand-ins for what names one machine or one person, so that a snapshot can be shown to others.

Replaced, each by something of the same shape: serial numbers, GUIDs and GIDs, UUIDs, MAC addresses
(02:...), IPv4 (198.18.0.0/15, RFC 2544), IPv6 (2001:db8::/32, RFC 3849; link-local stays so), names
of hosts (host-ab12f3) and of all in their domain, names of users, of folders that are not the
system's, WWNs, disks.

Kept: 127.0.0.0/8, 0.0.0.0, 255.*, ::, ::1; 192.168.100.0/24, which by convention is the network of
tmfifo between a BlueField and its host; PSIDs and part numbers, which name a product; PCI
addresses, versions, dates, sizes. A host or user called like a word of the doctor's own keeps that
name, but where nothing else than a host's name stands, and in a home folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..collect.reading import Reading
from .allowlist import says_nothing
from .patterns import (
    NO_SERIAL,
    VERSIONS_ONLY,
    expression,
    is_version,
    kind_near,
    names_somebody,
)
from .pseudonym import StandIns, like

__all__ = ["Pseudonyms"]

_NAMED = ("ask hostname", "text /etc/hostname", "text /proc/sys/kernel/hostname")
_SERIAL_FILE = re.compile(r"(?i)text \S*(?:_serial|/serial|/serial_number|_asset_tag)\Z")
_HEXES = {12: "mac", 16: "guid", 32: "uuid", 64: "container"}  # by how many digits


class Pseudonyms:
    """The same thing always gets the same stand-in here; another file gets others.

    `word`: whoever uses the same word gets the same stand-ins, so that a host's and a DPU's
    snapshots still fit together. Who knows the word can try out what stands behind a stand-in.
    """

    def __init__(self, word: str = "") -> None:
        self._made = StandIns(word)
        self._hosts: set[str] = set()
        self._domains: set[str] = set()
        self._users: set[str] = set()
        self._serials: set[str] = set()
        self._find = expression()
        self._in_serial = expression(without="serial")

    def all(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """The readings with nothing secret in them, keys too."""
        self._learn_hosts(readings)
        self._look_for_all()
        for key, one in readings.items():  # what is met now is then known in any form, anywhere
            self.text(key)
            self._reading(key, one)
        self._look_for_all()
        made = {self.text(key): self._reading(key, one) for key, one in readings.items()}
        return dict(sorted(made.items()))

    def _look_for_all(self) -> None:
        known = self._hosts, self._domains, self._users, self._serials
        self._find = expression(*known)
        self._in_serial = expression(*known, without="serial")

    def text(self, text: str, key: str = "") -> str:
        """A text; `key` is that of the reading it comes from."""
        return self._find.sub(lambda match: self._replaced(match, key), text)

    def _replaced(self, match: re.Match[str], key: str) -> str:
        found = match[0]
        match match.lastgroup:
            case "serial":
                value = match["serial_value"]
                return found[: -len(value)] + self._serial(value)
            case "ipv4":
                if VERSIONS_ONLY.match(key) or is_version(match.string, *match.span()):
                    return found
                return self._made.ipv4(found)
            case "hexes":
                return self._hexes(match, key)
            case "pairs":
                return self._pairs(found)
            case kind:
                return self._plain(kind or "", found)

    def _plain(self, kind: str, found: str) -> str:
        """Of what is secret wherever it stands."""
        made, digits = self._made, re.sub("[:-]", "", found.lower())
        match kind:
            case "uuid" | "volume":
                return like(found, made.hex("uuid", digits))
            case "guid":
                return like(found, made.hex("guid", digits))
            case "enx":
                return found[:3] + made.hex("mac", digits[3:])
            case "ipv6":
                return made.ipv6(found)
            case "host":
                return self._host(found)
            case "domain":
                return self._host(found)
            case "path":
                return self._path(found)
            case "home" | "user":
                return self._user(found)
            case "cisco":
                return like(found, made.hex("mac", digits.replace(".", "")))
            case "built":
                return f"{made.name('user', found)}@host"
            case "board":
                return f"MT{made.shaped(found[2:])}"
            case "known":
                return made.shaped(found)
        return made.name(kind, found)

    def _host(self, found: str) -> str:
        return self._made.name("host", found.partition(".")[0].lower())

    def _user(self, found: str) -> str:
        if names_somebody(found.lower()) and not says_nothing(found):
            self._users.add(found)
        return self._made.name("user", found)

    def _path(self, found: str) -> str:
        """Each folder by itself, so that one path still leads into another."""
        parts = found.split("/")
        for at, part in enumerate(parts):
            if parts[at - 1 : at] in (["home"], ["Users"]) or part in self._users:
                parts[at] = self._user(part)
            elif part and not (re.search("[A-Za-z]", part) and says_nothing(part)):
                parts[at] = self._file(part)
        return "/".join(parts)

    def _file(self, name: str) -> str:
        """A library keeps the name that tells what it is."""
        stem, end, _ = name.partition(".so")
        if end and says_nothing(stem.removeprefix("lib")):
            return name
        return self._made.name("folder", name)

    def _learn_hosts(self, readings: Mapping[str, Reading]) -> None:
        found = [one.text or one.data for key in _NAMED if (one := readings.get(key))]
        uname = readings.get("ask uname", Reading()).data
        found.append(uname.get("node") if isinstance(uname, dict) else "")
        names = [str(name or "").strip().lower().split(".") for name in found]
        labels = {name[0] for name in names}
        self._hosts = {one for one in labels if names_somebody(one) and not says_nothing(one)}
        self._domains = {".".join(name[-2:]) for name in names if len(name) > 2}

    def _reading(self, key: str, one: Reading) -> Reading:
        text, whole = self.text(one.text, key), one.text.strip()
        if whole and _SERIAL_FILE.match(key):
            text = one.text.replace(whole, self._serial(whole))
        if key in _NAMED and whole:
            text = one.text.replace(whole, self._host(whole))
        return msgspec.structs.replace(
            one,
            text=text,
            said=self.text(one.said, key),
            why=self.text(one.why, key),
            names=tuple(sorted(self.text(name, key) for name in one.names)),
            raw=self._raw(key, one.raw),
            data=self._answer(key, one.data),
        )

    def _answer(self, key: str, data: Any) -> Any:
        """Where nothing but a host's name stands, it is replaced, whatever it is."""
        if key in _NAMED and isinstance(data, str) and data:
            return self._host(data)
        made = self._data(data, key)
        if key == "ask uname" and isinstance(data, dict) and data.get("node"):
            made["node"] = self._host(str(data["node"]))
        return made

    def _data(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            return self.text(value, key)
        if isinstance(value, (list, tuple)):
            return [self._data(one, key) for one in value]
        if isinstance(value, dict):
            return {self.text(str(k), key): self._item(str(k), v, key) for k, v in value.items()}
        return value

    def _item(self, name: str, value: Any, key: str) -> Any:
        """A value of a dict: its name says what it is, as in a line `name: value`."""
        number = isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, str) and not number:
            return self._data(value, key)
        said = self.text(f"{name}: {value}", key)
        if not said.startswith(f"{name}: "):
            return self._data(value, key)
        said = said[len(name) + 2 :]
        return int(said) if number and said.lstrip("-").isdecimal() else said

    def _raw(self, key: str, raw: bytes) -> bytes:
        if key.endswith("/config"):
            return self._config_space(raw)
        made = self.text(raw.decode("latin-1"), key).encode("latin-1")
        return made if len(made) == len(raw) else bytes(len(raw))

    def _config_space(self, raw: bytes) -> bytes:
        """Without the EUI-64 of capability 0x0003, Device Serial Number (PCI Express Base, 7.9.3).

        Its first dword is the lower one; lspci prints the upper one first.
        """
        made, at, seen = bytearray(raw), 0x100, set[int]()
        while 0x100 <= at <= len(made) - 12 and at not in seen:
            seen.add(at)
            head = int.from_bytes(made[at : at + 4], "little")
            if head & 0xFFFF == 3:
                number = bytes(made[at + 4 : at + 12])[::-1].hex()
                made[at + 4 : at + 12] = bytes.fromhex(self._made.hex("guid", number))[::-1]
            at = head >> 20
        return bytes(made)

    def _hexes(self, match: re.Match[str], key: str) -> str:
        """12 to 64 hexadecimal digits in a row are many things: only some are secret."""
        text = match[0].lower()
        digits = text.removeprefix("0x")
        kind = _HEXES[len(digits)]
        likely = text == digits and not digits.isdecimal() and kind != "mac"
        likely = likely and not key.startswith("text /proc/self/")  # capabilities
        if not likely and not self._made.knows(kind, digits):
            near = kind_near(match.string, *match.span(), key)
            if near != kind and not (kind == "uuid" and near):
                return match[0]
        start, found = match[0][: -len(digits)], match[0][-len(digits) :]
        return start + like(found, self._made.hex(kind, digits))

    def _serial(self, value: str) -> str:
        if NO_SERIAL.match(value):
            return value
        said = self._in_serial.sub(lambda match: self._replaced(match, ""), value)
        if said != value:  # it has a form of its own
            return said
        if len(value) > 5:
            self._serials.add(value)
        return self._made.shaped(value)

    def _pairs(self, found: str) -> str:
        digits = found.lower().replace(":", "").replace("-", "")
        if len(digits) == 14 and digits.startswith("01"):  # BOOTIF=01-, and the address
            return like(found, "01" + self._made.hex("mac", digits[2:]))
        if len(digits) == 40:  # flags and queue pair, and the GID
            if digits[8:12] != "fe80" and digits[:4] not in ("8000", "0000", "a000"):
                return found  # a key's fingerprint
            return like(found, digits[:24] + self._made.hex("guid", digits[24:]))
        return like(
            found, self._made.hex({12: "mac", 16: "guid"}.get(len(digits), "bytes"), digits)
        )
