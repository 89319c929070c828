# SPDX-License-Identifier: Apache-2.0
"""Regular expressions for text that identifies one machine or one person.

One expression matches all forms in a single pass, so that no pseudonym is itself replaced.
Ambiguous text is classified by its context: `10.1.2.3` is an address, `version: 5.15.0.1` and
`libx.so.1.2.3.4` are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_H = "[0-9A-Fa-f]"
_QUAD = r"\d{1,3}(?:\.\d{1,3}){3}"
_GROUPS = rf"{_H}{{1,4}}(?::{_H}{{1,4}}){{0,6}}"
_FORMS = {
    # Serial Number : 1654922000123, <serial>..., "board_serial": "...", SERIAL=...
    "serial": r"(?i:(?<![A-Za-z])(?:(?:\w{1,32}_)?serial(?:[ _]?(?:number|num|no))?\.?|s/n"
    r"|(?:service|asset)[ _]tag)[\"']?[ \t]*[:=>][ \t]*[\"']?)(?P<serial_value>[^\s<>,;\"']+)",
    # /data/x/y, but not below a system directory
    "path": r"(?<![\w./-])/(?!(?:usr|lib\d*|bin|sbin|etc|proc|sys|dev|run|boot)/)"
    r"[^\s:,;'\"<>()=|/]+(?:/[^\s:,;'\"<>()=|/]+)+",
    "home": r"(?<=/home/)[^\s/:,;'\"<>()]+",
    "disk": r"(?<=by-id/)[^\s/,:'\"]+",
    "uuid": rf"(?<!{_H}){_H}{{8}}(?:-{_H}{{4}}){{3}}-{_H}{{12}}(?!{_H})",
    "volume": rf"(?<=UUID=){_H}[0-9A-Fa-f-]+",  # of FAT or MBR: shorter than a UUID
    # MAC, EUI-64, the 20-byte address of IP over InfiniBand
    "pairs": rf"(?<![0-9A-Za-z]){_H}{{2}}(?P<_cut>[:-]){_H}{{2}}(?:(?P=_cut){_H}{{2}}){{4,62}}"
    rf"(?!{_H})",
    "ipv6": rf"(?<![0-9A-Za-z])(?<!\d\.)(?:{_H}{{1,4}}(?::{_H}{{1,4}}){{7}}"
    rf"|(?:{_GROUPS})?::(?:(?:{_H}{{1,4}}:){{0,6}}(?:{_QUAD}|{_H}{{1,4}}))?)(?![0-9A-Za-z])",
    "guid": rf"(?<![0-9A-Za-z]){_H}{{4}}(?::{_H}{{4}}){{3}}(?![0-9A-Za-z]|:{_H})",
    "ipv4": rf"(?<![0-9A-Za-z])(?<![0-9A-Za-z]\.){_QUAD}(?![0-9A-Za-z]|\.\d)",
    "board": r"(?<![0-9A-Za-z])MT\d{4}[A-Z][0-9A-Z]{5}(?=MLNX|[^0-9A-Za-z]|$)",
    "cisco": rf"(?<![0-9A-Za-z.])(?=[0-9.]{{0,12}}[A-Fa-f]){_H}{{4}}(?:\.{_H}{{4}}){{2}}"
    r"(?![0-9A-Za-z]|\.[0-9A-Za-z])",
    "enx": rf"(?<![0-9A-Za-z])(?:enx|wlx|br-){_H}{{12}}(?![0-9A-Za-z])",
    "hexes": rf"(?<![0-9A-Za-z])(?:0x)?(?:{_H}{{64}}|{_H}{{32}}|{_H}{{16}}|{_H}{{12}})"
    r"(?![0-9A-Za-z])",
    "built": r"(?<=\()[\w.-]{1,64}@[\w.-]{1,64}(?=\))",  # /proc/version: builder
}


def build(
    hosts: Iterable[str] = (),
    domains: Iterable[str] = (),
    users: Iterable[str] = (),
    serials: Iterable[str] = (),
    without: str = "",
) -> re.Pattern[str]:
    """Return an expression that matches all forms and the given names, each as a named group.

    Args:
        hosts: Host names, matched together with a domain that follows.
        domains: Domains, matched together with the names that precede them.
        serials: Serial numbers.
        without: Name of a form to leave out.
    """
    forms = {name: form for name, form in _FORMS.items() if name != without}
    if names := _any_of(domains):
        within = r"(?:[0-9A-Za-z_-]{1,63}\.){0,16}"
        forms = {"domain": rf"(?<![0-9A-Za-z.-]){within}(?i:{names})(?![0-9A-Za-z-])", **forms}
    if names := _any_of(users):
        forms = {"user": rf"(?<![0-9A-Za-z])(?:{names})(?![0-9A-Za-z])", **forms}
    if names := _any_of(hosts):
        end = r"(?:-[0-9A-Za-z-]+)?(?:\.[0-9A-Za-z-]+)*(?![0-9A-Za-z])"
        forms = {"host": rf"(?<![0-9A-Za-z])(?i:{names}){end}", **forms}
    if known := _any_of(serials):
        forms = {"known": rf"(?<![0-9A-Za-z])(?:{known})(?![0-9A-Za-z])", **forms}
    return re.compile("|".join(f"(?P<{name}>{form})" for name, form in forms.items()), re.ASCII)


def _any_of(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word))))


# Host names that identify no machine, and words with another meaning in the readings.
_COMMON = frozenset(
    (
        *("localhost", "localdomain", "linux", "ubuntu", "debian", "rocky", "rhel", "centos"),
        *("fedora", "sles", "nvidia", "mellanox", "bluefield", "dgx", "spark", "cuda", "doca"),
        *("gpu", "nic", "dpu", "host", "server", "node", "box", "machine", "computer", "root"),
        *("port", "device", "driver", "kernel", "pci", "mlx5", "active", "down", "default"),
        *("unknown", "none", "true", "false"),
    )
)
_PRODUCT = re.compile(r"(?:[abhltv]|gh|gb|rtx|bf|cx|connectx|bluefield)-?\d{1,4}[a-z]?\Z")


def is_identifying(host: str) -> bool:
    """Return whether a host name identifies a machine and can be replaced wherever it occurs."""
    return len(host) > 2 and host not in _COMMON and not _PRODUCT.match(host)


# Placeholders for a missing serial number.
PLACEHOLDER = re.compile(
    r"(?i)(?:\[?n/?a\]?|none|not|unknown|default|to|system|no|0+|x+|-+|\.+)\Z",
)

# Keys of readings in which four dotted numbers are a version.
VERSIONS_ONLY = re.compile(
    r"run (?:\S*/)?(?:dpkg|dpkg-query|rpm|apt|apt-cache|pip3?|modinfo|ofed_info|uname)\b"
    r"|text \S*(?:version|fw_ver|_rev|release)[^/\s]*\Z"
)

_VERSION_BEFORE = re.compile(
    r"(?i)(?:(?:version|(?<![a-z])ver|(?<![a-z])rev|revision|release|firmware|(?<![a-z])fw|bios)"
    r"[\w.-]*[\"']?[\s:=(\[\"']*"
    r"|(?<![a-z])(?:linux|kernel|driver|build)[ \t]+"
    r"|[a-z]\w*-|\d-)v?\Z"
)
_ADDRESS_BEFORE = re.compile(rf"(?i)(?:(?<![a-z])(?:ip|host|node|addr|peer|from|to)-|{_QUAD}-)\Z")
_VERSION_AFTER = re.compile(rf"[-+~_](?!{_QUAD})[0-9A-Za-z]")


def is_version(text: str, start: int, end: int) -> bool:
    """Return whether four dotted numbers are a version, judged by the word before or a suffix."""
    before = text[max(text.rfind("\n", 0, start) + 1, start - 64) : start]
    if _VERSION_AFTER.match(text, end):
        return True
    return bool(_VERSION_BEFORE.search(before)) and not _ADDRESS_BEFORE.search(before)


_CONTEXT = {
    "mac": re.compile(r"(?i)(?<![a-z])mac(?![a-z])"),
    "guid": re.compile(r"(?i)guid|wwn|wwid|eui|naa\.|(?<![a-z])pdi(?![a-z])"),
}


def kind_from_context(text: str, start: int, end: int, key: str) -> str:
    """Return `mac` or `guid` if the line or the key of the reading names that kind, else ""."""
    stop = text.find("\n", end)
    line = text[text.rfind("\n", 0, start) + 1 : stop if stop >= 0 else len(text)]
    line = f"{key} {line[:400]}"
    return next((kind for kind, words in _CONTEXT.items() if words.search(line)), "")
