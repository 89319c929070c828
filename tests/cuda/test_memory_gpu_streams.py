# SPDX-License-Identifier: Apache-2.0
"""synchronize() of GPU memory: it waits for the stream that produces the bytes."""

import contextlib
import ctypes

import cupy
import numpy as np
import pytest
from support.gpu.memory import read

import dgkit
from dgkit.memory import libcuda


def slow_copy(there, stream):
    """A copy of 7s into the memory that is still on its way when this returns."""
    source = np.full(there.size, 7, "u1")
    with libcuda.primary_context(0):
        where = (there.gpu.address, source.ctypes.data, there.size)
        libcuda.call("cuMemcpyHtoDAsync", *where, stream.ptr)
        assert libcuda.try_call("cuStreamQuery", stream.ptr)[0] == 600  # CUDA_ERROR_NOT_READY
    return source


class Torchlike:
    def __init__(self, stream):
        self.cuda_stream = stream.ptr


class Corelike:
    def __init__(self, stream):
        self._stream = stream

    def __cuda_stream__(self):
        return (0, self._stream.ptr)


class Numbalike:
    def __init__(self, stream):
        self.handle = ctypes.c_void_p(stream.ptr)


def itself(stream):
    return stream


def address(stream):
    return stream.ptr


@pytest.mark.parametrize("argument", [None, address, itself, Torchlike, Corelike, Numbalike])
def test_synchronize_waits_for_the_producing_stream(fake_cuda, argument):
    with dgkit.empty(64, on="gpu") as there:
        fake_cuda.order("copy_us=100000")
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream if argument is None else contextlib.nullcontext():
            source = slow_copy(there, stream)
            there.synchronize(argument and argument(stream))
            with libcuda.primary_context(0):
                assert libcuda.try_call("cuStreamQuery", stream.ptr)[0] == 0
        fake_cuda.order("")
        assert (read(there.gpu.address, 64) == source).all()


@pytest.mark.parametrize("stream", ["text", 1.5, True, object()])
def test_what_is_no_stream_is_a_type_error(stream):
    with dgkit.empty(8, on="gpu") as there, pytest.raises(TypeError, match="must be a CUDA stream"):
        there.synchronize(stream)
