# SPDX-License-Identifier: Apache-2.0
"""Calls of the fake driver's libcuda, and which GPU is the current one."""

import ctypes

_library = ctypes.CDLL("libcuda.so.1")
_contexts = {}


class CUDARuntimeError(RuntimeError):
    """What a call answered, by its name."""

    def __init__(self, code):
        name = ctypes.c_char_p()
        _library.cuGetErrorName(code, ctypes.byref(name))
        super().__init__(f"{(name.value or b'unknown').decode()} ({code})")
        self.status = code


def call(name, *args):
    wide = [ctypes.c_void_p(value) if isinstance(value, int) else value for value in args]
    code = getattr(_library, name)(*wide)
    if code:
        raise CUDARuntimeError(code)


def current_device():
    """That of the current context, else the first."""
    device = ctypes.c_int()
    call("cuInit", 0)
    code = _library.cuCtxGetDevice(ctypes.byref(device))
    return 0 if code else device.value


def use(device=None):
    """Makes a GPU's primary context current in this thread, as CUDA's runtime does."""
    now = current_device()
    held = ctypes.c_void_p()
    call("cuCtxGetCurrent", ctypes.byref(held))
    if held.value and device in {None, now}:
        return now
    device = now if device is None else device
    if device not in _contexts:
        context = ctypes.c_void_p()
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        _contexts[device] = context.value
    call("cuCtxSetCurrent", _contexts[device])
    return device


class Device:
    """A GPU; a block of `with` makes it the current one."""

    def __init__(self, device=None):
        self.id = current_device() if device is None else device
        self._before = []

    def use(self):
        use(self.id)

    def synchronize(self):
        with self:
            call("cuCtxSynchronize")

    def __enter__(self):
        self._before.append(current_device())
        use(self.id)
        return self

    def __exit__(self, *_):
        use(self._before.pop())

    def __int__(self):
        return self.id

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"<CUDA Device {self.id}>"
