"""CUDA result codes as exceptions: the kind of error, its cause, and what to do.

Source: CUresult in the CUDA driver API's reference ("Data types used by CUDA driver").
"""

from __future__ import annotations

import errno
import os

from ..errors import DeviceUnavailable, NativeError, OutOfMemory, Unsupported

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
