# SPDX-License-Identifier: Apache-2.0
"""Machines that users published: their files, and the snapshots that are made of them.

A file is one machine, in the folder of what its source is about:

    nccl               NCCL and its tests
    communication      other libraries that use RDMA or GPUDirect, and what they are built on
    bluefield          BlueFields: firmware, modes, rshim, DOCA, and programs on the Arm cores
    containers         containers, Kubernetes, and systems made for them
    guests_and_clouds  virtual machines and cloud instances
    drivers            NVIDIA's driver, its installation, and tests of the GPUs
    programs           other programs, and servers that their users describe

It begins with `name: value`:

    source     address of the thread or page
    saw        what the user saw
    cause      what the thread found
    made up    what was not published and is assumed
    judged     what is right for which goal: `goal=rdma, works=no, exit=1 5, lead=acs | iommu`
               goal   arm-dma, host-dma, rdma, gpunetio, p2p, gpu, laptop; auto
               works  yes: the machine is fine, and no alarm is wanted; no
               exit   exit codes that are right
               lead   check that must lead the page, or several of which one must; none: `-`
               size   GPU memory to be exported at once, 64M if absent
    quiet      checks that must neither warn nor fail
    never      texts that no printed remedy may contain, separated by ` | `
    paths      verdicts of data paths: `rdma-gpu-dmabuf=blocked cuda=works`; a word is one of works,
               blocked, unknown, unset

A line that begins with a space continues the one above. What the machine is follows, as further
lines `name: value` or, if there are several lines of it, as a section that `=== name` begins:

    tree       the PCIe tree, as synthetic_machines/tree.py reads it
    kinds      devices that synthetic_machines/kinds.py and published/kinds.txt lack: `word
               like=a100 id=10de:20f1 age=Ampere memory=40 bar1=64G driver=nvidia speed=100
               name=NVIDIA A100-PCIE-40GB`, `name` last; `hca` is the type of an RDMA device that is
               not NVIDIA's
    arm        the readings are those of a BlueField's Arm cores, with this image: what any of them
               shows is that of arms.board
    driver     fields of nvidia.Driver: `version=535.104.05 cuda=12.2 flavour=closed peermem`;
               `none` without a driver
    system     fields of system.System: `release=5.15.0-91-generic, distribution=ubuntu 22.04`
    host       fields of hosts.Host: `iommu=DMA-FQ, doca=, dmabuf=no, root=no`
    firmware ADDRESS, later ADDRESS
               what mlxconfig says of a BlueField, and what it will say after the next power cycle:
               `dpu-mode` or `nic-mode`, then settings that differ: `dpu-mode LINK_TYPE_P1=IB(1)`
    cuda       `init=802 CUDA_ERROR_SYSTEM_NOT_READY`, `context=2 CUDA_ERROR_OUT_OF_MEMORY` or
               `context=late`, if cuInit or the creation of a context fails
    container  options of the container: `gpus infiniband gdrdrv caps=0xa80425fb`; it has only these
    text PATH, names PATH, link PATH, run COMMAND, ask NAME, probe NAME
               a reading as it was published; `ask` and `probe` are JSON, `names` words.
               `run COMMAND -> 9` is the exit code; text after a line `--- stderr` is stderr.
    absent KEY, denied KEY, late KEY
               a reading that failed, with its key: `absent names /dev/infiniband`
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from doctor.synthetic_machines import arms
from doctor.synthetic_machines.hosts import Host
from doctor.synthetic_machines.hosts import readings as host_readings
from doctor.synthetic_machines.kinds import KINDS, Kind
from doctor.synthetic_machines.network import DPU_MODE, NIC_MODE
from doctor.synthetic_machines.nvidia import Driver
from doctor.synthetic_machines.sysfs import fault, size
from doctor.synthetic_machines.system import System
from doctor.synthetic_machines.tree import nodes
from support.doctor.machines import reading

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.collect.snapshot import RecordedReader, Snapshot
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine
from dgkit.units import parse_size

__all__ = ["FOLDER", "FOLDERS", "Published", "load", "load_all"]

FOLDER = Path(__file__).with_name("published")
FOLDERS = (
    *("nccl", "communication", "bluefield", "containers"),
    *("guests_and_clouds", "drivers", "programs"),
)
_NEEDED = ("source", "saw", "cause", "made up", "goal", "works", "exit")
_KNOWN = {*_NEEDED, "lead", "quiet", "never", "paths", "size"}
_OPTIONS = ("kinds", "arm", "driver", "system", "host", "cuda", "container")
_SETTINGS = ("firmware", "later")
_MODES = {"dpu-mode": DPU_MODE, "nic-mode": NIC_MODE}
_READINGS = ("text", "names", "link", "run", "ask", "probe")
_FAULTS = {
    "absent": "there is no such thing",
    "denied": "only root may read it",
    "late": "too late",
}


@dataclass(frozen=True)
class Published:
    """A machine of a file: what its head says, and its sections by name."""

    name: str
    head: Mapping[str, str]
    sections: Mapping[str, str]

    def words(self, name: str) -> list[str]:
        """Return the words of a line of the head."""
        return self.head.get(name, "").split()

    def choices(self, name: str) -> list[str]:
        """Return the texts of a line of the head that ` | ` separates."""
        return [text.strip() for text in self.head.get(name, "").split("|") if text.strip()]

    @property
    def works(self) -> bool:
        """Whether the machine is fine."""
        return self.head["works"] == "yes"

    @property
    def goal(self) -> Goal | None:
        """The goal for which it is judged; None: the doctor chooses one."""
        return {str(goal): goal for goal in Goal}.get(self.head["goal"])

    @property
    def size(self) -> int:
        """Size of the memory that is to be shared, in bytes."""
        return parse_size(self.head.get("size", "64M"))

    def machine(self) -> Machine:
        """Return the machine, with a reader of its snapshot."""
        return Machine(RecordedReader(self.snapshot()), f"{self.name}.snap")

    def snapshot(self) -> Snapshot:
        """Return the snapshot: what the file says, and the rest of a machine that is well."""
        found = readings(self)
        made = {key: reading(key, found[key]) for key in sorted(found)}
        source = f"synthetic: after {self.head['source']}"
        return Snapshot(source=source, taken="2026-11-22", otherwise="absent", readings=made)


def load_all(folder: str) -> list[Published]:
    """Return all machines of a folder, one of `FOLDERS`, by name."""
    return [load(path) for path in sorted((FOLDER / folder).glob("*.txt"))]


def load(path: Path) -> Published:
    """Parse a file.

    Raises:
        ValueError: A line above the sections is unknown or missing.
    """
    lines: dict[str, str] = {}
    top, *parts = re.split(r"^=== +", path.read_text("utf-8"), flags=re.MULTILINE)
    last = ""
    for line in top.splitlines():
        if line[:1].isspace() and last:
            lines[last] += f" {line.strip()}"
        elif line.strip():
            last, _, value = (part.strip() for part in f"{line} ".partition(": "))
            lines[last] = value
    lines |= _options(lines.pop("judged", ""))
    sections = {name: f"{lines.pop(name)}\n" for name in list(lines) if _is_section(name)}
    if wrong := (lines.keys() - _KNOWN) | (set(_NEEDED) - lines.keys()):
        raise ValueError(f"{path.name}: unknown or missing lines: {', '.join(sorted(wrong))}")
    pairs = (part.partition("\n") for part in parts)
    sections |= {name.strip(): body for name, _, body in pairs}
    return Published(path.stem, lines, sections)


def _is_section(name: str) -> bool:
    return name in _OPTIONS or name.partition(" ")[0] in (*_SETTINGS, *_READINGS)


def readings(made: Published) -> dict[str, object]:
    """Return all readings of a machine."""
    host = _host(made)
    found = host_readings(host)
    if "arm" in made.sections:
        found |= arms.board(made.sections["arm"].strip(), nodes(host.tree, host.kinds))
    if "cuda" in made.sections:
        _break_cuda(found, dict(_options(made.sections["cuda"])))
    if "container" in made.sections:
        found |= _container(found, dict(_options(made.sections["container"])))
    for name, body in made.sections.items():
        kind, _, rest = name.partition(" ")
        if kind in _FAULTS:
            found[rest] = fault(kind, _FAULTS[kind])
        elif kind in _READINGS:
            key, answer = _reading(name, body)
            found[key] = answer
    return found


def _reading(name: str, body: str) -> tuple[str, object]:
    kind = name.partition(" ")[0]
    if kind in ("ask", "probe"):
        return name, json.loads(body)
    if kind == "names":
        return name, body.split()
    if kind == "link":
        return name, body.strip()
    key, _, code = name.partition(" -> ")
    text, _, said = body.partition("--- stderr\n")
    if kind == "run":
        return key, Reading(text=text, said=said, code=int(code or 0))
    return key, body


def _options(body: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a section: commas or lines are around one whose value has spaces."""
    for line in body.replace(", ", "\n").splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and " " in value and "=" not in value:
            yield name, value
            continue
        for word in line.split():
            name, equals, value = word.partition("=")
            yield name, value if equals else "yes"


