"""The one door to CUDA's driver: loaded when GPU memory is first asked for, its refusals typed.

Without a GPU nothing here is ever imported; `import dgkit` knows nothing of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator
from typing import Any

from ..errors import DeviceUnavailable, NativeError, Unsupported
from .cuda_errors import FORKED, error_of

__all__ = ["ask", "attribute", "call", "count", "current", "driver", "error", "forked", "here"]
__all__ += ["raw", "ready", "require"]

_driver: Any = None
_pid = 0
_contexts: dict[int, Any] = {}


def driver() -> Any:
    """`cuda.bindings.driver`, initialised. DeviceUnavailable says why it cannot be, what to do."""
    global _driver, _pid
    if _driver is None:
        _driver, _pid = _load(), os.getpid()
    if forked():
        raise DeviceUnavailable(errno.ENODEV, FORKED, check="")
    return _driver


def forked() -> bool:
    """Whether this process was forked from the one that initialised CUDA."""
    return _driver is not None and _pid != os.getpid()


def ask(function: str, *args: Any) -> tuple[int, Any]:
    """Calls a function of the driver: its result code, and what it gave (None if nothing)."""
    module = driver()
    try:
        code, *given = getattr(module, function)(*args)
    except (AttributeError, RuntimeError) as why:  # not in these bindings, or not in this driver
        text = f"{function} is not there ({why}): update the driver, and cuda-bindings"
        raise Unsupported(errno.EOPNOTSUPP, text) from None
    except ValueError as why:  # a code that these bindings do not know
        raise NativeError(errno.EIO, f"{function}: {why}") from None
    return int(code), given[0] if len(given) == 1 else tuple(given) or None


def call(function: str, *args: Any) -> Any:
    """Calls a function of the driver and gives what it gave, or raises what its code stands for."""
    code, given = ask(function, *args)
    if code:
        raise error(function, code)
    return given


def error(function: str, code: int) -> NativeError:
    """The exception for a result code of a function."""
    return error_of(function, code, _driver.CUresult(code).name)


def count() -> int:
    """How many GPUs this process may use; DeviceUnavailable for none."""
    found = int(call("cuDeviceGetCount"))
    if not found:
        raise error("cuDeviceGetCount", 100)
    return found


def attribute(gpu: int, name: str) -> int | None:
    """`CU_DEVICE_ATTRIBUTE_<name>` of a GPU; None if the bindings or the driver do not know it."""
    known = getattr(driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}", None)
    if known is None:
        return None
    code, value = ask("cuDeviceGetAttribute", known, call("cuDeviceGet", gpu))
    return None if code else int(value)


def here() -> int:
    """The GPU whose context is current in this thread, else the first."""
    found = count()
    code, context = ask("cuCtxGetCurrent")
    if code or not int(context):
        return 0
    return min(int(call("cuCtxGetDevice")), found - 1)


@contextlib.contextmanager
def current(gpu: int) -> Iterator[None]:
    """Makes the GPU's primary context current; afterwards what was is so again."""
    if gpu not in _contexts:
        driver()
        _contexts[gpu] = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", gpu))
    call("cuCtxPushCurrent", _contexts[gpu])
    try:
        yield
    finally:
        ask("cuCtxPopCurrent")


def raw(handle: Any, size: int) -> bytes:
    """The bytes of a struct of the driver."""
    return ctypes.string_at(int(handle.getPtr()), size)


def require(module: str) -> Any:
    """Imports `cupy` or `cuda.core`; DeviceUnavailable says why not, and what to install."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as missing:
        raise _not_installed(module, missing) from None


def ready() -> Any:
    """CuPy, once all that GPU memory needs was looked at; DeviceUnavailable names what is wrong."""
    found = count()
    require("cuda.core")
    cupy = require("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except Exception as why:  # CuPy's errors have no common base
        extra = _extra(int(call("cuDriverGetVersion")))
        text = f"CuPy cannot use what the driver finds, {found} GPU(s): {why}. {extra}"
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
                "libcuda.so.1 is not here: this machine has no NVIDIA driver, or this container "
                "was not given it. Install the driver (https://docs.nvidia.com/datacenter/tesla/"
                "driver-installation-guide), or start the container with --gpus all"
            )
        raise DeviceUnavailable(errno.ENODEV, text, check="driver-loaded") from None


def _not_installed(module: str, why: ImportError, library: Any = None) -> DeviceUnavailable:
    name = {"cupy": "CuPy", "cuda.core": "cuda-core", "cuda.bindings": "cuda-bindings"}[module]
    absent = isinstance(why, ModuleNotFoundError) and why.name == module.split(".")[0]
    what = f"{name} is not installed" if absent else f"{name} does not load ({why})"
    version = ctypes.c_int(13000)
    with contextlib.suppress(AttributeError):  # it needs no cuInit
        (library or _library()).cuDriverGetVersion(ctypes.byref(version))
    text = f"{what}: {_extra(version.value)}"
    return DeviceUnavailable(errno.ENODEV, text, check="cuda-python")


def _extra(version: int) -> str:
    """What to install for a driver that knows CUDA up to `version` (13000 is 13.0)."""
    return f"`pip install '.[cuda{12 if version < 13000 else 13}]'` in dgkit's folder"
