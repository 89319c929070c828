"""What CUDA's result codes mean for memory: the kind of error, its cause, and what to do.

Source: CUresult in the CUDA driver API's reference ("Data types used by CUDA driver").
"""

from __future__ import annotations

import errno
import os

from ..errors import DeviceUnavailable, NativeError, OutOfMemory, Unsupported

__all__ = ["CLOSING", "FORKED", "check_of", "error_of", "is_lost"]

FORKED = (
    "CUDA was in use in the process that this one was forked from, and cannot be used on this side "
    "of a fork: start such processes by spawn, multiprocessing.get_context('spawn')"
)
CLOSING = 4  # CUDA_ERROR_DEINITIALIZED: the process ends, and its memory with it

_LOST = (
    "the CUDA context of this process is lost, and with it all that it had on the GPU: end the "
    "process and start it again (compute-sanitizer finds the kernel that did it)"
)
_MISMATCH = (
    "libcuda.so.1 and the loaded kernel module are of different driver versions: reboot, or unload "
    "the nvidia modules and load them again"
)

# Codes that say that this GPU, or any, cannot be used. What no check of the doctor sees, because it
# is about this process alone, stands in _OWN.
_OWN = frozenset((3, CLOSING))
_CHECKS = {36: "driver-version", 101: "gpu-present"}  # for the rest: cuda-driver
_UNAVAILABLE = {
    3: FORKED,
    CLOSING: "this process is ending, and CUDA with it",
    34: "the libcuda.so.1 that was found is the stub for linking and no driver: take its folder "
    "(it ends in /stubs) out of LD_LIBRARY_PATH",
    36: "the NVIDIA driver is too old for this: install a newer one",
    46: "another process has the GPU for itself (nvidia-smi -q -d COMPUTE shows the mode; "
    "sudo nvidia-smi -c DEFAULT shares it)",
    100: "the driver sees no GPU (nvidia-smi -L lists those of the machine; a container needs "
    "--gpus all)",
    101: "there is no such GPU",
    102: "the licence for this virtual GPU is not there",
    304: "the system refused something to the driver: look at the rights of /dev/nvidia* and at "
    "ulimit -a",
    802: "the GPUs are not ready: their fabric manager does not run (sudo systemctl start "
    "nvidia-fabricmanager)",
    803: _MISMATCH,
    804: "the libcuda.so.1 that was found is a forward-compatibility one, which this GPU does not "
    "take: take its folder (it ends in /compat) out of LD_LIBRARY_PATH, or update the driver",
    999: "the driver failed at something it does not name: after a suspend or an update reload its "
    "modules (sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm), and look at dmesg",
}
_LOSSES = frozenset((214, 220, 226, 700, 702, 709, 714, 715, 716, 717, 718, 719, 721))


def is_lost(code: int) -> bool:
    """Whether it says that the context is gone, and its memory with it."""
    return code in _LOSSES


def check_of(code: int) -> str:
    """The check of `dgkit doctor` that explains a code of _UNAVAILABLE or _LOSSES; "" if none."""
    return "" if code in _OWN | _LOSSES else _CHECKS.get(code, "cuda-driver")


def error_of(function: str, code: int, name: str) -> NativeError:
    """The exception for the result `code`, called `name`, of a function of the driver."""
    said = f"{function} answers {name} ({code})"
    if code in _UNAVAILABLE or code in _LOSSES:
        why = _LOST if code in _LOSSES else _UNAVAILABLE[code]
        text = f"{why}{_hidden(code)}. {said}."
        return DeviceUnavailable(errno.ENODEV, text, check=check_of(code))
    if code == 2:
        text = "the GPU has no memory left for this; nothing was allocated"
        return OutOfMemory(errno.ENOMEM, f"{text}. {said}.")
    if code == 801:
        return Unsupported(errno.EOPNOTSUPP, f"this GPU or its driver cannot do it: {said}")
    return NativeError(errno.EINVAL if code == 1 else errno.EIO, said)


def _hidden(code: int) -> str:
    """What CUDA_VISIBLE_DEVICES has to do with a GPU that is not there."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if seen is None or code not in (100, 101):
        return ""
    return f"; CUDA_VISIBLE_DEVICES is {seen!r} and may hide one"
