# SPDX-License-Identifier: Apache-2.0
"""Replacement of text that identifies a machine or a person by pseudonyms.

Replaced, in the same format: serial numbers, GUIDs and GIDs, UUIDs, MAC addresses (by 02:...), IPv4
addresses (198.18.0.0/15, RFC 2544), IPv6 addresses (2001:db8::/32, RFC 3849; link-local addresses
stay link-local), host names (host-ab12f3) and all names in their domain, user names, directories
other than system directories, WWNs, disks.

Kept: 127.0.0.0/8, 0.0.0.0, 255.*, ::, ::1; 192.168.100.0/24, by convention the tmfifo network
between a BlueField and its host; the all-zero UUID; PSIDs and part numbers, which name a product;
PCI addresses, versions, dates, sizes. A host or user name that consists of known words is kept,
except as a home directory and in a field that holds only a host name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..collect.reader import Reading
from . import patterns
from .pseudonym import PseudonymGenerator, match_format
from .vocabulary import is_allowed

_HOST_KEYS = ("ask hostname", "text /etc/hostname", "text /proc/sys/kernel/hostname")
_SERIAL_FILE = re.compile(r"(?i)text \S*(?:_serial|/serial|/serial_number|_asset_tag)\Z")
_HEX_KINDS = {12: "mac", 16: "guid", 32: "uuid", 64: "container"}  # by number of digits


class Redactor:
    """Replaces secrets by pseudonyms; equal secrets get equal pseudonyms.

    Redactors with the same `word` use the same pseudonyms, so that the snapshots of a host and its
    DPU stay consistent. Whoever knows the word can verify guesses of the original values.
    """

    def __init__(self, word: str = "") -> None:
        self._pseudonyms = PseudonymGenerator(word)
        self._hosts: set[str] = set()
        self._domains: set[str] = set()
        self._users: set[str] = set()
        self._serials: set[str] = set()
        self._pattern = patterns.build()
        self._serial_pattern = patterns.build(without="serial")

    def redact(self, readings: Mapping[str, Reading]) -> dict[str, Reading]:
        """Return the readings, sorted by key, without secrets in keys or values.

        Two passes: the first collects user names, serial numbers and hexadecimal identifiers, the
        second replaces them wherever they occur.
        """
        self._collect_hosts(readings)
        self._rebuild_patterns()
        for key, reading in readings.items():
            self.redact_text(key)
            self._redact_reading(key, reading)
        self._rebuild_patterns()
        redacted = {
            self.redact_text(key): self._redact_reading(key, r) for key, r in readings.items()
        }
        return dict(sorted(redacted.items()))

    def redact_text(self, text: str, key: str = "") -> str:
        """Return a text without secrets; `key` is the key of the reading that contains it."""
        return self._pattern.sub(lambda match: self._replacement(match, key), text)

    def _rebuild_patterns(self) -> None:
        known = self._hosts, self._domains, self._users, self._serials
        self._pattern = patterns.build(*known)
        self._serial_pattern = patterns.build(*known, without="serial")

    def _replacement(self, match: re.Match[str], key: str) -> str:
        found = match[0]
        match match.lastgroup:
            case "serial":
                value = match["serial_value"]
                return found[: -len(value)] + self._replace_serial(value)
            case "ipv4":
                if patterns.VERSIONS_ONLY.match(key):
                    return found
                if patterns.is_version(match.string, *match.span()):
                    return found
                return self._pseudonyms.ipv4(found)
            case "hexes":
                return self._replace_hexes(match, key)
            case "pairs":
                return self._replace_pairs(found)
            case kind:
                return self._replace_plain(kind or "", found)

    def _replace_plain(self, kind: str, found: str) -> str:
        """Replace a form that is secret in any context."""
        pseudonyms, digits = self._pseudonyms, re.sub("[:-]", "", found.lower())
        match kind:
            case "uuid" if not digits.replace("-", "").strip("0"):
                return found  # all-zero: the fabric of a single machine has no UUID
            case "uuid" | "volume":
                return match_format(found, pseudonyms.hex("uuid", digits))
            case "guid":
                return match_format(found, pseudonyms.hex("guid", digits))
            case "enx":
                return found[:3] + pseudonyms.hex("mac", digits[3:])
            case "ipv6":
                return pseudonyms.ipv6(found)
            case "host" | "domain":
                return self._replace_host(found)
            case "path":
                return self._replace_path(found)
            case "home" | "user":
                return self._replace_user(found)
            case "cisco":
                return match_format(found, pseudonyms.hex("mac", digits.replace(".", "")))
            case "built":
                return f"{pseudonyms.name('user', found)}@host"
            case "board":
                return f"MT{pseudonyms.shaped(found[2:])}"
            case "known":
                return pseudonyms.shaped(found)
        return pseudonyms.name(kind, found)

    def _replace_host(self, found: str) -> str:
        return self._pseudonyms.name("host", found.partition(".")[0].lower())

    def _replace_user(self, found: str) -> str:
        if patterns.is_identifying(found.lower()) and not is_allowed(found):
            self._users.add(found)
        return self._pseudonyms.name("user", found)

    def _replace_path(self, found: str) -> str:
        """Replace each component by itself, so that a directory stays a prefix of its content."""
        parts = found.split("/")
        for at, part in enumerate(parts):
            if parts[at - 1 : at] in (["home"], ["Users"]) or part in self._users:
                parts[at] = self._replace_user(part)
            elif part and not (re.search("[A-Za-z]", part) and is_allowed(part)):
                parts[at] = self._replace_file(part)
        return "/".join(parts)

    def _replace_file(self, name: str) -> str:
        """Replace the name of a file or directory, unless it is a known library."""
        stem, end, _ = name.partition(".so")
        if end and is_allowed(stem.removeprefix("lib")):
            return name
        return self._pseudonyms.name("folder", name)

    def _collect_hosts(self, readings: Mapping[str, Reading]) -> None:
        """Collect the host's names and its domain from the readings that hold a host name."""
        found = [named.text or named.data for key in _HOST_KEYS if (named := readings.get(key))]
        uname = readings.get("ask uname", Reading()).data
        found.append(uname.get("node") if isinstance(uname, dict) else "")
        names = [str(name or "").strip().lower().split(".") for name in found]
        self._hosts = {
            host for host, *_ in names if patterns.is_identifying(host) and not is_allowed(host)
        }
        self._domains = {".".join(name[-2:]) for name in names if len(name) > 2}

    def _redact_reading(self, key: str, reading: Reading) -> Reading:
        text, stripped = self.redact_text(reading.text, key), reading.text.strip()
        if stripped and _SERIAL_FILE.match(key):
            text = reading.text.replace(stripped, self._replace_serial(stripped))
        if key in _HOST_KEYS and stripped:
            text = reading.text.replace(stripped, self._replace_host(stripped))
        return msgspec.structs.replace(
            reading,
            text=text,
            said=self.redact_text(reading.said, key),
            why=self.redact_text(reading.why, key),
            names=tuple(sorted(self.redact_text(name, key) for name in reading.names)),
            raw=self._redact_raw(key, reading.raw),
            data=self._redact_answer(key, reading.data),
        )

    def _redact_answer(self, key: str, data: Any) -> Any:
        """Redact `data`; a field that holds only a host name is replaced unconditionally."""
        if key in _HOST_KEYS and isinstance(data, str) and data:
            return self._replace_host(data)
        redacted = self._redact_data(data, key)
        if key == "ask uname" and isinstance(data, dict) and data.get("node"):
            redacted["node"] = self._replace_host(str(data["node"]))
        return redacted

    def _redact_data(self, value: Any, key: str) -> Any:
        if isinstance(value, str):
            return self.redact_text(value, key)
        if isinstance(value, (list, tuple)):
            return [self._redact_data(item, key) for item in value]
        if isinstance(value, dict):
            return {
                self.redact_text(str(name), key): self._redact_item(str(name), item, key)
                for name, item in value.items()
            }
        return value

    def _redact_item(self, name: str, value: Any, key: str) -> Any:
        """Redact a value of a dict; its name serves as context, as in a line `name: value`."""
        number = isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, str) and not number:
            return self._redact_data(value, key)
        line = self.redact_text(f"{name}: {value}", key)
        if not line.startswith(f"{name}: "):
            return self._redact_data(value, key)
        redacted = line[len(name) + 2 :]
        return int(redacted) if number and redacted.lstrip("-").isdecimal() else redacted

    def _redact_raw(self, key: str, raw: bytes) -> bytes:
        if key.endswith("/config"):
            return self._redact_config_space(raw)
        redacted = self.redact_text(raw.decode("latin-1"), key).encode("latin-1")
        return redacted if len(redacted) == len(raw) else bytes(len(raw))

    def _redact_config_space(self, raw: bytes) -> bytes:
        """Replace the EUI-64 of capability 0x0003, Device Serial Number (PCI Express Base, 7.9.3).

        The lower dword is stored first; lspci prints the upper dword first.
        """
        config, offset, seen = bytearray(raw), 0x100, set[int]()
        while 0x100 <= offset <= len(config) - 12 and offset not in seen:
            seen.add(offset)
            header = int.from_bytes(config[offset : offset + 4], "little")
            if header & 0xFFFF == 3:
                start, end = offset + 4, offset + 12
                digits = self._pseudonyms.hex("guid", bytes(config[start:end])[::-1].hex())
                config[start:end] = bytes.fromhex(digits)[::-1]
            offset = header >> 20
        return bytes(config)

    def _replace_hexes(self, match: re.Match[str], key: str) -> str:
        """Replace 12 to 64 hexadecimal digits if their form or context marks them as a secret."""
        text = match[0].lower()
        digits = text.removeprefix("0x")
        kind = _HEX_KINDS[len(digits)]
        likely = text == digits and not digits.isdecimal() and kind != "mac"
        likely = likely and not key.startswith("text /proc/self/")  # CapEff and others are masks
        if not likely and not self._pseudonyms.knows(kind, digits):
            near = patterns.kind_from_context(match.string, *match.span(), key)
            if near != kind and not (kind == "uuid" and near):
                return match[0]
        start, found = match[0][: -len(digits)], match[0][-len(digits) :]
        return start + match_format(found, self._pseudonyms.hex(kind, digits))

    def _replace_serial(self, value: str) -> str:
        if patterns.PLACEHOLDER.match(value):
            return value
        redacted = self._serial_pattern.sub(lambda match: self._replacement(match, ""), value)
        if redacted != value:  # a MAC address, GUID or the like
            return redacted
        if len(value) > 5:
            self._serials.add(value)
        return self._pseudonyms.shaped(value)

    def _replace_pairs(self, found: str) -> str:
        digits = found.lower().replace(":", "").replace("-", "")
        if len(digits) == 14 and digits.startswith("01"):  # BOOTIF=01-, then the MAC address
            return match_format(found, "01" + self._pseudonyms.hex("mac", digits[2:]))
        if len(digits) == 40:  # address of IP over InfiniBand: flags, queue pair number, GID
            if digits[8:12] != "fe80" and digits[:4] not in ("8000", "0000", "a000"):
                return found  # the fingerprint of a signing key
            return match_format(found, digits[:24] + self._pseudonyms.hex("guid", digits[24:]))
        return match_format(
            found, self._pseudonyms.hex({12: "mac", 16: "guid"}.get(len(digits), "bytes"), digits)
        )
