# SPDX-License-Identifier: Apache-2.0
"""dgkit.wrap: the user's own bytes, in place."""

import array
import mmap
from multiprocessing import shared_memory

import numpy as np
import pytest

import dgkit
from dgkit.errors import ClosedError, Unsupported
from dgkit.types import is_memory

STRUCT = np.dtype([("x", "<u2"), ("y", ">f8"), ("z", "u1", 3)])


def objects():
    return {
        "bytearray": bytearray(24),
        "bytes": bytes(24),
        "memoryview": memoryview(bytearray(24)),
        "cast memoryview": memoryview(bytearray(24)).cast("H"),
        "array.array": array.array("d", [0.0] * 3),
        "mmap": mmap.mmap(-1, 24),
        "numpy": np.zeros((2, 3), "<u4"),
        "fortran order": np.zeros((2, 3), "<u4").T,
        "big-endian": np.zeros(3, ">f8"),
        "structured": np.zeros(3, STRUCT),
        "0-d": np.zeros((), "f8"),
        "view of the middle": np.zeros(20, "u1")[4:12],
        "bool": np.zeros(9, "?"),
        "half": np.zeros(9, "f2"),
        "complex": np.zeros(2, "c16"),
    }


@pytest.mark.parametrize("kind", objects())
def test_any_contiguous_object_is_used_in_place(kind):
    obj = objects()[kind]
    memory = dgkit.wrap(obj)
    assert is_memory(memory)
    assert memory.size == memoryview(obj).nbytes
    assert memory.buffer.format == "B"
    assert memory.buffer.ndim == 1
    assert memory.array.ctypes.data == np.frombuffer(memory.buffer, "u1").ctypes.data
    assert (memory.place, memory.fd, memory.fd_offset, memory.closed) == ("host", -1, 0, False)
    memory.close()
    del memory
    if isinstance(obj, mmap.mmap):
        obj.close()


def test_writes_go_to_the_object_itself():
    obj = bytearray(4)
    memory = dgkit.wrap(obj)
    memory.array[:] = [1, 2, 3, 4]
    assert obj == bytes([1, 2, 3, 4])


def test_shared_memory_of_multiprocessing_can_be_wrapped():
    block = shared_memory.SharedMemory(create=True, size=64)
    try:
        memory = dgkit.wrap(block.buf)
        memory.buffer[:2] = b"ok"
        assert bytes(block.buf[:2]) == b"ok"
        memory.buffer.release()
        memory.close()
    finally:
        block.close()
        block.unlink()


def test_readonly_is_that_of_the_object():
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    assert dgkit.wrap(b"1234").readonly
    assert dgkit.wrap(frozen).readonly
    assert not dgkit.wrap(bytearray(4)).readonly


@pytest.mark.parametrize(
    "obj",
    [np.zeros(8)[::2], np.zeros((4, 4))[:, 1], np.zeros(8)[::-1], memoryview(bytearray(8))[::2]],
    ids=["every second", "a column", "reversed", "memoryview step"],
)
def test_what_is_not_contiguous_is_unsupported_and_says_what_to_do(obj):
    with pytest.raises(Unsupported, match="is not contiguous: register the array") as info:
        dgkit.wrap(obj)
    assert info.value.errno == 95


@pytest.mark.parametrize("obj", [b"", bytearray(), np.zeros((3, 0))], ids=repr)
def test_no_bytes_is_a_value_error(obj):
    with pytest.raises(ValueError, match="has 0 bytes; the minimum is 1"):
        dgkit.wrap(obj)


@pytest.mark.parametrize("obj", ["text", 5, None, [1, 2], object()], ids=repr)
def test_what_has_no_buffer_is_a_type_error(obj):
    with pytest.raises(TypeError, match=r"memory has type .*buffer protocol"):
        dgkit.wrap(obj)


def test_close_lets_the_object_go_and_is_idempotent():
    obj = bytearray(8)
    memory = dgkit.wrap(obj, name="mine")
    with pytest.raises(BufferError):
        obj.append(0)
    memory.close()
    memory.close()
    assert memory.closed
    obj.append(0)
    with pytest.raises(ClosedError, match="ForeignMemory bytearray of 8 bytes> is closed"):
        bytes(memory.buffer)


def test_with_ends_it():
    obj = bytearray(8)
    with dgkit.wrap(obj) as memory:
        assert memory.size == 8
    obj.append(0)
    assert memory.closed


def test_name_and_share_process_are_kept():
    memory = dgkit.wrap(bytearray(8), name="mine", share_process=True)
    assert (memory.name, memory.share_process, memory.kind) == ("mine", True, "bytearray")


@pytest.mark.parametrize("dtype", ["O", [("OFFSET", "f8"), ("thing", "O")]])
def test_python_objects_have_no_bytes_to_move(dtype):
    array = np.zeros(2, dtype)
    with pytest.raises(TypeError, match="Python objects"):
        dgkit.wrap(array)
    with dgkit.Device() as device, pytest.raises(TypeError, match="Python objects"):
        device.register(array)


def test_a_field_whose_name_has_an_o_is_no_python_object():
    array = np.zeros(2, [("OFFSET", "f8"), ("O", "u4")])
    assert dgkit.wrap(array).size == array.nbytes
