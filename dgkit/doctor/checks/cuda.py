# SPDX-License-Identifier: Apache-2.0
"""CUDA: the driver's version, the toolkit, and the Python libraries."""

from __future__ import annotations

from functools import partial

from ...units import size_text
from .. import finding, references
from ..facts import coherent, cuda, imex, virtual
from ..facts.cuda import Cuda
from ..facts.distribution import install_command, install_dgkit, install_driver
from ..facts.gpus import Gpu
from ..facts.kconfig import kconfig
from ..facts.nvidia_proc import version_key
from ..facts.nvidia_smi import smi
from ..facts.virtual import container
from ..finding import Finding
from ..goals import ANY_GPU, WITH_GPU, Goal
from ..machine import Case, Machine
from ..prerequisites import applies, driver_loaded, gpu_present, readable
from ..registry import check
from ..remedies import with_devices
from ._devices import per_gpu

_HOST = ("host",)
_CONTEXTS = references.CUDA_DRIVER_API("cuDevicePrimaryCtxRetain")
_RESULTS = references.CUDA_DRIVER_API("CUresult")
_TABLE = references.CUDA_COMPATIBILITY("Minor Version Compatibility, table 1")
_DEPENDENCY = references.GPUNETIO("CUDA Dependency")
_FILES = ("ls -l /dev/nvidia*", "sudo nvidia-modprobe -u -c 0")
# For each error of cuInit: what it means, and the remedy.
_ERRORS: dict[str, tuple[str, tuple[str, ...]]] = {
    "CUDA_ERROR_NO_DEVICE": (
        "CUDA sees no GPU: CUDA_VISIBLE_DEVICES hides it, or the driver did not start it.",
        ("echo $CUDA_VISIBLE_DEVICES", *_FILES),
    ),
    "CUDA_ERROR_SYSTEM_NOT_READY": (
        (
            "The GPUs are connected by NVSwitch, and the service that configures it does not run, "
            "or is of another version than the driver."
        ),
        (
            "sudo systemctl enable --now nvidia-fabricmanager",
            "# If it ends: install nvidia-fabricmanager of the driver's own version",
        ),
    ),
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": (
        "libcuda and the loaded kernel module are of different versions.",
        ("sudo reboot",),
    ),
    "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE": (
        "libcuda is from a forward compatibility package, which this GPU does not support.",
        ("echo $LD_LIBRARY_PATH", "# Remove the folder cuda/compat from it."),
    ),
    "CUDA_ERROR_OPERATING_SYSTEM": ("The device files cannot be opened.", _FILES),
    "CUDA_ERROR_UNKNOWN": (
        "Usually the kernel module nvidia-uvm or its device file is missing.",
        ("sudo modprobe nvidia-uvm", *_FILES),
    ),
}


def _not_queried(case: Case) -> str:
    found = case.machine.know(cuda.cuda)
    answered = found.code or found.missing or (found.version and not found.stuck)
    return "" if answered else f"CUDA was not queried: {found.why}"


@check(
    "cuda-driver",
    "CUDA of the driver",
    asks="Does CUDA start, and is it new enough for dgkit and for GPUNetIO?",
    goals=ANY_GPU,
    sides=_HOST,
    sources=[_TABLE],
    needed="12.0",
    requires=[
        gpu_present,
        driver_loaded,
        readable(_not_queried, "not queried", remedy=["nvidia-smi"], sources=[_RESULTS]),
    ],
)
def _cuda_driver(case: Case) -> Finding:
    known = case.machine.know(cuda.cuda)
    if known.code:
        name, why, remedy = _cuinit_error(known, case.machine)
        return finding.fail(
            name, needed="CUDA that starts", why=why, remedy=remedy, sources=[_RESULTS]
        )
    if known.missing:
        do = install_driver(case.machine)
        if case.machine.know(container).engine:
            do = with_devices(case.machine, gpu=True)
        why = f"CUDA's library libcuda.so.1 cannot be loaded ({known.why})."
        return finding.fail("no libcuda", why=why, remedy=do)
    return _judge_version(known, case)


