# SPDX-License-Identifier: Apache-2.0
"""CUDA driver and toolkits."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...json_input import read_json
from ..machine import Machine
from .gpus import Gpu
from .nvidia_proc import version_key
from .nvidia_smi import pci_address, smi


class Cuda(msgspec.Struct, frozen=True):
    """The CUDA driver.

    Attributes:
        version: CUDA version of the driver, such as (13, 0); () if unknown.
        by: Source of the version: CUDA or nvidia-smi.
        code: Result of cuInit; None if it was not called.
        error: Name of that result.
        devices: Device attributes by PCI address, named without CU_DEVICE_ATTRIBUTE_.
        why: Reason why cuInit was not called.
        missing: Whether libcuda is missing.
        stuck: Whether the probe crashed or timed out.
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
        """Version as text, `?` if unknown."""
        return ".".join(map(str, self.version)) if self.version else "?"


class Context(msgspec.Struct, frozen=True):
    """Result of creating a CUDA context on a GPU.

    Attributes:
        code: Result of CUDA; None if the attempt crashed or took too long.
        error: Name of that result.
        why: Reason why there is no result.
    """

    code: int | None
    error: str = ""
    why: str = ""


class Toolkits(msgspec.Struct, frozen=True):
    """Installed CUDA toolkits.

    Attributes:
        version: Version of the toolkit in use, from nvcc or its directory; () if there is none.
        where: Source of the version.
        others: Other toolkits in /usr/local.
        why: Reason why the version is unknown.
    """

    version: tuple[int, ...] = ()
    where: str = ""
    others: tuple[str, ...] = ()
    why: str = ""


def cuda(machine: Machine) -> Cuda:
    """Query libcuda in a child process; if that fails, take the version from nvidia-smi."""
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
            devices=_attributes_by_device(data.get("devices")),
        )
    why = answer.why or str(data.get("why") or "the CUDA probe gave no answer")
    return Cuda(
        version=version_key(machine.know(smi).cuda)[:2],
        by="nvidia-smi",
        why=why,
        missing=answer.ok and "init" in data,
        stuck=answer.fault in ("late", "failed"),
    )


def _attributes_by_device(answer: Any) -> dict[str, dict[str, int]]:
    devices = {}
    for entry in answer if isinstance(answer, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("attributes"), dict):
            values = {name: v for name, v in entry["attributes"].items() if isinstance(v, int)}
            devices[pci_address(str(entry.get("address", "")))] = values
    return devices


def contexts(machine: Machine) -> dict[str, Context]:
    """Return the results of creating contexts, by PCI address of the GPU."""
    answer = machine.read.probe("context").data
    listed = answer.get("devices") if isinstance(answer, dict) else None
    found = {}
    for entry in listed if isinstance(listed, list) else []:
        if isinstance(entry, dict):
            code = entry.get("code")
            found[pci_address(str(entry.get("address", "")))] = Context(
                code if isinstance(code, int) and not isinstance(code, bool) else None,
                str(entry.get("name") or ""),
                str(entry.get("why") or ""),
            )
    return found


def attribute(machine: Machine, gpu: Gpu, name: str) -> int | None:
    """Return a CUDA device attribute; None if CUDA was not queried or does not know it."""
    return machine.know(cuda).devices.get(gpu.address, {}).get(name)


def read_nvcc(text: str) -> tuple[int, ...]:
    """Parse `nvcc --version`: `Cuda compilation tools, release 13.0, V13.0.88`."""
    found = re.search(r"release (\d{1,9})\.(\d{1,9})", text)
    return (int(found[1]), int(found[2])) if found else ()


def toolkits(machine: Machine) -> Toolkits:
    """Find the toolkit by nvcc, else in /usr/local/cuda, with version.json since CUDA 11.1."""
    nvcc, listing, link, json, text = machine.read.together(
        [
            *("run nvcc --version", "names /usr/local", "link /usr/local/cuda"),
            *("text /usr/local/cuda/version.json", "text /usr/local/cuda/version.txt"),
        ]
    )
    folders = tuple(name for name in listing.names if re.fullmatch(r"cuda-\d{1,9}\.\d{1,9}", name))
    sources = (
        ("nvcc", read_nvcc(nvcc.text)),
        ("/usr/local/cuda", _json_version(json.text)),
        ("/usr/local/cuda", version_key(text.text.removeprefix("CUDA Version"))[:2]),
        ("/usr/local/cuda", version_key(link.text.partition("/cuda-")[2])[:2]),
    )
    where, version = next((source for source in sources if source[1]), ("", ()))
    if not version and folders:
        version = max(version_key(name.removeprefix("cuda-")) for name in folders)
        where = f"/usr/local/cuda-{'.'.join(map(str, version))}"
    used = f"cuda-{'.'.join(map(str, version))}"
    why = "" if version or nvcc.absent else nvcc.why or "nvcc names no version"
    others = tuple(name for name in folders if name != used)
    return Toolkits(version, where, others, why)


def _json_version(text: str) -> tuple[int, ...]:
    try:
        found = read_json(text)
        return version_key(str(found["cuda"]["version"]))[:2]
    except (ValueError, KeyError, TypeError):
        return ()
