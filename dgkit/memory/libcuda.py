# SPDX-License-Identifier: Apache-2.0
"""Calls to the CUDA driver: loaded when GPU memory is first used, its result codes as exceptions.

Never imported on a machine without a GPU, nor by `import dgkit`. Source of the codes: CUresult in
the CUDA driver API's reference ("Data types used by CUDA driver").
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator
from typing import Any

from ..errors import DeviceUnavailable, NativeError, OutOfMemory, Unsupported
from ..installation import install_command

FORKED = (
    "the parent process used CUDA before fork(), so this process cannot: start such processes "
    "with spawn, multiprocessing.get_context('spawn')"
)
CLOSING = 4  # CUDA_ERROR_DEINITIALIZED: the process is exiting, which frees its memory

_LOST = (
    "the CUDA context of this process is lost, with everything that it had on the GPU: restart "
    "the process (compute-sanitizer finds the kernel that caused it)"
)
_MISMATCH = (
    "libcuda.so.1 and the loaded kernel module are from different driver versions: reboot, or "
    "unload the nvidia modules and load them again"
)

# Codes that mean that a GPU, or all GPUs, cannot be used. Those in _OWN concern only this process:
# no check of the doctor covers them.
_OWN = frozenset((3, CLOSING))
_CHECKS = {36: "driver-version", 101: "gpu-present"}  # for all other codes, cuda-driver
_UNAVAILABLE = {
    3: FORKED,
    CLOSING: "this process is exiting, and CUDA is shut down",
    34: "the loader found the stub libcuda.so.1, which is for linking only: remove its folder "
    "(it ends in /stubs) from LD_LIBRARY_PATH",
    36: "the NVIDIA driver is too old for this: install a newer one",
    46: "another process uses the GPU exclusively (nvidia-smi -q -d COMPUTE shows the mode; "
    "sudo nvidia-smi -c DEFAULT shares it)",
    100: "the driver sees no GPU (nvidia-smi -L lists those of the machine; a container needs "
    "--gpus all)",
    101: "there is no such GPU",
    102: "this virtual GPU has no licence",
    304: "the system denied the driver a resource: check the permissions of /dev/nvidia* and "
    "ulimit -a",
    802: "the GPUs are not ready: their fabric manager is not running (sudo systemctl start "
    "nvidia-fabricmanager)",
    803: _MISMATCH,
    804: "the loader found a forward-compatibility libcuda.so.1, which this GPU does not support: "
    "remove its folder (it ends in /compat) from LD_LIBRARY_PATH, or update the driver",
    999: "the driver reports an unknown failure: after a suspend or an update reload its modules "
    "(sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm), and check dmesg",
}
_LOSSES = frozenset((214, 220, 226, 700, 702, 709, 714, 715, 716, 717, 718, 719, 721))


def is_lost(code: int) -> bool:
    """Return whether a result code means that the context, with its memory, is lost."""
    return code in _LOSSES


def check_of(code: int) -> str:
    """Return the `dgkit doctor` check for a code of _UNAVAILABLE or _LOSSES; "" if none."""
    return "" if code in _OWN | _LOSSES else _CHECKS.get(code, "cuda-driver")


def error_of(function: str, code: int, name: str) -> NativeError:
    """Return the exception for the result `code`, named `name`, of a driver function."""
    result = f"{function} returned {name} ({code})"
    if code in _UNAVAILABLE or code in _LOSSES:
        why = _LOST if code in _LOSSES else _UNAVAILABLE[code]
        text = f"{why}{_hidden(code)}. {result}."
        return DeviceUnavailable(errno.ENODEV, text, check=check_of(code))
    if code == 2:
        text = "the GPU has too little free memory; nothing was allocated"
        return OutOfMemory(errno.ENOMEM, f"{text}. {result}.")
    if code == 801:
        return Unsupported(errno.EOPNOTSUPP, f"this GPU or its driver cannot do it: {result}")
    return NativeError(errno.EINVAL if code == 1 else errno.EIO, result)


def _hidden(code: int) -> str:
    """Return how CUDA_VISIBLE_DEVICES may explain a missing GPU; "" if it does not."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or code not in (100, 101):
        return ""
    return f"; CUDA_VISIBLE_DEVICES is {visible!r} and may hide GPUs"


_driver: Any = None
_pid = 0
_contexts: dict[int, Any] = {}


def driver() -> Any:
    """Return `cuda.bindings.driver`, initialized. Raises DeviceUnavailable if it cannot be."""
    global _driver, _pid
    if _driver is None:
        _driver, _pid = _load(), os.getpid()
    if forked():
        raise DeviceUnavailable(errno.ENODEV, FORKED, check="")
    return _driver


def forked() -> bool:
    """Return whether this process was forked from the one that initialized CUDA."""
    return _driver is not None and _pid != os.getpid()