def _cuinit_error(known: Cuda, machine: Machine) -> tuple[str, str, tuple[str, ...]]:
    """Return the name of cuInit's error, what it means, and the remedy."""
    name = known.error or f"cuInit: {known.code}"
    inside = bool(machine.know(container).engine)
    if inside and machine.know(smi).trouble == "unknown":
        return name, _LOST_RULES, (_NEW_CONTAINER, *with_devices(machine, gpu=True))
    if name == "CUDA_ERROR_OUT_OF_MEMORY" and (limit := _address_space(machine)):
        return name, f"{_NO_ADDRESSES} {size_text(limit)}.", ("ulimit -v unlimited",)
    if coherent.is_coherent(machine) and _lacks_sva(machine):
        return name, _NO_SVA, ("# Use a kernel that is built with CONFIG_ARM_SMMU_V3_SVA=y",)
    if name == "CUDA_ERROR_SYSTEM_NOT_READY" and (other := _not_ready(machine)):
        return (name, *other)
    if inside and name == "CUDA_ERROR_NO_DEVICE":
        return (
            name,
            "CUDA sees no GPU: CUDA_VISIBLE_DEVICES hides it, or this container has no access.",
            ("echo $CUDA_VISIBLE_DEVICES", *with_devices(machine, gpu=True)),
        )
    if inside and name == "CUDA_ERROR_UNKNOWN" and _UVM in machine.read.names("/dev").names:
        return name, _NO_UVM_RULE, (*_UVM_FIRST, _NEW_CONTAINER)
    if inside and name == "CUDA_ERROR_UNKNOWN":
        why = "Usually the container lacks the device file /dev/nvidia-uvm."
        return name, why, ("ls -l /dev/nvidia*", *with_devices(machine, gpu=True))
    return (
        name,
        *_ERRORS.get(name, ("CUDA does not start.", ("sudo dmesg | grep -i nvrm",))),
    )


def _not_ready(machine: Machine) -> tuple[str, tuple[str, ...]] | None:
    """Return the meaning and remedy of 802 if no fabric manager here can fix it, else None."""
    if machine.know(virtual.is_confidential):
        why = "In a guest with confidential computing a GPU starts when it is set ready."
        return why, ("nvidia-smi conf-compute -grs", "sudo nvidia-smi conf-compute -srs 1")
    if machine.know(imex.is_multi_node):
        why = "The switches outside of this machine have not connected its GPUs yet."
        return why, ("nvidia-smi -q | grep -A 5 Fabric", "# Ask the operator of these switches.")
    if machine.know(virtual.virtual).is_vm:
        why = (
            "The GPUs are connected by NVSwitch, and the service that configures it is not running."
        )
        manager = "sudo systemctl enable --now nvidia-fabricmanager"
        return why, (f"# Where the NVSwitches are, the hypervisor or this guest: {manager}",)
    return None


_NO_ADDRESSES = (
    "CUDA reserves addresses for the memory of all GPUs and of the host, and this process may have"
)


def _address_space(machine: Machine) -> int:
    """Return the limit of the process's address space in bytes; 0 if there is none or unknown."""
    limits = machine.read.ask("address-space").data
    soft = limits.get("soft") if isinstance(limits, dict) else None
    return soft if isinstance(soft, int) else 0


_LOST_RULES = (
    "This container lost its GPUs while it ran: `systemctl daemon-reload` on the host wrote its "
    "device rules again, without them."
)
_UVM = "nvidia-uvm"
_NO_UVM_RULE = (
    "This container has the device file /dev/nvidia-uvm, and usually may not open it: it was "
    "started before the host loaded nvidia-uvm."
)
_UVM_FIRST = ("# On the host, at each start before that of containers: nvidia-modprobe -u -c 0",)
_NEW_CONTAINER = "# Start a new container: it cannot be fixed inside this one."
_NO_SVA = (
    "The kernel is built without CONFIG_ARM_SMMU_V3_SVA: a GPU that shares the CPU's page tables "
    "cannot be used."
)


def _lacks_sva(machine: Machine) -> bool:
    known = machine.know(kconfig)
    smmu = known["CONFIG_ARM_SMMU_V3"] == "y"
    return smmu and known.options.get("CONFIG_ARM_SMMU_V3_SVA") == "n"


def _judge_version(known: Cuda, case: Case) -> Finding:
    machine = case.machine
    found = f"CUDA {known.text}" + ("" if known.by == "CUDA" else f", says {known.by}")
    if known.version < (12, 0):
        why = "dgkit's CUDA libraries and GPUNetIO require CUDA 12 or newer."
        if case.goal is not Goal.GPUNETIO:  # other programs work with the installed version
            return finding.ok(found, needed="12.0 for dgkit", why=why)
        remedy = install_driver(machine)
        return finding.fail(found, why=why, remedy=remedy)
    why = "" if known.by == "CUDA" else f"CUDA itself was not queried: {known.why}."
    return finding.ok(found, why=why)


