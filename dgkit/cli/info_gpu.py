"""GPUs in `dgkit info`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..errors import NativeError
from ..units import size_text

_CUPY = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
_FLAGS = {
    "dma_buf": "dma-buf",
    "dma_buf_mmap": "dma-buf mapped into the CPU",
    "gpu_direct_rdma": "GPUDirect RDMA",
    "gpu_direct_rdma_vmm": "GPUDirect RDMA of CUDA virtual memory",
    "posix_fd": "POSIX fds",
    "host_alloc_dma_buf": "dma-buf of pinned memory",
}


def collect() -> dict[str, Any]:
    """Return the GPUs, the reason `why` GPU memory is unusable ("" if usable), and versions."""
    from dataclasses import asdict

    from .. import memory

    why, gpus = memory.why_no_gpu(), []
    try:
        gpus = [asdict(gpu) for gpu in memory.gpus()]
    except NativeError as error:  # a GPU was lost, or the driver and its libraries do not match
        why = why or str(error.strerror)
    return {
        "why": why,
        "gpus": gpus,
        "libraries": {
            "CuPy": _version("cupy", *_CUPY),
            "cuda-core": _version("cuda.core", "cuda-core"),
            "cuda-bindings": _version("cuda.bindings", "cuda-bindings"),
        },
    }


def _version(module: str, *names: str) -> str:
    """Return the version of a module that one of these packages contains."""
    from importlib import metadata, util

    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    with contextlib.suppress(ImportError):  # the parent package is missing
        if util.find_spec(module) is not None:
            return "of unknown version"
    return "missing"


def lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts as lines of text."""
    for gpu in facts["gpus"]:
        yield from _gpu(gpu)
    if facts["why"]:
        yield f"not usable: {facts['why']}"
    yield ", ".join(f"{name} {version}" for name, version in facts["libraries"].items())


def _gpu(gpu: dict[str, Any]) -> Iterator[str]:
    yield f"cuda:{gpu['index']}  {gpu['name']}, {gpu['uuid']}, at {gpu['pci']}"
    yield f"        {_sizes(gpu['free'], gpu['total'])}"
    flavour = f"{gpu['flavour']} kernel modules"
    if gpu["flavour"] == "unknown":
        flavour += f" ({gpu['flavour_why']})"
    yield f"        driver {gpu['driver']} with CUDA {gpu['cuda']}, {flavour}"
    bar1 = _sizes(gpu["bar1_free"], gpu["bar1_total"])
    yield f"        BAR1 {bar1}" + (f" ({gpu['bar1_why']})" if gpu["bar1_why"] else "")
    for name, text in _FLAGS.items():
        yield f"        {text}: {_flag(gpu[name])}"
    order = gpu["writes_ordering"] or "unknown"
    yield f"        writes of other devices are ordered for: {order}"


def _flag(value: bool | None) -> str:
    return "unknown to this driver" if value is None else "yes" if value else "no"


def _sizes(free: int | None, total: int | None) -> str:
    if total is None:
        return "unknown"
    if free is None:
        return f"{size_text(total)}, free: unknown"
    return f"{size_text(free)} of {size_text(total)} free"
