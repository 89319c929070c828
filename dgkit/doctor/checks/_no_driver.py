"""NVIDIA driver that is not loaded or does not answer: the cause and the remedy."""

from __future__ import annotations

from .. import finding, references
from ..facts import gpus, pci
from ..facts.distribution import install_driver, os_release, restart
from ..finding import Finding
from ..machine import Machine

_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MODULES = references.OPEN_MODULES("README")
_REBOOT = ("sudo reboot",)
# For each Smi.trouble: what was found, what it means, and the remedy.
SMI_FAILURES = {
    "mismatch": (
        "library and kernel module differ",
        "The driver was updated while the old kernel module stayed loaded: CUDA does not start.",
        _REBOOT,
    ),
    "driver": (
        "loaded, but does not answer",
        "CUDA does not start.",
        ("sudo dmesg | grep -i nvrm", *_REBOOT),
    ),
    "devices": (
        "loaded, finds no GPU",
        "The driver refuses the GPU that is on the bus; the kernel log has the reason.",
        ("sudo dmesg | grep -i nvrm",),
    ),
    "lost": (
        "GPU has fallen off the bus",
        "The GPU no longer answers; only a restart brings it back.",
        ("sudo dmesg | grep -i xid", "# Power the machine off and on."),
    ),
    "unknown": (
        "device files cannot be opened",
        "The rules for this container's devices exclude the GPUs.",
        ("# Start a new container.",),
    ),
    "denied": (
        "device files are not for this user",
        "This user may not open /dev/nvidia*.",
        ("ls -l /dev/nvidia*", "sudo usermod -aG video $USER", "# Then log in again."),
    ),
}


def driver_not_loaded(machine: Machine) -> Finding:
    """Return why the kernel module is not loaded, and how to load it."""
    other = _other_driver(machine)
    if other is not None:
        return other
    installed = machine.read.run("modinfo", "-F", "filename", "nvidia")
    if not (installed.ok and installed.code == 0 and installed.text.strip()):
        why = "Without NVIDIA's kernel modules there is no CUDA and no GPU memory."
        remedy = install_driver(machine)
        return finding.fail(
            "not installed", needed="loaded", why=why, remedy=remedy, sources=[MODULES]
        )
    why = "The kernel module is installed, but not loaded."
    remedy = ["sudo modprobe nvidia", "sudo dmesg | grep -i -e nvrm -e 'module verification'"]
    if machine.read.raw(_SECURE_BOOT).raw[4:5] == b"\1":
        why += " Secure Boot is on: the kernel loads only modules with a known signature."
        remedy.append(restart(f"sudo mokutil --import {_dkms_key(machine)}"))
    return finding.fail(
        "installed, not loaded", needed="loaded", why=why, remedy=remedy, sources=[MODULES]
    )


def _dkms_key(machine: Machine) -> str:
    """Return the file of the key with which DKMS signs modules; Ubuntu uses a key of its own."""
    ubuntu = machine.know(os_release).get("ID", "").lower() == "ubuntu"
    return "/var/lib/shim-signed/mok/MOK.der" if ubuntu else "/var/lib/dkms/mok.pub"


def _other_driver(machine: Machine) -> Finding | None:
    """Return the finding if another driver is bound to the GPU, else None."""
    devices = machine.know(pci.tree).devices
    found = machine.know(gpus.gpus)
    drivers = {devices[gpu.address].driver for gpu in found if gpu.address in devices}
    if "vfio-pci" in drivers:
        why = "The GPU is reserved for a virtual machine: this system cannot use it."
        remedy = ["# Run dgkit doctor in the virtual machine that has the GPU."]
        return finding.fail(
            "held by vfio-pci", needed="loaded", why=why, remedy=remedy, sources=[MODULES]
        )
    if "nouveau" in drivers:
        why = "The kernel's own driver holds the GPU; it has no CUDA."
        remedy = ["# The driver's package keeps nouveau from loading.", *install_driver(machine)]
        return finding.fail(
            "nouveau instead", needed="loaded", why=why, remedy=remedy, sources=[MODULES]
        )
    return None
