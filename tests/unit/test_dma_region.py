# SPDX-License-Identifier: Apache-2.0
"""Regions: registering in place, exporting, importing, closing."""

import array
import gc
import mmap
import os

import numpy as np
import pytest
from support.dma import keep, rig

import dgkit
from dgkit import Access, Device
from dgkit.errors import BoundsError, ClosedError

STRUCT = np.dtype([("x", "<u2"), ("y", ">f8"), ("z", "u1", 6)])


@pytest.fixture
def device():
    with Device() as opened:
        yield keep(opened)


def moved(device, obj):
    """Writes a pattern into `obj` by DMA and reads it back."""
    size = memoryview(obj).nbytes
    source = bytearray(i % 251 for i in range(size))
    back = bytearray(size)
    queue, a, b = device.queue(), device.register(source), device.register(back)
    with device.register(obj) as target, device.import_region(target.export()) as remote:
        queue.write(a, remote).wait(1)
        queue.read(b, remote).wait(1)
    assert back == source
    return bytes(source)


@pytest.mark.parametrize(
    "obj",
    [
        bytearray(16),
        memoryview(bytearray(16)),
        memoryview(bytearray(64))[16:32],
        array.array("d", [0.0, 0.0]),
        np.zeros(2),
        np.zeros(2, ">f8"),
        np.zeros(1, STRUCT),
        np.zeros((), "c16"),
        np.zeros((4, 4), "u1"),
        np.zeros((4, 4), "u1").T,
        np.zeros((8, 4), "u1")[2:6],
    ],
    ids=lambda o: f"{type(o).__name__} {getattr(o, 'dtype', '')}",
)
def test_any_contiguous_writable_object_can_be_moved_in_place(device, obj):
    sent = moved(device, obj)
    order = "F" if isinstance(obj, np.ndarray) and obj.flags.f_contiguous else "C"
    assert (obj.tobytes(order) if isinstance(obj, np.ndarray) else bytes(obj)) == sent


def test_a_buffer_cannot_be_resized_or_closed_until_its_region_is(device):
    obj, mapped = bytearray(8), mmap.mmap(-1, 4096)
    regions = [device.register(obj), device.register(mapped)]
    with pytest.raises(BufferError):
        obj.append(1)
    with pytest.raises(BufferError):
        mapped.close()
    for region in regions:
        region.close()
    obj.append(1)
    mapped.close()


def test_a_region_keeps_its_object_alive(device):
    with rig() as r:
        region = r.device.register(bytearray(b"12345678"))
        gc.collect()
        remote = r.device.import_region(region.export())
        r.queue.read(r.local, remote, size=8).wait(1)
        assert r.local_bytes[:8] == b"12345678"


def test_a_region_outlives_the_close_of_its_memory(device):
    memory = dgkit.empty(64)
    memory.buffer[:] = bytes(range(64))
    region = device.register(memory)
    memory.close()
    with rig() as r:
        remote = r.device.import_region(region.export())
        r.queue.read(r.local, remote, size=64).wait(1)
        assert r.local_bytes[:64] == bytes(range(64))


def test_what_it_says_of_itself(device):
    memory = dgkit.empty(100, name="weights")
    region = device.register(memory, "r")
    assert (region.size, region.access, region.place) == (100, Access.READ, "host")
    assert (region.name, region.memory, region.device) == ("weights", memory, device)
    assert (region.importers, region.revoked, region.closed) == (0, False, False)
    assert repr(region) == f"<dgkit.Region id {region.id} 'weights', 100 bytes on host, r>"
    region.close()
    assert (region.importers, region.revoked, region.closed) == (0, True, True)
    assert repr(region).endswith("on host, closed>")


def test_a_name_given_at_register_wins(device):
    assert device.register(dgkit.empty(8, name="a"), name="b").name == "b"
    assert device.register(bytearray(8)).name is None
    assert device.register(dgkit.wrap(bytearray(8), name="c")).name == "c"


def test_ids_differ_and_are_not_reused_at_once(device):
    seen = set()
    for _ in range(500):
        with device.register(bytearray(8)) as region:
            seen.add(region.id)
    assert len(seen) == 500


