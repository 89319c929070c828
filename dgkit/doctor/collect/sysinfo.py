# SPDX-License-Identifier: Apache-2.0
"""Readings of a snapshot of NVIDIA's sysinfo-snapshot.py, as far as it reaches.

The archive, NAME.tgz, has a folder NAME with NAME.html, in which each command and file is a heading
`<h2>` with its text in `<p>`, and longer ones as files of their own: `pcie_files/lspci_nnvvvxxx`,
`dmesg`, `config-RELEASE`, `firmware/mlxconfig_*`, `numa_node` (files of sysfs with their values)
and `other_system_files` (paths of sysfs with "infini").
"""

from __future__ import annotations

import html
import io
import re
import tarfile
from collections.abc import Iterator, Mapping

from . import packed, pci_listing
from .pci_listing import ADDRESS
from .reader import Reading
from .snapshot import Snapshot

_CLASS = "/sys/class/infiniband"
_MAX_MEMBERS = 100_000
# The doctor's reading for each command of the page.
_COMMANDS = {
    "ibv_devinfo -v": "run ibv_devinfo",
    "nvidia-smi topo -m": "run nvidia-smi topo -m",
    "ofed_info -s": "run ofed_info -s",
}
_FILES = ("/proc/cmdline", "/proc/modules", "/proc/version", "/proc/cpuinfo", "/proc/devices")
_UNAME = re.compile(
    r"(Linux) (?:(\S{1,64}) )?(\d+\.\S{1,80}) ([^\n]{1,120}?) (x86_64|aarch64|ppc64le)\b"
)
_WANTED = re.compile(
    r"[^/]+/(?:[^/]+\.html|dmesg|config-[^/]+|numa_node|commands_txt_output/numa_node|"
    r"other_system_files|commands_txt_output/other_system_files|pcie_files/lspci[^/]*|"
    r"firmware/m(?:lx|st)config_[^/]+)"
)
_QUERY = re.compile(
    rf"(m(?:lx|st)config) -d (?:/dev/mst/\S{{1,80}}|({ADDRESS.pattern})) {{1,4}}-e {{1,4}}q\n"
)
_PCI_PATH = re.compile(
    rf"^(/sys/devices/pci[0-9a-f:]{{7,12}}(?:/{ADDRESS.pattern}){{1,32}})/numa_node (-?\d{{1,4}})$",
    re.MULTILINE,
)


def is_archive(head: bytes) -> bool:
    """Return whether decompressed content begins like an archive of sysinfo-snapshot."""
    return head[257:262] == b"ustar" and b"sysinfo-snapshot" in head[:100]


def read(data: bytes) -> Snapshot:
    """Return the readings of an archive.

    Raises:
        ValueError: It is damaged, or larger than 256 MiB.
    """
    files = _members(packed.unpacked(data))
    page = max(
        (text for name, text in files.items() if name.endswith(".html")), key=len, default=""
    )
    parts = dict(_parts(page))
    readings = dict(_command_readings(parts))
    readings |= dict(_kernel_readings(files))
    readings |= dict(_device_readings(files))
    readings |= dict(_setting_readings(files))
    readings |= dict(_rdma(files, parts))
    return Snapshot(source="recorded: by sysinfo-snapshot.py", readings=readings)


def _members(data: bytes) -> dict[str, str]:
    """Return the files that are used, by their path below the archive's folder."""
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for number, member in enumerate(archive):
                if number >= _MAX_MEMBERS:
                    raise ValueError(f"it has more than {_MAX_MEMBERS} files")
                content = archive.extractfile(member) if _is_used(member) else None
                if content is not None:
                    name = member.name.removeprefix("./").partition("/")[2]
                    found[name] = content.read().decode("utf-8", "replace")
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"it cannot be unpacked: {error}") from None
    return found


def _is_used(member: tarfile.TarInfo) -> bool:
    return member.isreg() and _WANTED.fullmatch(member.name.removeprefix("./")) is not None


def _parts(page: str) -> Iterator[tuple[str, str]]:
    """Yield the headings of the page, each with its text."""
    for part in page.split("<h2>")[1:]:
        name, _, rest = part.partition("</h2>")
        body = rest.partition("<p>")[2].partition("</p>")[0]
        yield name, html.unescape(body.replace("&nbsp;" * 4, "\t").replace("<br/>", "\n"))


def _command_readings(parts: Mapping[str, str]) -> Iterator[tuple[str, Reading]]:
    for name, key in _COMMANDS.items():
        if name in parts:
            yield key, Reading(text=parts[name])
    for path in _FILES:
        if path in parts:
            yield f"text {path}", Reading(text=f"{parts[path]}\n")
    if found := _UNAME.search(parts.get("uname", "")):
        names = ("system", "node", "release", "version", "machine")
        words = (word or "" for word in found.groups())
        yield "ask uname", Reading(data=dict(zip(names, words, strict=True)))


