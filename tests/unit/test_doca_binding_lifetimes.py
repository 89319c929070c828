# SPDX-License-Identifier: Apache-2.0
"""dgkit.doca: who closes whom, what is forgotten, fork, and the end of the process."""

import gc
import threading
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doca.binding import START, Copy, copying
from support.processes.children import run
from support.processes.waiting import held, steady, until

import dgkit
from dgkit import doca
from dgkit.doca import State, handle
from dgkit.doca._library import Library, library

NAMES = ["device", "source_map", "target_map", "inventory", "src", "dst", "pe", "dma", "task"]


@pytest.fixture
def copy():
    with copying() as made:
        yield made


@pytest.fixture
def destroyed(monkeypatch):
    """The names of the functions that destroyed something, in their order."""
    names = []
    call = Library.call

    def recorded(self, name, *args):
        call(self, name, *args)
        if name.endswith(("_destroy", "_close", "dec_refcount")):
            names.append(name)

    monkeypatch.setattr(Library, "call", recorded)
    return names


def objects(copy):
    copy.task = copy.dma.memcpy(copy.src, copy.dst)
    return [getattr(copy, name) for name in NAMES]


def free(copy):
    """Whether Python's memory is no longer held."""
    copy.source.append(1)
    copy.target.append(1)


# ---- closing ----


@given(order=st.permutations(range(len(NAMES))), flying=st.booleans())
def test_whatever_is_closed_first_all_ends_well(order, flying):
    copy = Copy(100_000)
    made = objects(copy)
    if flying:
        copy.task.submit()
    for index in order:
        made[index].close()
        made[index].close()
    assert all(one.closed for one in made)
    free(copy)


CHILDREN = {
    "device": ["source_map", "target_map", "src", "dst", "dma", "task"],
    "source_map": ["src", "task"],
    "inventory": ["src", "dst", "task"],
    "src": ["task"],
    "pe": ["dma", "task"],
    "dma": ["task"],
}


@pytest.mark.parametrize("name", CHILDREN)
def test_a_parent_closes_its_children_and_nobody_else(name, copy):
    objects(copy)
    getattr(copy, name).close()
    closed = {other for other in NAMES if getattr(copy, other).closed}
    assert closed == {name, *CHILDREN[name]}


def test_all_is_destroyed_children_first(destroyed):
    with copying() as copy:
        objects(copy)
        copy.device.close()
        copy.pe.close()
        copy.inventory.close()
    assert destroyed == [
        "doca_dma_destroy",
        *["doca_buf_dec_refcount", "doca_mmap_destroy"] * 2,
        "doca_dev_close",
        "doca_pe_destroy",
        "doca_buf_inventory_destroy",
    ]


def test_with_closes_at_the_end_of_its_block():
    with doca.Device() as device, doca.Mmap(bytearray(8), device) as mapped:
        assert not mapped.closed
    assert mapped.closed
    assert device.closed


def test_with_closes_after_an_error_too():
    with pytest.raises(ZeroDivisionError), doca.Device() as device:
        _ = 1 / 0
    assert device.closed


@pytest.mark.parametrize("name", ["task", "src", "dst", "dma", "pe", "target_map", "device"])
def test_closing_waits_for_what_is_in_flight(name):
    with copying(2 << 20) as copy:
        task = copy.dma.memcpy(copy.src, copy.dst).submit()
        copy.task = task
        getattr(copy, name).close()
        assert task.done
        assert task.status == doca.Code.SUCCESS or name in ("dma", "pe", "device")


def test_what_could_not_be_made_leaves_nothing_to_close(copy, destroyed):
    for wrong in (
        lambda: doca.Dma(copy.device, tasks=1 << 31),
        lambda: doca.Mmap((0, 8), copy.device),
        lambda: doca.Mmap.from_export(b"x", copy.device),
        lambda: doca.BufInventory(1 << 62),
    ):
        with pytest.raises(doca.DocaError):
            wrong()
    gc.collect()  # no warning
    assert destroyed == ["doca_dma_destroy", "doca_mmap_destroy"]


def test_a_close_that_is_refused_may_be_made_again(copy, monkeypatch):
    call = Library.call

    def refused(self, name, *args):
        if name == "doca_mmap_destroy":
            raise self.error(3, name)
        call(self, name, *args)

    monkeypatch.setattr(Library, "call", refused)
    with pytest.raises(doca.InUse):
        copy.source_map.close()
    assert not copy.source_map.closed
    with pytest.raises(BufferError):
        copy.source.append(1)
    monkeypatch.undo()
    copy.source_map.close()
    copy.source.append(1)