@pytest.mark.parametrize(
    ("access", "flags"), [("r", 1), ("w", 2), ("rw", 3), ("wr", 3), (Access.READ, 1)]
)
def test_access_is_text_or_flags(device, access, flags):
    assert device.register(bytearray(8), access).access == flags


@pytest.mark.parametrize("access", ["", "x", "rwx", "R", Access(0), 3, ["r"]])
def test_another_access_is_refused_and_shown(device, access):
    with pytest.raises((ValueError, TypeError), match="access"):
        device.register(bytearray(8), access)


@pytest.mark.parametrize("known", [False, True], ids=["buffer", "Memory"])
def test_offset_and_size_take_a_part(device, known):
    memory = dgkit.empty(32) if known else bytearray(32)
    view = memory.buffer if known else memory
    part = device.register(memory, offset=8, size=4)
    rest = device.register(memory, offset=30)
    assert (part.size, rest.size) == (4, 2)
    with rig() as r:
        r.local_bytes[:4] = b"part"
        remote = r.device.import_region(part.export())
        r.queue.write(r.local, remote, size=4).wait(1)
        remote.close()
    assert bytes(view[6:14]) == b"\0\0part\0\0"


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 17), (16, 1), (17, None), (16, None), (8, 9), (1, (1 << 64) - 1)]
)
def test_a_part_outside_is_a_bounds_error_with_all_numbers(device, offset, size):
    with pytest.raises(BoundsError, match=rf"offset {offset} \+ size .* leaves .*16 bytes"):
        device.register(bytearray(16), offset=offset, size=size)


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ({"offset": -1}, BoundsError),
        ({"size": -1}, BoundsError),
        ({"size": 0}, ValueError),
        ({"size": 1 << 64}, BoundsError),
        ({"offset": 1.0}, TypeError),
        ({"size": 2.5}, TypeError),
        ({"size": "8"}, TypeError),
    ],
)
def test_a_part_that_is_no_whole_number_is_refused(device, part, error):
    with pytest.raises(error, match=r"offset|size"):
        device.register(bytearray(16), **part)


def test_a_refused_registration_lets_the_object_go(device):
    obj = bytearray(16)
    with pytest.raises(BoundsError) as info:
        device.register(obj, size=17)
    obj.append(0)
    with pytest.raises(ValueError, match="access") as second:
        device.register(obj, Access(0))
    obj.append(0)
    assert info.value is not second.value


def test_a_closed_memory_cannot_be_registered(device):
    memory, wrapped = dgkit.empty(8), dgkit.wrap(bytearray(8))
    memory.close()
    wrapped.close()
    for closed in (memory, wrapped):
        with pytest.raises(ClosedError, match="is closed"):
            device.register(closed)


def test_close_is_idempotent_and_revokes(device):
    region = device.register(bytearray(24))
    remote = device.import_region(region.export())
    region.close()
    region.close()
    assert remote.revoked
    with pytest.raises(ClosedError, match="is closed"):
        region.export()


def test_a_region_that_was_not_closed_warns_and_closes():
    memory = bytearray(8)
    with Device() as device:
        region = device.register(memory)
        with pytest.warns(ResourceWarning, match=r"dgkit\.Region .*was not closed"):
            del region
        memory.append(0)


def test_a_remote_region_that_was_not_closed_warns_and_closes():
    with Device() as device, device.register(bytearray(8)) as region:
        remote = device.import_region(region.export())
        with pytest.warns(ResourceWarning, match=r"dgkit\.RemoteRegion .*was not closed"):
            del remote
        assert region.importers == 0


def test_html_names_size_access_and_software(device):
    region = device.register(bytearray(24), name="<b>")
    remote = device.import_region(region.export())
    assert "&lt;b&gt;" in region._repr_html_()
    shown = remote._repr_html_()
    assert all(words in shown for words in ("24 bytes", "read and write", f"process {os.getpid()}"))
    remote.close()
    assert "(closed)" in remote._repr_html_()


def test_a_region_over_memory_of_dgkit_has_its_array(device):
    memory = dgkit.empty(64)
    with device.register(memory) as region, device.register(bytearray(8)) as callers:
        region.array[:3] = 7
        assert bytes(memory.buffer[:4]) == b"\7\7\7\0"
        with pytest.raises(AttributeError, match="its memory is a bytearray of the caller"):
            _ = callers.array