def _kernel_readings(files: Mapping[str, str]) -> Iterator[tuple[str, Reading]]:
    if "dmesg" in files:
        yield "run dmesg", Reading(text=files["dmesg"])
    for name, text in files.items():
        if name.startswith("config-"):
            yield f"text /boot/{name}", Reading(text=text)


def _device_readings(files: Mapping[str, str]) -> Iterator[tuple[str, Reading]]:
    listings = [text for name, text in files.items() if name.startswith("pcie_files/lspci")]
    found = max((pci_listing.lspci(text) for text in listings), key=len, default={})
    for path, *_, node in _PCI_PATH.findall(_file(files, "numa_node")):
        if device := found.get(path.rpartition("/")[2]):
            device.path, device.numa = path, int(node)
    return pci_listing.readings(found)


def _file(files: Mapping[str, str], name: str) -> str:
    return files.get(name, files.get(f"commands_txt_output/{name}", ""))


def _setting_readings(files: Mapping[str, str]) -> Iterator[tuple[str, Reading]]:
    for name, text in files.items():
        query = _QUERY.match(text) if name.startswith("firmware/") else None
        if query and query[2]:
            # the doctor asks mstconfig where there is no mlxconfig; the output is the same
            key = f"run mlxconfig -d {pci_listing.full(query[2])} -e q"
            yield key, Reading(text=text[query.end() :])


_BLOCK = re.compile(r"^hca_id:[ \t]*(\w{1,64})", re.MULTILINE)
_FIELD = re.compile(r"^[ \t]{0,16}(\w{1,40}):[ \t]*(\S[^\n]{0,200})$", re.MULTILINE)
_PORT = re.compile(r"^[ \t]{0,16}port:[ \t]*(\d{1,3})$", re.MULTILINE)
_STATE = re.compile(r"PORT_(\w+) \((\d)\)")
_TEXTS = {"fw_ver": "fw_ver", "board_id": "board_id"}
_NET = re.compile(r"^(\w{1,64}) port \d{1,3} ==> (\S{1,64}) ", re.MULTILINE)


def _rdma(files: Mapping[str, str], parts: Mapping[str, str]) -> Iterator[tuple[str, Reading]]:
    """Yield what /sys/class/infiniband has, from ibv_devinfo, ibdev2netdev and paths."""
    blocks = _BLOCK.split(parts.get("ibv_devinfo -v", ""))[1:]
    devices = dict(zip(blocks[::2], blocks[1::2], strict=True))
    paths = dict(_paths(_file(files, "other_system_files")))
    nets: dict[str, list[str]] = {}
    for name, net in _NET.findall(parts.get("ibdev2netdev", "")):
        nets.setdefault(name, []).append(net)
    names = tuple(sorted({*devices, *paths}))
    if names:
        yield f"names {_CLASS}", Reading(names=names)
    for name in names:
        if name in paths:
            yield f"link {_CLASS}/{name}/device", Reading(text=paths[name])
        if name in nets:
            yield f"names {_CLASS}/{name}/device/net", Reading(names=tuple(sorted(nets[name])))
        if name in devices:
            yield from _parse_device(f"{_CLASS}/{name}", devices[name])


def _paths(text: str) -> Iterator[tuple[str, str]]:
    """Yield each RDMA device with the path of its PCI function."""
    for line in text.splitlines():
        path, found, rest = line.partition("/infiniband/")
        if found and path.startswith("/sys/devices/pci"):
            yield rest.partition("/")[0], path


def _parse_device(folder: str, block: str) -> Iterator[tuple[str, Reading]]:
    head, *ports = _PORT.split(block)
    fields = dict(_FIELD.findall(head))
    for field, file in _TEXTS.items():
        yield f"text {folder}/{file}", Reading(text=f"{fields.get(field, '')}\n")
    yield f"text {folder}/hca_type", Reading(text=f"MT{fields.get('vendor_part_id', '')}\n")
    yield f"names {folder}/ports", Reading(names=tuple(ports[::2]))
    for number, text in zip(ports[::2], ports[1::2], strict=True):
        port = dict(_FIELD.findall(text))
        state = _STATE.fullmatch(port.get("state", ""))
        files = {
            "state": f"{state[2]}: {state[1]}" if state else "",
            "link_layer": port.get("link_layer", ""),
            "phys_state": "",
            "rate": "",
        }
        for file, value in files.items():
            yield f"text {folder}/ports/{number}/{file}", Reading(text=f"{value}\n")