def test_a_hundred_copies_leave_no_fd_no_mapping_and_no_thread():
    def once():
        with copying(100_000) as copy:
            copy.dma.memcpy(copy.src, copy.dst).submit().wait(10)
            copy.pe.fileno()

    once()
    before = steady(held)
    for _ in range(100):
        once()
    until(lambda: held() == before, "all of it was given back")


# ---- forgetting ----


def forgotten(make):
    """What warns when the one thing that `make` gives is dropped."""
    made = make()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        del made
        gc.collect()
    return [(one.category, str(one.message)) for one in seen]


ROOTS = {
    "Device": lambda c: doca.Device(),
    "Representor": lambda c: doca.Representor(c.device, "3b:00.0"),
    "Mmap": lambda c: doca.Mmap(bytearray(8), c.device),
    "BufInventory": lambda c: doca.BufInventory(4),
    "Dma": lambda c: doca.Dma(c.device),
    "ProgressEngine": lambda c: doca.ProgressEngine(),
}


@pytest.mark.parametrize("name", ROOTS)
def test_what_is_forgotten_warns_and_is_closed(name, copy, destroyed):
    ((kind, text),) = forgotten(lambda: ROOTS[name](copy))
    assert kind is ResourceWarning
    assert text.startswith(f"<doca.{name} ")
    assert text.endswith("was not closed")
    assert len(destroyed) == 1


def test_a_context_that_is_forgotten_while_it_runs_is_stopped_first(copy, destroyed):
    def running():
        dma = doca.Dma(copy.device)
        copy.pe.connect(dma)
        dma.start()
        return dma

    assert len(forgotten(running)) == 1
    assert destroyed == ["doca_dma_destroy"]


def test_buffers_and_tasks_that_are_forgotten_go_back_without_a_word(copy):
    for _ in range(100):
        src = copy.inventory.buf_by_data(copy.source_map)
        copy.dma.memcpy(src, copy.dst)
    del src
    assert copy.inventory.free == 14
    assert forgotten(lambda: copy.inventory.buf_by_data(copy.source_map)) == []


def test_a_task_that_is_forgotten_in_flight_still_arrives(copy):
    copy.dma.memcpy(copy.src, copy.dst).submit()
    gc.collect()
    (task,) = copy.pe.wait(10)
    assert task.done
    assert copy.target == copy.source


def test_children_keep_their_parents(copy):
    def some():
        device = doca.Device()
        mapped = doca.Mmap(bytearray(b"kept"), device)
        return doca.BufInventory(1).buf_by_data(mapped)

    buf = some()
    gc.collect()
    assert bytes(buf.data) == b"kept"
    device, mapped, inventory = buf.mmap.devices[0], buf.mmap, buf.inventory
    for one in (inventory, mapped, device):
        one.close()


def test_a_cycle_that_nobody_holds_is_destroyed_in_the_right_order(destroyed):
    def make():
        copy = Copy()
        objects(copy)
        head = copy.inventory.buf_by_data(copy.source_map, 0, 8)
        head.chain(copy.inventory.buf_by_data(copy.source_map, 8, 8))
        copy.head, copy.itself = head, copy
        return copy

    seen = forgotten(make)
    kinds = sorted(text.split()[0] for _, text in seen)
    want = ["BufInventory", "Device", "Dma", "Mmap", "Mmap", "ProgressEngine"]
    assert kinds == [f"<doca.{name}" for name in want]
    assert sorted(destroyed) == [
        *["doca_buf_dec_refcount"] * 3,  # the list goes with its first
        "doca_buf_inventory_destroy",
        "doca_dev_close",
        "doca_dma_destroy",
        *["doca_mmap_destroy"] * 2,
        "doca_pe_destroy",
    ]
    order = destroyed.index
    assert order("doca_dma_destroy") < order("doca_dev_close")
    assert order("doca_dma_destroy") < order("doca_pe_destroy")
    assert order("doca_mmap_destroy") < order("doca_dev_close")
    assert handle._leaked == []


def test_what_a_finalizer_cannot_destroy_stays_and_nothing_is_raised(copy, monkeypatch):
    call = Library.call
    memory = bytearray(8)

    def refused(self, name, *args):
        if name == "doca_mmap_destroy":
            raise self.error(3, name)
        call(self, name, *args)

    monkeypatch.setattr(Library, "call", refused)
    seen = forgotten(lambda: doca.Mmap(memory, copy.device))
    assert [kind for kind, _ in seen] == [ResourceWarning]
    with pytest.raises(BufferError):
        memory.append(1)
    monkeypatch.undo()
    (kept,) = handle._leaked
    handle._leaked.clear()
    kept.close()
    memory.append(1)


