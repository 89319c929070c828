# SPDX-License-Identifier: Apache-2.0
"""NVIDIA driver: version, open or closed kernel modules, persistence mode, registry keys."""

from __future__ import annotations

import re

import msgspec

from .. import finding, references
from ..facts import gpudirect, gpus, nvidia_proc, pairs, pci
from ..facts.cuda import toolkits
from ..facts.distribution import initramfs, install_driver, os_release, restart
from ..facts.gpus import Gpu
from ..facts.nvidia_proc import Driver, version_key
from ..facts.nvidia_smi import smi
from ..facts.peermem import peermem_state, prefers_peermem
from ..facts.privileges import has_admin, in_user_namespace
from ..facts.uname import uname
from ..facts.virtual import container
from ..finding import Finding, Verdict
from ..goals import ANY_GPU, WITH_GPU, Goal
from ..machine import Case, Machine
from ..prerequisites import NO_GPU, applies, driver_loaded, gpu_present, readable
from ..registry import check
from ..remedies import with_devices
from ._devices import per_gpu
from .kernel_log import gpu_remedy

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
    "handle": (
        "GPU does not answer",
        "It has fallen off the bus, or its confidential mode does not fit this system.",
        ("sudo dmesg | grep -i -e xid -e fsp", "# Power the machine off and on."),
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
    if known := gpu_remedy(machine):  # it was loaded, and did not start the GPU
        return finding.fail(
            "installed, does not start", needed="loaded", why=why, remedy=known, sources=[MODULES]
        )
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


_HOST = ("host",)
_GUIDE = references.GPUNETIO
_INSTALL = _GUIDE("GPU Memory Mapping, Using dmabuf")
_TABLE = references.CUDA_COMPATIBILITY("Minor Version Compatibility, table 1")
_KERNEL_MODULES = references.DRIVER_GUIDE("Kernel Modules")
_OVERVIEW = references.GPUDIRECT("Overview")
_CONF = "/etc/modprobe.d/nvidia.conf"
_PLAIN = re.compile(r"[\w.-]{1,64}", re.ASCII)  # key or value that is safe to write into _CONF


def _gpus_unread(case: Case) -> str:
    why = case.machine.know(pci.tree).why
    unread = why and not case.machine.know(gpus.gpus)
    return f"The PCI devices cannot be listed: {why}" if unread else ""


@check(
    "gpu-present",
    "NVIDIA GPU",
    asks="Is there an NVIDIA GPU in this machine?",
    goals=ANY_GPU,
    sides=_HOST,
    needed="one or more",
    requires=[readable(_gpus_unread, "not read", remedy=["lspci -d 10de:"], sources=[_OVERVIEW])],
)
def _gpu_present(case: Case) -> Finding:
    source = _OVERVIEW
    if case.machine.know(gpus.gpus):
        return _judge_present(case.machine, [source])
    remedy = ["lspci -d 10de:", "# Without a GPU: dgkit doctor --goal laptop"]
    why = _why_no_gpu(case.machine)
    return finding.fail(NO_GPU, why=why, remedy=remedy, sources=[source])


def _why_no_gpu(machine: Machine) -> str:
    """Return why there may be no GPU, as a sentence."""
    model = machine.read.text("/proc/device-tree/model").text.lower()
    why = "No PCI device is an NVIDIA GPU: there is none, it is switched off, or it is not passed "
    why += "through to this virtual machine."
    if "jetson" in model or "tegra" in model:
        why = "The GPU of a Tegra is not a PCI device: CPU and GPU share one memory, which other "
        why += "devices reach if it is pinned."
    elif machine.know(uname).wsl:
        why = "Under WSL the GPU belongs to Windows and is not a PCI device: its memory cannot be "
        why += "shared with a NIC or DPU."
    return why


def _judge_present(machine: Machine, source: list[references.Source]) -> Finding:
    found, used = machine.know(gpus.gpus), gpus.usable(machine)
    names = sorted({gpu.name or gpu.address for gpu in used})
    text = ("" if len(used) == 1 else f"{len(used)} x ") + ", ".join(names)
    if any(gpu.unlicensed for gpu in machine.know(smi).gpus):
        why = "A virtual GPU without a licence becomes slow, or gives no CUDA context."
        remedy = ["nvidia-smi -q | grep -i license", "sudo systemctl restart nvidia-gridd"]
        source = [references.AI_ENTERPRISE("licensing")]
        return finding.warn(f"{text}: no licence", why=why, remedy=remedy, sources=source)
    if len(used) == len(found):
        return finding.ok(text, sources=source)
    hidden = [gpu.address for gpu in found if gpu not in used]
    others, devices = ", ".join(hidden), machine.know(pci.tree).devices
    given = all(at in devices and devices[at].driver == "vfio-pci" for at in hidden)
    if given or machine.know(container).engine:
        why = f"{others}: not for this container." if not given else f"{others}: for guests (VFIO)."
        return finding.ok(f"{text}, of {len(found)}", why=why, sources=source)
    return finding.warn(
        f"{text}, of {len(found)}",
        why=f"nvidia-smi does not list {others}: another driver holds it, or it does not answer "
        "any more.",
        remedy=["nvidia-smi -L", "sudo dmesg | grep -i xid"],
        sources=source,
    )


def _gpu(case: Case) -> Finding | None:
    """Require a GPU; without one, give the reason, as error messages refer to driver-loaded."""
    missing = gpu_present(case)
    if missing is None:
        return None
    unread = missing.verdict is Verdict.UNKNOWN
    why = missing.why if unread else _why_no_gpu(case.machine)
    return msgspec.structs.replace(missing, needed="dgkit doctor gpu-present", why=why)


@check(
    "driver-loaded",
    "NVIDIA driver",
    asks="Is NVIDIA's kernel driver loaded, and do its libraries and device files work?",
    goals=ANY_GPU,
    sides=_HOST,
    sources=[MODULES],
    needed="loaded",
    requires=[_gpu],
)
def _driver_loaded(case: Case) -> Finding:
    driver, nvidia_smi = case.machine.know(nvidia_proc.driver), case.machine.know(smi)
    if driver.loaded is False and not nvidia_smi.driver:
        return driver_not_loaded(case.machine)
    if nvidia_smi.trouble in SMI_FAILURES and not _unexplained(case.machine):
        found, why, remedy = SMI_FAILURES[nvidia_smi.trouble]
        if nvidia_smi.trouble == "devices" and (unsupported := _unsupported(case.machine, driver)):
            found, why, remedy = unsupported
        if nvidia_smi.trouble == "unknown":
            remedy = ("# Start a new container.", *with_devices(case.machine, gpu=True))
        if nvidia_smi.trouble == "mismatch" and _is_on_disk(case.machine, driver.version):
            why = "The libraries were updated, and the kernel module, also that on disk, was not."
            remedy = ("# Install the module of the libraries' version; only then restart.",)
        if nvidia_smi.trouble in ("devices", "driver", "lost", "handle"):
            remedy = gpu_remedy(case.machine) or remedy
        why = f"{why} nvidia-smi: {nvidia_smi.why.rstrip('.')}."
        source = [references.NVIDIA_SMI()]
        return finding.fail(found, why=why, remedy=remedy, sources=source)
    if _lacks_device_files(case.machine):
        why = "Programs access the GPU through /dev/nvidia0 and /dev/nvidiactl, which are missing."
        do = ["sudo nvidia-modprobe -c 0 -u"]
        if case.machine.know(container).engine:
            do = with_devices(case.machine, gpu=True)
        return finding.fail("no device files", why=why, remedy=do)
    if driver.loaded is None and not nvidia_smi.driver:
        return finding.unknown("?", why=f"{driver.why}.", remedy=["nvidia-smi"])
    version = driver.version or nvidia_smi.driver or "version not known"
    return _restricted(case.machine) or finding.ok(f"{version}, loaded")


def _is_on_disk(machine: Machine, version: str) -> bool:
    """Return whether a restart would load the same version of the module again."""
    on_disk = machine.read.run("modinfo", "-F", "version", "nvidia").text.strip()
    return bool(version) and on_disk == version


def _unsupported(machine: Machine, driver: Driver) -> tuple[str, str, tuple[str, ...]] | None:
    """Return finding, reason and remedy if the driver's branch or modules exclude a GPU, else None.

    NVIDIA's driver README, Open Linux Kernel Modules: these support GPUs from Turing on, and only
    they support Blackwell.
    """
    old, every = machine.know(gpudirect.before_turing), machine.know(gpus.gpus)
    if driver.flavour == "closed" and any(gpudirect.is_open_only(machine, gpu) for gpu in every):
        why = "Blackwell and later GPUs are supported by the open modules only."
        do = tuple(install_driver(machine))
        return f"{driver.version}, closed: not for this GPU", why, do
    if len(old) < len(every):
        return None
    last = gpudirect.last_branch(machine) or 580
    if version_key(driver.version) > (last + 1,):
        why = f"The last driver branch for this GPU is {last}."
        return f"{driver.version}, too new for this GPU", why, (f"# Install its branch {last}",)
    if driver.flavour == "open":
        why = "The open modules support no GPU before Turing, which has no GSP."
        do = ("# Install the closed modules of this branch, or of an earlier one: 580 is the last",)
        return f"{driver.version}, open: not for this GPU", why, do
    return None


def _unexplained(machine: Machine) -> bool:
    """Return whether NVML reports Unknown Error and no container's rules explain it."""
    return machine.know(smi).trouble == "unknown" and not machine.know(container).engine


def _lacks_device_files(machine: Machine) -> bool:
    """Return whether /dev is known to lack the device files; nvidia-smi creates them if it may."""
    listing = machine.read.names("/dev")
    lacks = "nvidiactl" not in listing.names and "dxg" not in listing.names  # dxg is WSL's device
    return listing.ok and lacks and not machine.know(smi).gpus


def _restricted(machine: Machine) -> Finding | None:
    """Return a warning if the driver's DeviceFileMode excludes this user, else None."""
    params = nvidia_proc.key_values(machine.read.text(_PARAMS).text)
    mode = params.get("DeviceFileMode", "")
    if (
        not re.fullmatch("[0-9]{1,9}", mode)
        or int(mode) & 0o6 == 0o6
        or machine.read.ask("euid").data == 0
    ):
        return None
    if machine.know(smi).gpus:  # nvidia-smi works, so the user is in the group
        return None
    group = params.get("DeviceFileGID", "0")
    group = group if re.fullmatch(r"\d{1,10}", group, re.ASCII) else "0"
    return finding.warn(
        f"device files are {int(mode) & 0o777:04o}",
        needed="0666, or the group",
        why=f"Only root and the group {group} may open /dev/nvidia*.",
        remedy=[f"sudo usermod -aG $(getent group {group} | cut -d: -f1) $USER"],
    )


def _flavour_unread(case: Case) -> str:
    driver = case.machine.know(nvidia_proc.driver)
    return "" if driver.flavour else driver.why or "The kernel does not say which they are"


@check(
    "driver-flavour",
    "Open kernel modules",
    asks="Are the open kernel modules installed, which dma-buf needs?",
    goals=WITH_GPU,
    sides=_HOST,
    sources=[_INSTALL],
    needed="open",
    requires=[
        gpu_present,
        driver_loaded,
        readable(
            _flavour_unread,
            "open or closed: not known",
            remedy=["cat /proc/driver/nvidia/version", "modinfo -F license nvidia"],
        ),
    ],
)
def _driver_flavour(case: Case) -> Finding:
    machine = case.machine
    driver = machine.know(nvidia_proc.driver)
    if driver.flavour == "open":
        return finding.ok(f"open, {driver.version}")
    if len(machine.know(gpudirect.before_turing)) == len(machine.know(gpus.gpus)):
        why = "The open modules support no GPU before Turing: use nvidia-peermem with the closed "
        why += f"ones, whose last branch for it is {gpudirect.last_branch(machine) or 580}."
        found, needed = f"closed, {driver.version}", "closed: before Turing"
        return finding.ok(found, needed=needed, why=why, sources=[_KERNEL_MODULES])
    return _judge_closed_modules(case, driver)


def _judge_closed_modules(case: Case, driver: Driver) -> Finding:
    machine = case.machine
    states = {"loaded": "is loaded", "loadable": "can be loaded", "absent": "is not installed"}
    states["unregistered"] = "is loaded, but not registered"
    state = machine.know(peermem_state)
    peermem = f"The older alternative, nvidia-peermem, {states.get(state, 'may be installed')}."
    if state == "loaded":
        found, why = f"closed, {driver.version}", f"There is no dma-buf. {peermem}"
        return finding.ok(found, needed="open, or peermem", why=why)
    if why := machine.know(prefers_peermem):
        found, needed = f"closed, {driver.version}", "any, for peermem"
        return finding.ok(found, needed=needed, why=f"{why}: see peermem.")
    if machine.know(nvidia_proc.modules) is None:
        found, why = f"closed, {driver.version}", "Whether nvidia-peermem is loaded is not known."
        do = ["grep -E 'nvidia_peermem|nv_peer_mem' /proc/modules"]
        return finding.unknown(found, needed="open, or peermem", why=why, remedy=do)
    alone = not pairs.peers(machine, case.goal) and not machine.know(pci.tree).why
    make = finding.fail if state == "absent" and not alone else finding.warn
    unused = " There is no NIC or DPU here that would use one." if alone else f" {peermem}"
    return make(
        f"closed, {driver.version}",
        why=f"GPU memory cannot be exported as a dma-buf.{unused}",
        remedy=_install_open(machine),
        sources=[_INSTALL, _KERNEL_MODULES],
    )


def _install_open(machine: Machine) -> list[str]:
    """Return the commands that install the open modules, unless they do not support a GPU."""
    old = machine.know(gpudirect.before_turing)
    if not old:
        return install_driver(machine)
    names = ", ".join(gpu.name or gpu.address for gpu in old)
    return [f"# The open modules do not support {names}: remove it first, or use nvidia-peermem"]


def _version(machine: Machine) -> str:
    return machine.know(nvidia_proc.driver).version or machine.know(smi).driver


def _version_unread(case: Case) -> str:
    if version_key(_version(case.machine)):
        return ""
    return case.machine.know(nvidia_proc.driver).why or "Neither the kernel nor nvidia-smi gives it"


@check(
    "driver-version",
    "NVIDIA driver version",
    asks="Is the driver new enough for CUDA, DOCA and GPUNetIO?",
    goals=WITH_GPU,
    sides=_HOST,
    requires=[
        gpu_present,
        driver_loaded,
        readable(
            _version_unread,
            "version not known",
            needed="525",
            remedy=["cat /proc/driver/nvidia/version"],
            sources=[_TABLE],
        ),
    ],
)
def _driver_version(case: Case) -> Finding:
    machine = case.machine
    known, source = _version(machine), _TABLE
    needed = "580" if case.goal is Goal.GPUNETIO else "525"
    remedy = install_driver(machine)
    if version_key(known) < (525,) and case.goal is not Goal.GPUNETIO:
        why = "Programs of CUDA 12, as dgkit's, need driver 525; older ones work with this driver."
        return finding.ok(known, needed="525 for dgkit", why=why, sources=[source])
    if version_key(known) < (525,):
        why = "CUDA 12, the oldest that dgkit and GPUNetIO support, needs driver 525."
        return finding.fail(known, needed=needed, why=why, remedy=remedy, sources=[source])
    if needed == "580" and version_key(known) < (580,):
        why = (
            "GPUNetIO's static library (DMA, Comch, RDMA) is built with CUDA 13.0, which needs "
            "driver 580; its header-only parts (Ethernet, Verbs) need CUDA 12."
        )
        both = [source, _GUIDE("CUDA Dependency")]
        if machine.know(toolkits).version >= (13,):  # programs built here do not start
            return finding.warn(known, needed=needed, why=why, remedy=remedy, sources=both)
        return finding.ok(known, needed="525; 580 for all parts", why=why, sources=both)
    return finding.ok(known, needed=needed, sources=[source])


@check(
    "driver-persistence",
    "Persistence mode",
    asks="Does the driver stay initialised while the GPU is idle?",
    goals=WITH_GPU,
    sides=_HOST,
    needed="on",
    requires=[gpu_present, driver_loaded],
)
@per_gpu
def _driver_persistence(case: Case, gpu: Gpu) -> Finding:
    source = _GUIDE("CUDA Dependency")
    if gpu.persistence is None:
        why = case.machine.know(smi).why or "nvidia-smi does not report it"
        ask = ["nvidia-smi --query-gpu=persistence_mode --format=csv"]
        return finding.unknown("?", why=f"{why}.", remedy=ask, sources=[source])
    if gpu.persistence:
        return finding.ok("on", sources=[source])
    why = "The driver is initialised again for the first program, which takes seconds."
    if case.goal is not Goal.GPUNETIO:
        return finding.ok("off", needed="on saves seconds", why=why, sources=[source])
    return finding.warn(
        "off",
        why=why,
        remedy=["sudo nvidia-smi -pm 1", "sudo systemctl enable --now nvidia-persistenced"],
        sources=[source],
    )


_PARAMS, _OVERRIDE = "/proc/driver/nvidia/params", "PeerMappingOverride=1"
_WITHOUT_ROOT = _GUIDE("Running without Root Privileges")
_ADMIN_UNREAD = "Whether root has CAP_SYS_ADMIN here is not known: /proc/self/status was not read"


@check(
    "driver-registry",
    "Use without root",
    asks="Can GPUNetIO Verbs, RDMA and DMA run without root (PeerMappingOverride)?",
    goals=[Goal.GPUNETIO],
    sides=_HOST,
    sources=[_WITHOUT_ROOT],
    needed=_OVERRIDE,
    requires=[
        gpu_present,
        driver_loaded,
        applies(
            lambda case: not case.machine.read.text(_PARAMS).absent, "the driver has no such file"
        ),
        applies(lambda case: has_admin(case.machine) is not True, "runs as root"),
        readable(
            lambda case: _ADMIN_UNREAD if has_admin(case.machine) is None else "",
            "not known",
            remedy=["grep CapEff /proc/self/status"],
        ),
        readable(
            lambda case: case.machine.read.text(_PARAMS).unread,
            "not read",
            remedy=["sudo grep RegistryDwords /proc/driver/nvidia/params"],
        ),
    ],
)
def _driver_registry(case: Case) -> Finding:
    registry = nvidia_proc.registry(case.machine.read.text(_PARAMS).text)
    if registry.get("PeerMappingOverride") == "1":
        return finding.ok(_OVERRIDE)
    inside = case.machine.know(container).engine
    written = not inside and "PeerMappingOverride=1" in case.machine.read.text(_CONF).text
    write = [] if written else [_override_command(registry)]
    restart = "# Switch the machine off and on: the guide requires a cold reboot."
    remedy = [*write, initramfs(case.machine), restart]
    why = "GPUNetIO Verbs, RDMA and DMA, and NVSHMEM's IBGDA, need root; Ethernet always does."
    if case.machine.know(in_user_namespace):
        why += " Root of a rootless container is a user for the driver."
        remedy = [_KEY_ON_HOST]
    elif inside:
        why += " Root of a container without CAP_SYS_ADMIN is a user for the driver."
        remedy = [*_PRIVILEGED[case.machine.know(container).engine == "Kubernetes"], _KEY_ON_HOST]
    return finding.warn(
        "written, not in force yet" if written else "not set",
        why=why,
        remedy=remedy,
        sources=[_WITHOUT_ROOT, references.OPEN_MODULES("os-interface.c, os_is_administrator")],
    )


_KEY_ON_HOST = (
    "# Or set the key on the host, where `dgkit doctor driver-registry` prints the command."
)
# How to give a container CAP_SYS_ADMIN; the key is whether it runs in Kubernetes.
_PRIVILEGED = {
    False: ["# Start the container with --privileged, or with --cap-add=SYS_ADMIN."],
    True: ["# In the pod: securityContext: privileged: true, or capabilities: add: [SYS_ADMIN]."],
}


def _override_command(registry: dict[str, str]) -> str:
    """Return the command that adds PeerMappingOverride=1 to the driver's registry keys."""
    keys = {**registry, "PeerMappingOverride": "1"}
    if not all(_PLAIN.fullmatch(word) for item in keys.items() for word in item):
        return f"# add PeerMappingOverride=1; to NVreg_RegistryDwords in {_CONF}"
    words = "".join(f"{name}={value};" for name, value in keys.items())
    # all keys in one line, because only the last such line takes effect
    line = f'options nvidia NVreg_RegistryDwords="{words}"'
    return f"echo '{line}' | sudo tee -a {_CONF}"