def _not_probed(case: Case, *, late: bool) -> str:
    reading = case.machine.read.probe("context")
    return reading.unread if (reading.fault == "late") is late else ""


def _cuda_starts(case: Case) -> bool:
    found = case.machine.know(cuda.cuda)
    return not (found.code or found.missing)


@check(
    "cuda-context",
    "CUDA context",
    asks="Can CUDA create a context on each GPU, without which no memory of it can be used?",
    goals=ANY_GPU,
    sides=_HOST,
    sources=[_CONTEXTS],
    needed="one",
    requires=[
        gpu_present,
        driver_loaded,
        applies(_cuda_starts, "CUDA does not start: see cuda-driver"),
        applies(lambda case: not case.machine.read.probe("context").absent, "not probed"),
        readable(partial(_not_probed, late=True), "not created in time"),
        readable(partial(_not_probed, late=False), "not probed"),
    ],
)
@per_gpu
def _cuda_context(case: Case, gpu: Gpu) -> Finding:
    created = case.machine.know(cuda.contexts).get(gpu.address)
    if created is None or created.code is None:
        why = finding.sentence((created and created.why) or _not_listed(case.machine))
        return finding.unknown("not created", why=why, remedy=["nvidia-smi"])
    if created.code == 0:
        return finding.ok("created")
    name = created.error or f"error {created.code}"
    listed = [one for one in case.machine.know(smi).gpus if one.address == gpu.address]
    mode = next((one.value("Compute Mode") for one in listed), "")
    if any(one.unlicensed for one in listed):
        why = "A virtual GPU gives contexts only with a licence, which this one lacks."
        return finding.fail(name, why=why, remedy=["nvidia-smi -q | grep -i license"])
    if created.code == _UNAVAILABLE and mode.startswith("Exclusive"):
        why = f"The GPU's mode is {mode}, and a process uses it: a second one gets no context."
        remedy = ["nvidia-smi", "# End that process, use MPS, or allow several: nvidia-smi -c 0"]
        return finding.warn(f"in use, {mode}", why=why, remedy=remedy)
    if created.code == _OUT_OF_MEMORY:
        why = "No memory of the GPU is left for a context."
        remedy = ["nvidia-smi", "# End the processes that hold its memory."]
        return finding.warn("GPU memory is full", why=why, remedy=remedy)
    if coherent.smmu_passthrough(case.machine):
        why = "The SMMU is in passthrough, which CUDA cannot use on this GPU before Linux 6.11."
        return finding.fail(name, why=why, remedy=["dgkit doctor iommu"])
    why = "CUDA starts, but cannot use this GPU."
    remedy = ["nvidia-smi", "sudo dmesg | grep -i -e nvrm -e xid"]
    return finding.fail(name, why=why, remedy=remedy)


_OUT_OF_MEMORY, _UNAVAILABLE = 2, 46
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def _not_listed(machine: Machine) -> str:
    """Return why CUDA lists no such GPU: the variable that hides it, if it is set."""
    known = machine.read.ask("environ").data
    visible = known.get(_VISIBLE) if isinstance(known, dict) else None
    hidden = "" if visible is None else f": {_VISIBLE}={visible} hides it"
    return f"CUDA does not list this GPU{hidden}"


def _toolkit_unread(case: Case) -> str:
    found = case.machine.know(cuda.toolkits)
    return "" if found.version else found.why


@check(
    "cuda-toolkit",
    "CUDA toolkit",
    asks="Is there a CUDA toolkit that can build GPUNetIO programs?",
    goals=WITH_GPU,
    sides=_HOST,
    sources=[_DEPENDENCY],
    requires=[
        gpu_present,
        applies(
            lambda case: case.goal is Goal.GPUNETIO or case.machine.know(cuda.toolkits).version,
            "not installed, not needed",
        ),
        readable(_toolkit_unread, "not read", needed="13.0", remedy=["nvcc --version"]),
    ],
)
def _cuda_toolkit(case: Case) -> Finding:
    machine, building = case.machine, case.goal is Goal.GPUNETIO
    known = machine.know(cuda.toolkits)
    if known.version:
        text = ".".join(map(str, known.version))
        others = f" (also {', '.join(known.others)})" if known.others else ""
        found, needed = f"{text}, by {known.where}{others}", "13.0" if building else "not needed"
        supported = machine.know(cuda.cuda).version
        if supported and known.version[0] > supported[0]:
            driver = ".".join(map(str, supported))
            why = (
                f"The driver supports CUDA {driver}: programs of a newer major version do not "
                "start."
            )
            if not building:  # another toolkit or a container's compatibility package may suffice
                return finding.ok(found, needed=needed, why=why, sources=[_TABLE])
            remedy = install_driver(machine)
            return finding.fail(found, needed=needed, why=why, remedy=remedy, sources=[_TABLE])
        if not building or known.version >= (13, 0):
            return finding.ok(found, needed=needed)
        if known.version < (12, 0):
            remedy = [install_command(machine, "cuda-toolkit-13-0", "cuda-toolkit-13-0")]
            why = "GPUNetIO's headers need CUDA 12 or newer."
            return finding.fail(found, needed=needed, why=why, remedy=remedy)
        why = "Ethernet and Verbs can be built; DMA, Comch and RDMA cannot."
        if known.version < (12, 6):
            why += " Up to 12.5 its installer installs the open modules only with -m=kernel-open."
        return finding.ok(found, needed="12; 13.0 for all parts", why=why, disagree=_FLOORS)
    why = "There is no nvcc, and GPUNetIO's device functions are compiled with the program."
    remedy = [install_command(machine, "cuda-toolkit-13-0", "cuda-toolkit-13-0")]
    why += " Programs that are already built need none."
    return finding.warn("none", needed="13.0", why=why, remedy=remedy)