def test_a_finalizer_waits_until_the_thread_inside_has_left(copy):
    turn, done = copy.pe._lock, []
    inside, leave = threading.Event(), threading.Event()

    def work():
        with turn:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(10)
    turn.defer(lambda: done.append(1))
    assert done == []
    leave.set()
    thread.join()
    assert done == [1]
    turn.defer(lambda: done.append(2))
    assert done == [1, 2]


def test_a_finalizer_inside_its_own_threads_turn_waits_too(copy):
    done = []
    with copy.pe._lock:
        copy.pe._lock.defer(lambda: done.append(1))
        assert done == []
    assert done == [1]


def test_tasks_that_are_forgotten_while_another_thread_waits_are_freed_later():
    program = """
import threading
from support.doca.binding import copying
with copying(4096, tasks=4) as copy:
    lost = copy.dma.memcpy(copy.src, copy.dst).submit()
    waiting = threading.Event()
    def wait():
        waiting.set()
        print(copy.pe.wait(0.5))
    others = [copy.dma.memcpy(copy.src, copy.dst) for _ in range(3)]
    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    del others
    gc.collect()
    thread.join()
    others = [copy.dma.memcpy(copy.src, copy.dst) for _ in range(3)]
    print(len(others))
"""
    assert run(START + program, SOFTDOCA_FAULTS="lose") == "()\n3\n"


# ---- the end of the process ----

UNCLOSED = """
from support.doca.binding import Copy
copy = Copy()
copy.dma.memcpy(copy.src, copy.dst).submit()
print("end")
"""


def test_a_process_may_end_without_closing_anything():
    assert run("import sys\nsys.warnoptions.append('error')\n" + START + UNCLOSED) == "end\n"


def test_objects_in_a_module_that_dies_harm_nobody():
    program = UNCLOSED + "import types; m = types.ModuleType('m'); m.copy = copy; m.m = m; del copy"
    assert run(START + program) == "end\n"


# ---- fork ----

FORK = """
from support.doca.binding import copying
from support.processes.waiting import gone
warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads is what is tested
with copying() as copy:
    copy.task = copy.dma.memcpy(copy.src, copy.dst).submit().wait(10)
    mine = [copy.device, copy.source_map, copy.inventory, copy.src, copy.pe, copy.dma, copy.task]
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            JOB
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    copy.again()
    copy.task.submit().wait(10)
    print(copy.target == copy.source)
"""
JOBS = {
    "everything opened before is refused": """
            for use in (
                copy.device.representors, copy.source_map.export_pci, lambda: copy.inventory.free,
                lambda: copy.src.data_size, copy.pe.progress, lambda: copy.pe.wait(0),
                lambda: copy.dma.state, copy.task.submit, copy.dma.start,
                lambda: copy.dma.memcpy(copy.src, copy.dst),
                doca.Device, doca.ProgressEngine, doca.devices, doca.version,
            ):
                try:
                    use()
                except dgkit.DeviceUnavailable as error:
                    assert "before fork" in str(error), error
                    assert "spawn" in str(error), error
                else:
                    raise AssertionError(use)
""",
    "closing in the child is harmless": """
            for one in mine:
                one.close()
                assert "of a parent process" in repr(one)
""",
    "forgetting in the child warns of nothing": """
            warnings.simplefilter("error")
            del mine, one, copy
            gc.collect()
""",
    "a child of another start method loads its own library": """
            os.execv(sys.executable, [sys.executable, "-c",
                "import sys; sys.path[:] = " + repr(sys.path) +
                "; from dgkit import doca; doca.use('softdoca'); doca.Device().close()"])
""",
}


@pytest.mark.parametrize("job", JOBS)
def test_fork(job):
    body = JOBS[job].strip().replace("del mine, one, copy", "del mine, copy")
    assert run(START + FORK.replace("JOB", body)) == "True\n"


def test_a_fork_before_the_first_use_does_no_harm():
    program = """
pid = os.fork()
if pid == 0:
    with doca.Device() as device:
        os._exit(0)
print(os.waitpid(pid, 0)[1])
doca.Device().close()
"""
    assert run(START + program) == "0\n"


def test_a_library_says_which_files_it_is_of():
    assert library().path.endswith("libdoca_common.so.3")


def test_closed_objects_are_told_from_closed_parents(copy):
    copy.target_map.close()
    with pytest.raises(dgkit.ClosedError, match="this buffer is closed"):
        copy.dma.memcpy(copy.src, copy.dst)
    assert copy.dma.state == State.RUNNING
