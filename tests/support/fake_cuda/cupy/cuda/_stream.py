# SPDX-License-Identifier: Apache-2.0
"""Streams of the test double. What NumPy computes is done at once, whatever the stream."""

import ctypes
import threading

from cupy.cuda._driver import Device, call, use

_current = threading.local()
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_callbacks = {}


class Stream:
    """A stream of the current GPU; a block of `with` makes it the current one."""

    null: "Stream"

    def __init__(self, null=False, non_blocking=False):
        self.ptr, self._before = 0, []
        if not null:
            found = ctypes.c_void_p()
            self.device_id = use()
            call("cuStreamCreate", ctypes.byref(found), int(non_blocking))
            self.ptr = found.value

    def synchronize(self):
        use()
        call("cuStreamSynchronize", self.ptr)

    def launch_host_func(self, callback, argument):
        """Calls `callback(argument)` when the stream has come to it."""

        def run(_):
            callback(argument)
            del _callbacks[key]

        key, function = object(), _CALLBACK(run)
        _callbacks[key] = function
        use()
        call("cuLaunchHostFunc", self.ptr, function, 0)

    def __cuda_stream__(self):
        return (0, self.ptr)

    def use(self):
        _current.stream = self

    def __enter__(self):
        self._before.append(get_current_stream())
        self.use()
        return self

    def __exit__(self, *_):
        self._before.pop().use()

    def __del__(self):
        if not getattr(self, "ptr", 0):
            return
        try:
            with Device(self.device_id):
                call("cuStreamDestroy_v2", self.ptr)
        except RuntimeError:  # its context is lost
            pass


Stream.null = Stream(null=True)


def get_current_stream(device_id=-1):
    """This thread's."""
    del device_id
    return getattr(_current, "stream", Stream.null)
