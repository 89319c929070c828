# SPDX-License-Identifier: Apache-2.0
"""Parser of `nvidia-smi -q`, which prints what NVML reports about all GPUs.

The format has not changed since driver 390: values are printed as `Key : Value`, indented by at
least two spaces per level, and a line without a colon starts a section. It is not localized.
"""

from __future__ import annotations

import re

import msgspec

from ..machine import Machine

_LINE = re.compile(r"^(\s*)(\S(?:.*?\S)?)\s+:(?:\s+(.*))?$")
_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_ADDRESS = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})\.([0-7])")
_SIZE = re.compile(r"(\d{1,12}) (KiB|MiB|GiB|MB)$")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "MB": 1 << 20, "GiB": 1 << 30}
_MAX_LINE, _MAX_DEPTH = 1000, 8  # characters in a line, levels of nested sections
# Placeholders for a missing value: nvidia-smi(1), and outputs of failed GPUs.
_PLACEHOLDERS = (
    *("", "n/a", "not supported", "not found", "unknown error", "err!", "insufficient permissions"),
    *("requested functionality has been deprecated", "gpu is lost", "gpu requires reset"),
)


class SmiGpu(msgspec.Struct, frozen=True):
    """A GPU. `fields` contains values by their path, such as `BAR1 Memory Usage/Total`."""

    address: str
    fields: dict[str, str]

    def value(self, *paths: str) -> str:
        """Return the value of the first path that has one; "" if missing, N/A or an error."""
        for path in paths:
            value = self.fields.get(path, "").strip()
            if value.strip("[]").lower() not in _PLACEHOLDERS:
                return value
        return ""

    def size(self, path: str) -> int | None:
        """Return a value like `131072 MiB` in bytes."""
        match = _SIZE.match(self.value(path))
        return int(match[1]) * _UNITS[match[2]] if match else None

    @property
    def unlicensed(self) -> bool:
        """True for a virtual GPU without a licence."""
        return self.value("vGPU Software Licensed Product/License Status").startswith("Unlicensed")

    def flag(self, path: str) -> bool | None:
        """Return whether a value is Enabled; None unless it is Enabled or Disabled."""
        return {"enabled": True, "disabled": False}.get(self.value(path).lower())


class Smi(msgspec.Struct, frozen=True):
    """Output of nvidia-smi.

    Attributes:
        driver: Driver version.
        cuda: CUDA version of the driver.
        gpus: GPUs in the order of their index.
        trouble: Kind of failure: "" (none), "absent" (no such command), "driver" (the driver does
            not respond), "mismatch" (library and kernel module differ), "devices" (none found),
            "lost" (a GPU is off the bus), "handle" (a GPU does not answer), "denied", "library"
            (libnvidia-ml is missing), "unknown" (NVML's Unknown Error: device files that may not be
            opened), "late", "other".
        why: Error message of nvidia-smi or of the reader.
    """

    driver: str = ""
    cuda: str = ""
    gpus: tuple[SmiGpu, ...] = ()
    trouble: str = ""
    why: str = ""


_TROUBLES = (
    ("mismatch", "version mismatch"),
    ("driver", "couldn't communicate with the nvidia driver"),
    ("driver", "driver not loaded"),
    ("devices", "no devices were found"),
    ("lost", "gpu is lost"),
    ("handle", "unable to determine the device handle"),
    ("denied", "insufficient permissions"),
    ("library", "couldn't find libnvidia-ml"),
    ("library", "library not found"),
    ("unknown", "failed to initialize nvml: unknown error"),
)


def pci_address(text: str) -> str:
    """Convert `00000000:CA:00.0` to the format of sysfs, `0000:ca:00.0`; "" if invalid."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        return ""
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4]}".lower()


def read_smi(text: str) -> Smi:
    """Parse an output; unknown lines are ignored."""
    top: dict[str, str] = {}
    gpus: list[SmiGpu] = []
    fields = top
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        if len(line) > _MAX_LINE:
            continue
        found = _GPU.match(line)
        if found is not None:
            fields, path = {}, []
            gpus.append(SmiGpu(pci_address(found[1]), fields))
            continue
        match = _LINE.match(line)
        indent = len(line) - len(line.lstrip())
        while path and path[-1][0] >= indent:
            path.pop()
        if match is not None:
            names = "/".join([name for _, name in path] + [match[2]])
            fields.setdefault(names, match[3] or "")
        elif line.strip() and len(path) < _MAX_DEPTH:
            path.append((indent, line.strip()))
    trouble, why = _find_trouble(text) if not gpus else ("", "")
    return Smi(
        top.get("Driver Version", ""), top.get("CUDA Version", ""), tuple(gpus), trouble, why
    )


def _find_trouble(text: str) -> tuple[str, str]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for trouble, words in _TROUBLES:
        for line in lines:
            if words in line.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"):
                return trouble, line
    return "other", lines[0] if lines else "nvidia-smi printed nothing"


def smi(machine: Machine) -> Smi:
    """Run `nvidia-smi -q` and parse its output."""
    ran = machine.read.run("nvidia-smi", "-q")
    if ran.absent:
        return Smi(trouble="absent", why=ran.why)
    if ran.fault:
        return Smi(trouble=ran.fault if ran.fault == "late" else "other", why=ran.why)
    found = read_smi(ran.text)
    if not found.gpus:
        trouble, why = _find_trouble(f"{ran.text}\n{ran.said}")
        found = msgspec.structs.replace(found, trouble=trouble, why=why)
    return found