def _host(made: Published) -> Host:
    shared = (FOLDER / "kinds.txt").read_text("utf-8")
    kinds = {**KINDS, **dict(_kinds(shared + made.sections.get("kinds", "")))}
    section = made.sections.get("driver", "")
    driver: Driver | None = _filled(Driver(), section) if section.strip() != "none" else None
    system = System()
    if "arm" in made.sections:
        driver, system = None, arms.board_system(2 if "bf2" in made.sections["tree"] else 3)
    system = _filled(system, made.sections.get("system", ""))
    settings: dict[str, Any] = {name: {} for name in _SETTINGS}
    for name, body in made.sections.items():
        kind, _, address = name.partition(" ")
        if kind in settings:
            mode, *others = body.split()
            settings[kind][address] = _MODES[mode] | dict(word.split("=") for word in others)
    host = Host(
        made.sections["tree"], driver=driver, system=system, doca="", kinds=kinds, **settings
    )
    return _filled(host, made.sections.get("host", ""))


def _kinds(body: str) -> Iterator[tuple[str, Kind]]:
    for line in filter(str.strip, body.splitlines()):
        word, _, rest = line.strip().partition(" ")
        rest, _, name = rest.partition("name=")
        given = dict(part.split("=") for part in rest.split())
        kind = KINDS[given["like"]]
        vendor, _, device = given.get("id", f"{kind.vendor:x}:{kind.device:x}").partition(":")
        bars = kind.bars
        if "bar1" in given:
            bars = tuple((n, size(given["bar1"]) if n == 1 else s, f) for n, s, f in bars)
        rdma = kind.rdma if vendor == "15b3" or not kind.rdma else (given.get("hca", word), "", "")
        yield (
            word,
            replace(
                kind, vendor=int(vendor, 16), device=int(device, 16), bars=bars, rdma=rdma,
                name=name.strip() or kind.name, age=given.get("age", kind.age),
                memory=int(given.get("memory", kind.memory)), speed=int(given.get("speed", 100)),
                driver=given.get("driver", kind.driver),
            ),
        )  # fmt: skip


