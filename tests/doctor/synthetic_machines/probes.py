# SPDX-License-Identifier: Apache-2.0
"""What libraries answer, as dgkit/doctor/probes.py asks them, and what is installed of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from doctor.synthetic_machines.tree import Node

if TYPE_CHECKING:
    from doctor.synthetic_machines.hosts import Host

_PACKAGES = ("common", "dma", "comch", "rdma", "eth", "gpunetio", "verbs", "flow", "argp")
_LAB = {
    "jupyterlab": "4.5.0",
    "ipython": "9.6.0",
    "ipywidgets": "8.1.8",
    "anywidget": "0.9.18",
    "bokeh": "3.8.1",
    "numpy": "2.4.6",
}
# As dgkit/doctor/probes.py asks for them.
_DOCA = ("common", "dma", "comch", "rdma", "eth", "verbs", "gpunetio")
_ASKED = (
    *("libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.13", "libcudart.so.12", "libcudart.so"),
    *("libgdrapi.so.2", "libibverbs.so.1", "libmlx5.so.1", "librdmacm.so.1"),
)
_CAPABILITY = {"t4": [7, 5], "l40s": [8, 9], "rtx": [8, 6], "h100": [9, 0], "gb10": [12, 1]}
_OFED = "OFED-internal-25.10-1.7.1:\n"
_NOT_THERE = "cannot open shared object file: No such file or directory"


def probes(host: Host, tree: Sequence[Node]) -> dict[str, object]:
    """All answers, and the folders of DOCA, of CUDA and of the modules."""
    machine = host.system.machine
    made: dict[str, object] = {"probe libraries": _libraries(host, machine)}
    made["probe cuda"] = _cuda(host, [node for node in tree if node.kind.is_gpu])
    made["probe context"] = _contexts(made["probe cuda"])
    for node in tree:
        if "rdma" in node.words:
            made[f"probe rdma-dmabuf {node.words['rdma']}"] = _dmabuf(
                host, node.words["rdma"], machine
            )
    if host.doca:
        made |= doca(host.doca, machine)
        made["run ofed_info -s"] = _OFED
    if host.driver:
        made |= _installed(host)
    made["names /dev"] = _devices(host, tree)
    rdma = [node for node in tree if "rdma" in node.words]
    if rdma:
        made["names /dev/infiniband"] = ["rdma_cm", *(f"uverbs{at}" for at in range(len(rdma)))]
    made["probe core"] = {"dgkit": "0.1.0", "python": "3.12.3", "loaded": True, "why": ""}
    made["probe info"] = _info(host)
    made["ask packages"] = _packages(host)
    return made


def _gpu_packages(host: Host) -> dict[str, str]:
    if host.driver is None:
        return dict.fromkeys(("CuPy", "cuda-core", "cuda-bindings"), "missing")
    old = host.driver.cuda.startswith("12")
    cupy, bindings = ("13.6.0", "12.9.4") if old else ("14.2.0", "13.3.1")
    return {"CuPy": cupy, "cuda-core": "1.2.2", "cuda-bindings": bindings}


def _packages(host: Host) -> dict[str, str]:
    """Versions of what dgkit and its notebooks take, "" for what is not there."""
    gpu = {name: "" if v == "missing" else v for name, v in _gpu_packages(host).items()}
    cupy = {"cupy-cuda13x": "", "cupy-cuda12x": "", "cupy": ""}
    if host.driver:
        cupy[f"cupy-cuda{host.driver.cuda[:2]}x"] = gpu["CuPy"]
    del gpu["CuPy"]
    return {**_LAB, **cupy, **gpu}


def _info(host: Host) -> dict[str, Any]:
    """What `dgkit info --json` says, as far as the doctor asks."""
    why = "the NVIDIA driver's library was not found"
    if host.driver and host.driver.broken:
        why = "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
    cuda, doca = bool(host.driver and not host.driver.broken), bool(host.doca)
    rows = (
        ("soft", True, "software DPU", "this machine's CPU copies"),
        ("cuda", cuda, "software DPU, GPU copy engine", "" if cuda else why),
        ("doca", doca, "hardware", "" if doca else "DOCA's libraries were not found"),
        ("softdoca", True, "software DPU, softdoca", "this machine's CPU behind DOCA's interface"),
    )
    providers = [dict(zip(("name", "usable", "label", "why"), row, strict=True)) for row in rows]
    packages = {"cffi": "2.1.1", "numpy": "2.4.6", "pyzmq": "27.3.0", "msgspec": "0.22.0"}
    return {
        "package": {"dgkit": "0.1.0", "python": "3.12.3", "libraries": packages},
        "core": {"loaded": True, "why": ""},
        "providers": providers,
        "gpu": {"why": "" if cuda else why, "gpus": [], "libraries": _gpu_packages(host)},
    }


def _folder(machine: str) -> str:
    return f"/usr/lib/{machine}-linux-gnu"


def _libraries(host: Host, machine: str) -> dict[str, dict[str, str]]:
    there = _there(host, _folder(machine), f"/opt/mellanox/doca/lib/{machine}-linux-gnu")
    asked = (*_ASKED, *(f"libdoca_{part}.so{end}" for part in _DOCA for end in (".3", ".2", "")))
    return {
        name: {"path": there.get(name, ""), "why": "" if name in there else f"{name}: {_NOT_THERE}"}
        for name in asked
    }


def _there(host: Host, folder: str, doca: str) -> dict[str, str]:
    there: dict[str, str] = {}
    if host.driver:
        for name in ("libcuda", "libnvidia-ml"):
            there[f"{name}.so.1"] = f"{folder}/{name}.so.{host.driver.version}"
    if host.verbs:
        release = host.verbs.split(".")[2]
        there["libibverbs.so.1"] = f"{folder}/libibverbs.so.{host.verbs}"
        there["libmlx5.so.1"] = f"{folder}/libmlx5.so.1.25.{release}.0"
        there["librdmacm.so.1"] = f"{folder}/librdmacm.so.1.3.{release}.0"
    if host.driver and host.driver.gdrdrv:
        there["libgdrapi.so.2"] = f"{folder}/libgdrapi.so.2.5"
    if host.doca:
        for part in _DOCA:
            for end in ("", f".{host.doca.split('.')[0]}"):
                there[f"libdoca_{part}.so{end}"] = f"{doca}/libdoca_{part}.so.{host.doca}"
    return there


def _cuda(host: Host, gpus: Sequence[Node]) -> dict[str, Any]:
    if host.driver is None:
        why = f"libcuda.so.1: {_NOT_THERE}"
        return {"library": "", "why": why, "init": None, "driver": None, "devices": []}
    library = f"{_folder(host.system.machine)}/libcuda.so.{host.driver.version}"
    major, _, minor = host.driver.cuda.partition(".")
    number = int(major) * 1000 + int(minor) * 10
    if host.driver.broken:
        init = {"code": 803, "name": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}
        return {"library": library, "why": "", "init": init, "driver": number, "devices": []}
    init = {"code": 0, "name": "CUDA_SUCCESS"}
    devices = [_gpu(host, node, at) for at, node in enumerate(gpus)]
    return {"library": library, "why": "", "init": init, "driver": number, "devices": devices}


def _contexts(cuda: Any) -> dict[str, Any]:
    """One context on each GPU."""
    about = {"code": 0, "name": "CUDA_SUCCESS", "why": ""}
    devices = [{"address": device["address"], **about} for device in cuda["devices"]]
    return {"why": "" if cuda["init"] else cuda["why"], "devices": devices}


def takes_dmabuf(host: Host, node: Node) -> bool:
    """Whether CUDA hands the memory of this GPU on as a dma-buf."""
    if host.dmabuf is not None:
        return host.dmabuf
    without = node.word == "gb10" or "GeForce" in node.kind.name  # no GPUDirect
    return bool(host.driver and host.driver.flavour == "open" and not without)


def _gpu(host: Host, node: Node, at: int) -> dict[str, Any]:
    dmabuf, spark = int(takes_dmabuf(host, node)), int(node.word == "gb10")
    direct = int(not spark and "GeForce" not in node.kind.name)
    return {
        "ordinal": at,
        "address": node.address,
        "name": node.kind.name,
        "uuid": f"GPU-00000000-0000-4000-8000-{at + 1:012x}",
        "capability": _CAPABILITY.get(node.word, [8, 0]),
        "attributes": {
            "DMA_BUF_SUPPORTED": dmabuf,
            "DMA_BUF_MMAP_SUPPORTED": None,
            "GPU_DIRECT_RDMA_SUPPORTED": direct,
            "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED": 1 - spark,
            "GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS": 1,
            "GPU_DIRECT_RDMA_WRITES_ORDERING": 100,
            "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": 1,
            "HOST_ALLOC_DMA_BUF_SUPPORTED": 0,
            "INTEGRATED": spark,
            "PAGEABLE_MEMORY_ACCESS": int(bool(host.driver and host.driver.flavour == "open")),
        },
    }


def _dmabuf(host: Host, name: str, machine: str) -> dict[str, Any]:
    """A kernel that knows dma-buf regions looks at the fd, so a wrong one is EBADF."""
    library = f"{_folder(machine)}/libibverbs.so.{host.verbs}"
    new = tuple(int(part) for part in host.system.release.split("-")[0].split(".")[:2]) >= (5, 12)
    errno = "EBADF" if new else "EOPNOTSUPP"
    return {
        "device": name,
        "library": library,
        "version": host.verbs,
        "symbol": True,
        "takes": new,
        "errno": errno,
        "why": "",
    }


def doca(version: str, machine: str) -> dict[str, object]:
    """/opt/mellanox/doca of a release."""
    folder = f"/opt/mellanox/doca/lib/{machine}-linux-gnu"
    number = version.split(".")[0]
    files = [
        f"libdoca_{part}.so{end}" for part in _PACKAGES for end in ("", f".{number}", f".{version}")
    ]
    return {
        "text /opt/mellanox/doca/applications/VERSION": f"{version}\n",
        f"names {folder}": sorted([*files, "libdoca_gpunetio_device.a", "pkgconfig"]),
        f"names {folder}/pkgconfig": sorted(f"doca-{part}.pc" for part in _PACKAGES),
    }


def _installed(host: Host) -> dict[str, object]:
    driver = host.driver
    assert driver is not None
    folder = f"/lib/modules/{host.system.release}/updates/dkms"
    return {
        "run modinfo -F filename nvidia-peermem": f"{folder}/nvidia-peermem.ko.zst\n",
        "run nvcc --version": (
            "nvcc: NVIDIA (R) Cuda compiler driver\n"
            f"Cuda compilation tools, release {driver.cuda}, V{driver.cuda}.88\n"
        ),
        "names /usr/local": ["bin", "cuda", f"cuda-{driver.cuda}", "lib", "share"],
        "link /usr/local/cuda": f"/usr/local/cuda-{driver.cuda}",
        "text /usr/local/cuda/version.json": f'{{"cuda": {{"version": "{driver.cuda}.2"}}}}\n',
    }


def _devices(host: Host, tree: Sequence[Node]) -> list[str]:
    names = ["null", "zero", "mem", "shm", "kmsg"]
    gpus = [node for node in tree if node.kind.is_gpu]
    if host.driver:
        names += [f"nvidia{at}" for at in range(len(gpus))] + ["nvidiactl", "nvidia-uvm"]
        names += ["gdrdrv"] if host.driver.gdrdrv else []
    if any("rdma" in node.words for node in tree):
        names.append("infiniband")
    return [*names, *(["rshim0"] if host.rshim else [])]
