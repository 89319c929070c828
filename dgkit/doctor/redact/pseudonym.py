# SPDX-License-Identifier: Apache-2.0
"""Pseudonyms that keep the format of a secret and are equal for all its occurrences."""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
import os
from collections.abc import Callable

_BENCHMARK = int(ipaddress.IPv4Address("198.18.0.0"))  # /15, RFC 2544
_DOCUMENTATION = int(ipaddress.IPv6Address("2001:db8::"))  # /32, RFC 3849
_KEPT = tuple(
    map(ipaddress.IPv4Network, ("127.0.0.0/8", "0.0.0.0/32", "255.0.0.0/8", "192.168.100.0/24"))
)
_LOW = 2**64 - 1


@functools.cache
def _key(word: str) -> bytes:
    secret = word.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(secret, salt=b"dgkit doctor", n=1 << 14, r=8, p=1, dklen=32)


class PseudonymGenerator:
    """Derives pseudonyms by HMAC-SHA512; the key comes from `word`, or is random if that is "".

    The key is derived by scrypt, which takes about 0.1 s, to slow down guessing short words.
    """

    def __init__(self, word: str) -> None:
        self._key = _key(word) if word else os.urandom(32)
        self._known: dict[tuple[str, str], str] = {}
        self._used: set[tuple[str, str]] = set()

    def knows(self, kind: str, value: str) -> bool:
        """Return whether a value already has a pseudonym."""
        return (kind, value) in self._known

    def hex(self, kind: str, digits: str) -> str:
        """Replace lower-case hexadecimal digits: of a `mac`, `guid`, `uuid` or other bytes."""
        if set(digits) in ({"0"}, {"f"}):
            return digits
        if kind == "uuid" and digits.startswith("fe80000000000000"):  # a GID
            return digits[:16] + self.hex("guid", digits[16:])
        start = "02" if kind == "mac" else ""
        return self._pseudonym(kind, digits, lambda stream: (start + stream.hex())[: len(digits)])

    def ipv4(self, text: str) -> str:
        """Replace an IPv4 address; invalid text and kept networks are returned unchanged."""
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:  # a number above 255, or with a leading zero
            return text
        if any(address in net for net in _KEPT):
            return text

        def make(stream: bytes) -> str:
            host = int.from_bytes(stream[:4], "big") % 2**17
            return str(ipaddress.IPv4Address(_BENCHMARK + host))

        return self._pseudonym("ipv4", text, make)

    def ipv6(self, text: str) -> str:
        """Replace an IPv6 address or a GID; the result is full or compressed like the original."""
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            head, cut, last = text.rpartition(":")
            return f"{head}{cut}{self.ipv4(last)}"
        if int(address) <= 1:  # :: and ::1
            return text
        replacement = self._ipv6(address)
        if "." in text:
            return f"{text.rpartition(':')[0]}:{replacement.ipv4_mapped or replacement}"
        return (
            match_format(text, f"{int(replacement):032x}") if len(text) == 39 else str(replacement)
        )

    def name(self, kind: str, name: str) -> str:
        """Replace a name by its kind and six digits: `host-ab12f3`."""
        return self._pseudonym(kind, name, lambda stream: f"{kind}-{stream[:3].hex()}")

    def shaped(self, value: str) -> str:
        """Replace a serial number: digits by digits, letters by letters."""
        return self._pseudonym("serial", value, lambda stream: _in_same_shape(value, stream))

    def _ipv6(self, address: ipaddress.IPv6Address) -> ipaddress.IPv6Address:
        if address.ipv4_mapped:
            ipv4 = ipaddress.IPv4Address(self.ipv4(str(address.ipv4_mapped)))
            return ipaddress.IPv6Address(0xFFFF << 32 | int(ipv4))
        if address.is_link_local and int(address) & _LOW > 1:
            guid = self.hex("guid", f"{int(address) & _LOW:016x}")
            return ipaddress.IPv6Address(int(address) & ~_LOW | int(guid, 16))

        def make(stream: bytes) -> str:
            host = int.from_bytes(stream[:12], "big")
            return str(ipaddress.IPv6Address(_DOCUMENTATION | host))

        return ipaddress.IPv6Address(self._pseudonym("ipv6", str(address), make))

    def _pseudonym(self, kind: str, value: str, make: Callable[[bytes], str]) -> str:
        """Return the pseudonym that `make` forms from 64 bytes; retry on a collision."""
        attempt = 0
        while (kind, value) not in self._known:
            message = f"{kind}\0{value}\0{attempt}".encode("utf-8", "surrogatepass")
            replacement = make(hmac.digest(self._key, message, "sha512"))
            attempt += 1
            if (replacement != value and (kind, replacement) not in self._used) or attempt > 100:
                self._used.add((kind, replacement))
                self._known[kind, value] = replacement
        return self._known[kind, value]


def match_format(found: str, digits: str) -> str:
    """Return the digits with the separators and the case of the original text."""
    upper = found != found.lower()
    left = iter(digits.upper() if upper else digits)
    return "".join(next(left) if letter.isalnum() else letter for letter in found)


def _in_same_shape(value: str, stream: bytes) -> str:
    letters = []
    for at, letter in enumerate(value):
        byte = stream[at % len(stream)]
        if letter.isdecimal():
            letters.append(str(byte % 10) if at else str(1 + byte % 9))
        elif letter.isalpha():
            letters.append(chr((65 if letter.isupper() else 97) + byte % 26))
        else:
            letters.append(letter)
    return "".join(letters)
