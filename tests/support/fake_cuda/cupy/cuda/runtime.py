# SPDX-License-Identifier: Apache-2.0
"""`cupy.cuda.runtime` of the test double."""

import ctypes

from cupy.cuda._driver import CUDARuntimeError, call, current_device, use

__all__ = ["CUDARuntimeError", "deviceSynchronize", "getDevice", "getDeviceCount", "memGetInfo"]
__all__ += ["setDevice"]


def getDeviceCount():
    count = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value


def getDevice():
    return current_device()


def setDevice(device):
    use(device)


def deviceSynchronize():
    use()
    call("cuCtxSynchronize")


def memGetInfo():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    use()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value