def try_call(function: str, *args: Any) -> tuple[int, Any]:
    """Call a driver function.

    Returns:
        Its result code and its output: None, one value or a tuple.

    Raises:
        Unsupported: The function is missing in the bindings or in the driver.
        NativeError: The bindings do not know the result code.
    """
    module = driver()
    try:
        code, *given = getattr(module, function)(*args)
    except (AttributeError, RuntimeError) as why:  # not in these bindings, or not in this driver
        text = f"{function} is missing ({why}): update the driver and cuda-bindings"
        raise Unsupported(errno.EOPNOTSUPP, text) from None
    except ValueError as why:  # a result code that these bindings do not know
        raise NativeError(errno.EIO, f"{function}: {why}") from None
    return int(code), given[0] if len(given) == 1 else tuple(given) or None


def call(function: str, *args: Any) -> Any:
    """Call a driver function and return its output, or raise the exception of its result code."""
    code, given = try_call(function, *args)
    if code:
        raise error(function, code)
    return given


def error(function: str, code: int) -> NativeError:
    """Return the exception for a function's result code."""
    return error_of(function, code, _driver.CUresult(code).name)


def count() -> int:
    """Return how many GPUs this process may use. Raises DeviceUnavailable if none."""
    found = int(call("cuDeviceGetCount"))
    if not found:
        raise error("cuDeviceGetCount", 100)
    return found


def attribute(gpu: int, name: str) -> int | None:
    """Return `CU_DEVICE_ATTRIBUTE_<name>` of a GPU; None if the bindings or the driver lack it."""
    known = getattr(driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
    if known is None:
        return None
    code, value = try_call("cuDeviceGetAttribute", known, call("cuDeviceGet", gpu))
    return None if code else int(value)


def current_device() -> int:
    """Return the GPU of this thread's current CUDA context, or 0 without a context."""
    found = count()
    code, context = try_call("cuCtxGetCurrent")
    if code or not int(context):
        return 0
    return min(int(call("cuCtxGetDevice")), found - 1)


@contextlib.contextmanager
def primary_context(gpu: int) -> Iterator[None]:
    """Make the GPU's primary context current, then restore the previous one."""
    if gpu not in _contexts:
        driver()
        _contexts[gpu] = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", gpu))
    call("cuCtxPushCurrent", _contexts[gpu])
    try:
        yield
    finally:
        try_call("cuCtxPopCurrent")


def struct_bytes(handle: Any, size: int) -> bytes:
    """Return the bytes of a driver struct."""
    return ctypes.string_at(int(handle.getPtr()), size)


def require(module: str) -> Any:
    """Import `cupy` or `cuda.core`; DeviceUnavailable says why not and what to install."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as missing:
        raise _not_installed(module, missing) from None


def require_cupy() -> Any:
    """Return CuPy once GPU memory can be used; DeviceUnavailable says what is wrong."""
    found = count()
    require("cuda.core")
    cupy = require("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except Exception as why:  # CuPy's errors have no common base
        extra = _extra(int(call("cuDriverGetVersion")))
        text = f"CuPy cannot use the driver's {found} GPU(s): {why}. {extra}"
        raise DeviceUnavailable(errno.ENODEV, text, check="cuda-python") from None
    return cupy


def _load() -> Any:
    library = _library()
    try:
        from cuda.bindings import driver as bindings
    except ImportError as missing:
        raise _not_installed("cuda.bindings", missing, library) from None
    code = int(bindings.cuInit(0)[0])
    if code:
        raise error_of("cuInit", code, bindings.CUresult(code).name)
    return bindings


def _library() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        text = f"libcuda.so.1 does not load ({error}): reinstall the NVIDIA driver"
        if "cannot open shared object file" in str(error):
            text = (
                "libcuda.so.1 is missing: this machine has no NVIDIA driver, or this container "
                "has no access to it. Install the driver (https://docs.nvidia.com/datacenter/"
                "tesla/driver-installation-guide), or start the container with --gpus all"
            )
        raise DeviceUnavailable(errno.ENODEV, text, check="driver-loaded") from None


def _not_installed(module: str, why: ImportError, library: Any = None) -> DeviceUnavailable:
    name = {"cupy": "CuPy", "cuda.core": "cuda-core", "cuda.bindings": "cuda-bindings"}[module]
    absent = isinstance(why, ModuleNotFoundError) and why.name == module.split(".")[0]
    cause = f"{name} is not installed" if absent else f"{name} does not load ({why})"
    version = ctypes.c_int(13000)
    with contextlib.suppress(AttributeError):  # cuDriverGetVersion needs no cuInit
        (library or _library()).cuDriverGetVersion(ctypes.byref(version))
    text = f"{cause}: {_extra(version.value)}"
    return DeviceUnavailable(errno.ENODEV, text, check="cuda-python")


def _extra(version: int) -> str:
    """Return the command that installs dgkit with the Python packages for a driver.

    Args:
        version: CUDA version that the driver supports; 13000 is 13.0.
    """
    return f"`{install_command(f'cuda{12 if version < 13000 else 13}')}`"
