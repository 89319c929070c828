# SPDX-License-Identifier: Apache-2.0
"""dgkit.doca: each object of DOCA's, by itself and in a copy."""

import dataclasses
import textwrap

import numpy as np
import pytest
from support.doca.binding import copying

import dgkit
from dgkit import doca
from dgkit.doca import Access, Code, State


@pytest.fixture
def copy():
    with copying() as made:
        yield made


@pytest.fixture
def device():
    with doca.Device() as opened:
        yield opened


# ---- the library ----


def test_the_version_is_the_librarys_own():
    assert doca.version() == "3.3.0"


def test_asking_for_the_same_library_again_does_nothing():
    doca.use("softdoca")


def test_asking_for_the_other_library_is_refused_once_one_is_in_use():
    doca.version()
    with pytest.raises(doca.BadState, match=r"this process already uses softdoca.*one kind"):
        doca.use("doca")


def test_a_library_of_another_name_is_no_library():
    with pytest.raises(ValueError, match="'soft'; it must be 'doca' or 'softdoca'"):
        doca.use("soft")


# ---- devices ----


def test_a_device_info_says_what_a_device_is_and_can():
    (info,) = doca.devices()
    assert (info.pci, info.ibdev, info.function) == ("0000:03:00.0", "mlx5_0", doca.FunctionType.PF)
    assert info.dma
    assert info.export_pci
    assert info.from_export_pci
    assert info.max_copy == 2 << 20
    assert info.max_list == 64
    assert info.sf_index is None
    assert "software DOCA" in info.library