def _filled(made: Any, section: str) -> Any:
    """Return a dataclass with the fields that a section names."""
    kinds = {field.name: getattr(made, field.name) for field in fields(made)}
    return replace(made, **{n: _value(kinds[n], n, text) for n, text in _options(section)})


def _value(old: object, name: str, text: str) -> object:
    if isinstance(old, bool) or name == "dmabuf":
        return text == "yes"
    if isinstance(old, int) or name == "memlock":
        return None if text == "unlimited" else int(text, 0)
    if isinstance(old, tuple):
        return tuple(text.split(","))
    return text


def _break_cuda(found: dict[str, object], how: Mapping[str, str]) -> None:
    """Let cuInit, or the creation of a context on each GPU, fail."""
    probe: Any = found["probe cuda"]
    context: Any = found["probe context"]
    if "init" in how:
        code, _, name = how["init"].partition(" ")
        probe.update(init={"code": int(code), "name": name}, devices=[])
        context.update(why=name, devices=[])
    for device in context["devices"]:
        code, _, name = how.get("context", "0 CUDA_SUCCESS").partition(" ")
        late = {"code": None, "name": "", "why": "it took longer than 4 s"}
        device.update(late if code == "late" else {"code": int(code), "name": name, "why": ""})


def _container(found: Mapping[str, object], options: Mapping[str, str]) -> dict[str, object]:
    """Return the readings that a container changes."""
    names = found["names /dev"]
    assert isinstance(names, list)
    shown = [name for name in names if not name.startswith(("nvidia", "infiniband", "gdrdrv"))]
    for option, prefix in (("gpus", "nvidia"), ("infiniband", "infiniband"), ("gdrdrv", "gdrdrv")):
        if option in options:
            shown += [name for name in names if name.startswith(prefix)]
    made: dict[str, object] = {
        "text /.dockerenv": "",
        "text /proc/1/cgroup": f"0::/system.slice/docker-{1:064x}.scope\n",
        "names /dev": shown,
    }
    if "caps" in options:
        caps = int(options["caps"], 0)
        made["text /proc/self/status"] = f"Name:\tpython3\nUid:\t0\t0\nCapEff:\t{caps:016x}\n"
    if "infiniband" not in options:
        made["names /dev/infiniband"] = fault("absent", "there is no /dev/infiniband")
    return made
