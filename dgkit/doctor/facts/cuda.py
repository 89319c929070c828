"""CUDA: what the driver answers, and which toolkits are installed."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..machine import Machine
from .gpus import Gpu
from .nvidia_proc import version_key
from .nvidia_smi import pci_address, smi

__all__ = ["Cuda", "Toolkits", "attribute", "cuda", "read_nvcc", "toolkits"]


class Cuda(msgspec.Struct, frozen=True):
    """What libcuda says. `version` is (13, 0), or () where nothing tells; `by` names who told.

    `code` and `error` are those of cuInit, None and "" where it was not asked; `why`: why not.
    `missing`: there is no libcuda. `stuck`: asking it crashed or did not end in time.
    `devices`: attributes without CU_DEVICE_ATTRIBUTE_, by PCI address.
    """

    version: tuple[int, ...] = ()
    by: str = ""
    code: int | None = None
    error: str = ""
    devices: dict[str, dict[str, int]] = {}
    why: str = ""
    missing: bool = False
    stuck: bool = False

    @property
    def text(self) -> str:
        """The version, for people."""
        return ".".join(map(str, self.version)) if self.version else "?"


class Toolkits(msgspec.Struct, frozen=True):
    """CUDA toolkits. `version`: of the one that is used, by nvcc or by its folder; () for none.

    `others`: what else is in /usr/local. `why`: why none is known.
    """

    version: tuple[int, ...] = ()
    where: str = ""
    others: tuple[str, ...] = ()
    why: str = ""


def cuda(machine: Machine) -> Cuda:
    """Asks libcuda, in a process of its own; where it cannot be asked, nvidia-smi."""
    answer = machine.read.probe("cuda")
    data = answer.data if isinstance(answer.data, dict) else {}
    init = data.get("init")
    if isinstance(init, dict):
        number = data.get("driver")
        version = (number // 1000, number % 1000 // 10) if isinstance(number, int) else ()
        code = init.get("code")
        return Cuda(
            version=version if version > (0, 0) else (),
            by="CUDA",
            code=code if isinstance(code, int) else None,
            error=str(init.get("name") or ""),
            devices=_devices(data.get("devices")),
        )
    said = machine.know(smi)
    why = answer.why or str(data.get("why") or "the probe of CUDA gave no answer")
    return Cuda(
        version=version_key(said.cuda)[:2],
        by="nvidia-smi",
        why=why,
        missing=answer.ok and "init" in data,
        stuck=answer.fault in ("late", "failed"),
    )


def _devices(listed: Any) -> dict[str, dict[str, int]]:
    found = {}
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, dict) and isinstance(one.get("attributes"), dict):
            values = {name: v for name, v in one["attributes"].items() if isinstance(v, int)}
            found[pci_address(str(one.get("address", "")))] = values
    return found


def attribute(machine: Machine, gpu: Gpu, name: str) -> int | None:
    """A device attribute; None where CUDA was not asked or does not know it."""
    return machine.know(cuda).devices.get(gpu.address, {}).get(name)


def read_nvcc(text: str) -> tuple[int, ...]:
    """The version by `nvcc --version`: `Cuda compilation tools, release 13.0, V13.0.88`."""
    found = re.search(r"release (\d{1,9})\.(\d{1,9})", text)
    return (int(found[1]), int(found[2])) if found else ()


def toolkits(machine: Machine) -> Toolkits:
    """Looks for nvcc, then in /usr/local/cuda; version.json stands there since CUDA 11.1."""
    nvcc, listing, link, json, text = machine.read.together(
        [
            *("run nvcc --version", "names /usr/local", "link /usr/local/cuda"),
            *("text /usr/local/cuda/version.json", "text /usr/local/cuda/version.txt"),
        ]
    )
    folders = tuple(one for one in listing.names if re.fullmatch(r"cuda-\d{1,9}\.\d{1,9}", one))
    ways = (
        ("nvcc", read_nvcc(nvcc.text)),
        ("/usr/local/cuda", _json_version(json.text)),
        ("/usr/local/cuda", version_key(text.text.removeprefix("CUDA Version"))[:2]),
        ("/usr/local/cuda", version_key(link.text.partition("/cuda-")[2])[:2]),
    )
    where, version = next((way for way in ways if way[1]), ("", ()))
    if not version and folders:
        version = max(version_key(one.removeprefix("cuda-")) for one in folders)
        where = f"/usr/local/cuda-{'.'.join(map(str, version))}"
    used = f"cuda-{'.'.join(map(str, version))}"
    why = "" if version or nvcc.absent else nvcc.why or "nvcc names no version"
    others = tuple(one for one in folders if one != used)
    return Toolkits(version, where, others, why)


def _json_version(text: str) -> tuple[int, ...]:
    try:
        found = msgspec.json.decode(text)
        return version_key(str(found["cuda"]["version"]))[:2]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return ()