@pytest.mark.parametrize("values", ["info", "representor"])
def test_values_cannot_be_changed(values, device):
    value = device.info if values == "info" else device.representors()[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.pci = "0000:04:00.0"


@pytest.mark.parametrize("name", ["0000:03:00.0", "03:00.0", "mlx5_0", None])
def test_a_device_is_found_by_each_of_its_names_or_by_what_it_can(name):
    with doca.Device(name) as opened:
        assert opened.info.pci == "0000:03:00.0"


def test_a_device_is_found_by_its_info():
    (info,) = doca.devices()
    with doca.Device(info) as opened:
        assert opened.info == info


def test_a_device_that_is_not_there_is_named_and_so_are_those_that_are():
    with pytest.raises(doca.NotFound, match=r"no device '04:00.1'.*0000:03:00.0, mlx5_0") as caught:
        doca.Device("04:00.1")
    assert caught.value.code == Code.NOT_FOUND


def test_a_device_is_asked_for_by_text_or_info():
    with pytest.raises(TypeError, match="which is 3"):
        doca.Device(3)


def test_a_device_opened_twice_is_closed_twice():
    with doca.Device() as one:
        with doca.Device() as two:
            mapped = doca.Mmap(bytearray(8), two)
        assert mapped.closed
        doca.Mmap(bytearray(8), one).close()


def test_a_representor_is_found_by_its_address_vuid_or_info(device):
    (info,) = device.representors()
    for name in (info, info.pci, info.pci.removeprefix("0000:"), info.vuid):
        with doca.Representor(device, name) as opened:
            assert opened.info == info


def test_a_representor_that_is_not_there_is_not_found(device):
    with pytest.raises(doca.NotFound, match="no representor 'x'"):
        doca.Representor(device, "x")


# ---- maps ----


@pytest.mark.parametrize(
    "memory",
    [bytearray(b"x" * 48), np.arange(48, dtype="u1"), np.ones((2, 3), "f8"), bytes(range(48))],
    ids=["bytearray", "numpy", "numpy 2-D", "bytes"],
)
def test_a_map_is_made_of_whatever_has_bytes(memory, device):
    with doca.Mmap(memory, device) as made:
        assert made.size == 48
        assert made.started
        assert made.place == "host"


def test_a_map_is_made_of_dgkits_memory(device):
    with dgkit.empty(4096) as memory, doca.Mmap(memory, device) as made:
        assert (made.size, made.place) == (4096, memory.place)
        assert made.address == memory.array.ctypes.data


def test_a_map_is_made_of_an_address(device):
    array = np.zeros(64, "u1")
    with doca.Mmap((array.ctypes.data, 64), device) as made:
        assert (made.address, made.size) == (array.ctypes.data, 64)


def test_a_map_knows_several_devices():
    with doca.Device() as one, doca.Device() as two:
        with pytest.raises(doca.DocaError):  # the same function twice: DOCA knows it already
            doca.Mmap(bytearray(8), [one, two])
        with doca.Mmap(bytearray(8), [one]) as made:
            assert made.devices == (one,)


@pytest.mark.parametrize("devices", [[], None, "mlx5_0", [None]])
def test_a_map_without_a_device_is_refused(devices):
    with pytest.raises(TypeError):
        doca.Mmap(bytearray(8), devices)


@pytest.mark.parametrize("memory", [(), (1,), (1, 2, 3), ("1", 2)])
def test_a_tuple_that_is_no_address_and_size_makes_no_map(memory, device):
    with pytest.raises(TypeError):
        doca.Mmap(memory, device)


def test_a_dma_buf_goes_with_an_address(device):
    with pytest.raises(TypeError, match=r"given as \(address, size\)"):
        doca.Mmap(bytearray(8), device, dmabuf=3)


def test_memory_without_a_byte_makes_no_map(device):
    with pytest.raises(ValueError, match="has 0 bytes"):
        doca.Mmap(bytearray(), device)


def test_the_memory_of_a_map_cannot_be_resized_before_it_is_closed(device):
    memory = bytearray(16)
    with doca.Mmap(memory, device), pytest.raises(BufferError):
        memory.append(1)
    memory.append(1)


def test_memory_whose_map_could_not_be_made_is_free_again(device):
    memory = bytearray(16)
    with pytest.raises(doca.InvalidValue):
        doca.Mmap(memory, device, permissions=Access(1 << 20))
    memory.append(1)


def test_a_map_allows_by_default_what_its_memory_allows(device):
    with doca.Mmap(bytearray(8), device) as made:
        assert made.permissions == Access.LOCAL_READ_WRITE
    with doca.Mmap(bytes(8), device) as made:
        assert made.permissions == Access.LOCAL_READ_ONLY


@pytest.mark.parametrize(
    "flags", [Access.LOCAL_READ_WRITE, Access.PCI_READ_WRITE, Access.RDMA_WRITE | Access.RDMA_READ]
)
def test_read_only_memory_is_not_offered_for_writing(flags, device):
    with pytest.raises(doca.NotPermitted, match=r"read-only, and \w+ would write"):
        doca.Mmap(b"constant", device, permissions=flags)


def test_a_map_that_was_stopped_can_be_changed_and_started_again(device):
    with doca.Mmap(bytearray(8), device) as made:
        made.stop()
        assert not made.started
        made.permissions = Access.PCI_READ_WRITE
        made.start()
        assert made.export_pci()


def test_an_export_is_bytes_and_the_map_remembers(device):
    with doca.Mmap(bytearray(64), device, permissions=Access.PCI_READ_WRITE) as made:
        assert not made.exported
        descriptor = made.export_pci()
        assert type(descriptor) is bytes
        assert 0 < len(descriptor) <= 512
        assert made.exported
        assert made.export_pci(device) == descriptor


def test_a_map_is_imported_into_the_process_that_made_it(device):
    memory = bytearray(b"0123456789")
    flags = Access.PCI_READ_WRITE | Access.LOCAL_READ_WRITE
    with (
        doca.Mmap(memory, device, permissions=flags) as made,
        doca.Mmap.from_export(made.export_pci(), device) as imported,
    ):
        assert imported.imported
        assert imported.started
        assert (imported.address, imported.size) == (made.address, 10)
        assert imported.permissions is None
        assert imported.place == "another process"


def test_a_map_counts_its_buffers(copy):
    assert copy.source_map.bufs == 1
    other = copy.inventory.buf_by_addr(copy.source_map)
    assert copy.source_map.bufs == 2
    other.close()
    assert copy.source_map.bufs == 1


# ---- inventories and buffers ----


def test_an_inventory_counts_what_is_free(copy):
    assert (copy.inventory.size, copy.inventory.free) == (16, 14)
    copy.dst.close()
    assert copy.inventory.free == 15


def test_a_buffer_is_full_by_data_and_empty_by_address(copy):
    assert (copy.src.offset, copy.src.size, copy.src.data_size, copy.src.room) == (0, 4096, 4096, 0)
    assert (copy.dst.offset, copy.dst.size, copy.dst.data_size, copy.dst.room) == (0, 4096, 0, 4096)


def test_a_buffer_shows_its_data_in_place(copy):
    part = copy.inventory.buf_by_data(copy.target_map, 10, 3)
    copy.target[10:13] = b"abc"
    assert bytes(part.data) == b"abc"
    part.data[1] = ord("X")
    assert copy.target[10:13] == b"aXc"


def test_data_may_lie_anywhere_in_a_buffer_and_nowhere_else(copy):
    part = copy.inventory.buf_by_args(copy.source_map, 100, 50, data=110, data_size=20)
    assert (part.offset, part.size, part.data_offset, part.data_size) == (100, 50, 110, 20)
    assert part.room == 20
    part.set_data(149, 1)
    assert (part.data_offset, part.data_size, part.room) == (149, 1, 0)
    part.reset_data()
    assert (part.data_offset, part.data_size) == (149, 0)
    for wrong in ((99, 1), (100, 51), (150, 1), (149, 2)):
        with pytest.raises(dgkit.BoundsError, match="leaves the buffer's 50 bytes at 100"):
            part.set_data(*wrong)
        with pytest.raises(dgkit.BoundsError):
            copy.inventory.buf_by_args(copy.source_map, 100, 50, data=wrong[0], data_size=wrong[1])


@pytest.mark.parametrize("part", [(4097,), (0, 4097), (4096, 1), (1, 1 << 63), (-1,), (0, -1)])
def test_a_buffer_stays_inside_its_map(part, copy):
    with pytest.raises(dgkit.BoundsError):
        copy.inventory.buf_by_addr(copy.source_map, *part)


@pytest.mark.parametrize("part", [(1.5,), ("1",), (0, 2.0)])
def test_offsets_and_sizes_are_whole_numbers(part, copy):
    with pytest.raises(TypeError, match="whole number"):
        copy.inventory.buf_by_addr(copy.source_map, *part)


def test_a_duplicate_has_the_same_data_and_an_end_of_its_own(copy):
    part = copy.inventory.buf_by_data(copy.source_map, 5, 7)
    twin = copy.inventory.dup(part)
    part.close()
    assert bytes(twin.data) == bytes(copy.source[5:12])


def test_a_buffer_is_held_once(copy):
    assert copy.src.refcount == 1


# ---- copies ----


def test_a_copy_moves_all_bytes(copy):
    task = copy.dma.memcpy(copy.src, copy.dst).submit().wait(10)
    assert task.done
    assert task.status == Code.SUCCESS
    assert copy.target == copy.source
    assert copy.dst.data_size == 4096
    assert copy.dma.state == State.RUNNING


def test_a_task_says_where_it_stands(copy):
    task = copy.dma.memcpy(copy.src, copy.dst)
    assert (task.done, task.in_flight, task.status, task.error) == (False, False, None, None)
    task.submit()
    assert (task.done, task.in_flight, task.status) == (False, True, Code.IN_PROGRESS)
    assert copy.pe.in_flight == 1
    assert task.wait(10) is task
    assert (task.done, task.in_flight, task.status) == (True, False, Code.SUCCESS)
    assert task.error is None
    assert copy.pe.in_flight == 0


def test_the_buffers_of_a_task_may_be_changed(copy):
    task = copy.dma.memcpy(copy.src, copy.dst).submit().wait(10)
    copy.source[:5] = b"other"
    task.src = copy.inventory.buf_by_data(copy.source_map, 0, 5)
    task.dst = copy.inventory.buf_by_addr(copy.target_map, 100, 5)
    task.submit().wait(10)
    assert copy.target[100:105] == b"other"
    assert task.src.size == task.dst.data_size == 5


def test_what_is_submitted_without_a_flush_moves_after_one(copy):
    task = copy.dma.memcpy(copy.src, copy.dst).submit(flush=False)
    copy.dma.flush()
    task.wait(10)
    assert copy.target == copy.source


def test_a_context_has_at_most_as_many_tasks_as_the_library_allows(copy):
    assert copy.dma.max_tasks == 65536
    with pytest.raises(doca.InvalidValue, match="65536"):
        doca.Dma(copy.device, tasks=65537)


def test_a_context_goes_through_its_states(device):
    with doca.ProgressEngine() as pe, doca.Dma(device) as dma:
        assert dma.state == State.IDLE
        assert dma.pe is None
        pe.connect(dma)
        dma.start()
        assert dma.state == State.RUNNING
        assert dma.pe is pe
        assert dma.stop() == State.IDLE
        assert dma.stop() == State.IDLE
        dma.start()
        assert dma.state == State.RUNNING


def test_a_stop_ends_what_is_in_flight_and_frees_the_tasks(copy):
    tasks = [copy.dma.memcpy(copy.src, copy.dst).submit() for _ in range(4)]
    assert copy.dma.stop(10) == State.IDLE
    assert all(task.done and task.closed for task in tasks)
    copy.dma.start()
    copy.again()
    copy.dma.memcpy(copy.src, copy.dst).submit().wait(10)
    assert copy.target == copy.source


def test_a_stop_without_time_only_asks(copy):
    task = copy.dma.memcpy(copy.src, copy.dst).submit()
    assert copy.dma.stop(0) == State.STOPPING
    while not task.done:
        copy.pe.wait(10)
    assert copy.dma.state == State.STOPPING  # a task is still allocated
    task.close()
    copy.pe.progress()
    assert copy.dma.state == State.IDLE


@pytest.mark.parametrize("memory", [[1, 2], "text", 4096, None], ids=["list", "str", "int", "none"])
def test_what_has_no_bytes_is_named_with_what_has(memory, device):
    with pytest.raises(TypeError, match=rf"memory is of type {type(memory).__name__}; .*buffer"):
        doca.Mmap(memory, device)


# ---- how it looks ----


def test_everything_says_that_it_is_software(copy):
    task = copy.dma.memcpy(copy.src, copy.dst)
    (representor,) = copy.device.representors()
    things = [task, representor, copy.device.info, copy.device, copy.source_map, copy.inventory]
    things += [copy.inventory.buf_by_data(copy.source_map).chain(copy.src), copy.pe, copy.dma]
    with doca.Representor(copy.device, representor) as opened:
        for thing in (*things, opened):
            assert "softdoca: software DOCA, no hardware" in repr(thing)
            assert "softdoca: software DOCA, no hardware" in thing._repr_html_()


def test_the_example_of_the_module_copies():
    text, room = bytearray(b"some text"), bytearray(9)
    example = textwrap.dedent(doca.__doc__.partition("\n\n")[2].partition("\nModules:")[0])
    exec(example, {"text": text, "room": room})
    assert room == text


def test_memory_of_this_process_is_not_called_the_host_s_on_the_dpu_too(copy):
    for thing in (copy.source_map, copy.src):
        assert "this process" in thing._repr_html_()
        assert ">host<" not in thing._repr_html_()
    assert "(this process)" in repr(copy.source_map)


def test_a_repr_says_what_there_is_to_know(copy):
    head = copy.inventory.buf_by_data(copy.source_map, 16, 32)
    head.chain(copy.inventory.buf_by_data(copy.source_map, 0, 8))
    task = copy.dma.memcpy(head, copy.dst)
    assert "32 bytes from byte 16 of its map, 32 of data, 1 more behind it" in repr(head)
    assert "40 bytes, 2 to 1 buffers, not submitted" in repr(task)
    assert "in flight" in repr(task.submit())
    assert "done" in repr(task.wait(10))
    assert "LOCAL_READ_WRITE, started" in repr(copy.source_map)
    assert "12 of 16 free, started" in repr(copy.inventory)
    assert "1 contexts, 0 tasks in flight" in repr(copy.pe)
    assert "8 tasks, RUNNING" in repr(copy.dma)


def test_what_is_closed_says_so(copy):
    copy.device.close()
    for thing in (copy.device, copy.source_map, copy.src, copy.dma):
        assert repr(thing).endswith(", closed>")
        assert "(closed)" in thing._repr_html_()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (Access.LOCAL_READ_ONLY, "LOCAL_READ_ONLY"),
        (Access.PCI_READ_ONLY | Access.LOCAL_READ_WRITE, "LOCAL_READ_WRITE | PCI_READ_ONLY"),
    ],
)
def test_permissions_print_by_their_names(flags, text):
    assert str(flags) == text


def test_no_object_of_cffi_comes_out(copy):
    task = copy.dma.memcpy(copy.src, copy.dst).submit().wait(10)
    for thing in (copy.device, copy.source_map, copy.inventory, copy.src, copy.pe, copy.dma, task):
        for name in [name for name in dir(thing) if not name.startswith("_")]:
            value = getattr(thing, name)
            assert "cffi" not in type(value).__module__, (thing, name)
            assert "CData" not in type(value).__name__, (thing, name)