_FLOORS = (
    "The GPUNetIO guide recommends CUDA 12.6 or newer; its static library (DMA, Comch, RDMA) is "
    "built with CUDA 13.0, and programs that link it need 13.0 or newer."
)


# Minimum versions in the extras cuda12 and cuda13 of dgkit.
_LEAST = {"CuPy": (13, 6), "cuda-core": (1, 2)}


def _gpu_info(machine: Machine) -> dict[str, object]:
    """Return the section on GPUs of `dgkit info`; {} if it is missing."""
    answer = machine.read.probe("info").data
    gpu = answer.get("gpu") if isinstance(answer, dict) else None
    return gpu if isinstance(gpu, dict) else {}


def _libraries_unread(case: Case) -> str:
    if isinstance(_gpu_info(case.machine).get("libraries"), dict):
        return ""
    return case.machine.read.probe("info").why or "The output of dgkit info lists no libraries"


@check(
    "cuda-python",
    "CuPy and cuda-core",
    asks="Are CuPy and cuda-core installed, which dgkit allocates GPU memory with?",
    goals=[Goal.ARM_DMA, Goal.RDMA],
    sides=_HOST,
    sources=[_TABLE],
    requires=[
        gpu_present,
        driver_loaded,
        readable(_libraries_unread, "not read", remedy=["dgkit info"]),
    ],
)
def _cuda_python(case: Case) -> Finding:
    gpu = _gpu_info(case.machine)
    listed = gpu.get("libraries")
    assert isinstance(listed, dict)
    known = case.machine.know(cuda.cuda)
    remedy = install_dgkit(case.machine, f"cuda{13 if known.version >= (13,) else 12}")
    found = ", ".join(f"{name} {listed.get(name, 'missing')}" for name in _LEAST)
    needed = "CuPy 13.6, cuda-core 1.2"
    why = _wrong_versions(listed, known.version)
    if not why and known.code:
        name, _, do = _cuinit_error(known, case.machine)
        why = f"They could not be tested, since CUDA does not start ({name}): see cuda-driver."
        return finding.unknown(found, needed=needed, why=why, remedy=do, sources=[_RESULTS])
    if not why and gpu.get("why"):
        why = f"{str(gpu['why']).rstrip('.')}."
    if why:
        if () < known.version < (12, 0):
            remedy = []  # do not replace a driver only for dgkit: other programs may need it
        return finding.fail(found, needed=needed, why=why, remedy=remedy)
    return finding.ok(found, needed=needed)


def _wrong_versions(listed: dict[str, object], supported: tuple[int, ...]) -> str:
    """Return a sentence that says which library versions are wrong; "" if none is."""
    for name, least in _LEAST.items():
        version = str(listed.get(name, "missing"))
        if version == "missing":
            return f"{name} is not installed: dgkit.empty(on='gpu') does not work."
        if () < version_key(version) < least:
            return f"{name} {version} is older than {'.'.join(map(str, least))}."
    if () < supported < (12, 0):
        return "dgkit's CUDA libraries require CUDA 12: driver 525 or later."
    bindings = version_key(str(listed.get("cuda-bindings", "")))
    if bindings and supported and bindings[0] > supported[0]:
        driver = ".".join(map(str, supported))
        return f"The libraries are built for CUDA {bindings[0]}, but the driver supports {driver}."
    return ""
