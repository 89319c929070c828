# SPDX-License-Identifier: Apache-2.0
"""dgkit.doca: DOCA's errors by their names, what raises them, and libraries that are not there."""

from pathlib import Path

import pytest
from support.doca.binding import START, copying
from support.processes.children import run

import dgkit
from dgkit import doca
from dgkit.doca import Code, State, doca_errors
from dgkit.doca._library import library

CLASSES = doca.DocaError.__subclasses__()


@pytest.fixture
def copy():
    with copying() as made:
        yield made


# ---- the names ----


def test_each_code_but_success_has_a_class_of_its_own():
    assert {kind.code for kind in CLASSES} == set(Code) - {Code.SUCCESS}
    assert len(CLASSES) == len(Code) - 1


@pytest.mark.parametrize("kind", CLASSES)
def test_each_class_is_named_after_its_code(kind):
    name = kind.__name__.upper()
    assert name == kind.code.name.replace("_", "").upper()
    assert getattr(doca, kind.__name__) is kind
    assert doca_errors.error_class(kind.code) is kind


def test_a_code_that_is_not_known_is_an_error_of_the_root_with_its_number():
    error = library().error(77, "doca_something", "who knows")
    assert type(error) is doca.DocaError
    assert error.code == 77
    assert str(error) == "doca_something: error 77: who knows"


@pytest.mark.parametrize(
    ("kind", "also"),
    [
        (doca.InvalidValue, ValueError),
        (doca.NotPermitted, PermissionError),
        (doca.NoMemory, MemoryError),
        (doca.TimeOut, TimeoutError),
        (doca.DocaError, dgkit.DgkitError),
    ],
)
def test_an_error_is_also_what_python_calls_it(kind, also):
    assert issubclass(kind, also)
    error = kind("what happened")
    assert str(error) == "what happened"
    assert error.code == kind.code


# ---- who raises them ----

MISUSE = {
    "stop a map that has buffers": (doca.NotPermitted, lambda c: c.source_map.stop()),
    "import nothing": (doca.InvalidValue, lambda c: doca.Mmap.from_export(b"", c.device)),
    "an fd that is no dma-buf": (
        doca.InvalidValue,
        lambda c: doca.Mmap((0x10000, 4096), c.device, dmabuf=0),
    ),
    "memory past the end of all": (
        doca.InvalidValue,
        lambda c: doca.Mmap(((1 << 64) - 8, 4096), c.device),
    ),
    "an inventory larger than any memory": (doca.NoMemory, lambda c: doca.BufInventory(1 << 62)),
    "wait for what was not submitted": (
        doca.BadState,
        lambda c: c.dma.memcpy(c.src, c.dst).wait(),
    ),
}


@pytest.mark.parametrize("what", MISUSE)
def test_misuse_has_its_error(what, copy):
    kind, wrong = MISUSE[what]
    with pytest.raises(kind) as caught:
        wrong(copy)
    assert caught.value.code == kind.code
    copy.dma.memcpy(copy.src, copy.dst).submit().wait(10)  # and nothing else was harmed
    assert copy.target == copy.source


FOREIGN = {
    "mmap is of type bytearray; it must be a doca.Mmap": (
        lambda c: c.inventory.buf_by_data(bytearray(8)),
        lambda c: c.inventory.buf_by_addr(bytearray(8), 0, 1),
    ),
    "buf is of type Mmap; it must be a doca.Buf": (lambda c: c.inventory.dup(c.source_map),),
    "src is of type bytearray; it must be a doca.Buf": (
        lambda c: c.dma.memcpy(bytearray(8), c.dst),
    ),
    "dst is of type Mmap; it must be a doca.Buf": (lambda c: c.dma.memcpy(c.src, c.target_map),),
    "other is of type NoneType; it must be a doca.Buf": (lambda c: c.src.chain(None),),
    "at is of type int; it must be a doca.Buf": (lambda c: c.src.unchain(1),),
    "dma is of type Device; it must be a doca.Dma": (lambda c: c.pe.connect(c.device),),
    "device is of type str; it must be a doca.Device": (
        lambda c: doca.Dma("mlx5_0"),
        lambda c: doca.Mmap.from_export(b"", "mlx5_0"),
        lambda c: doca.Representor("mlx5_0", "3b:00.0"),
    ),
}


@pytest.mark.parametrize("says", FOREIGN)
def test_an_object_of_another_kind_is_named_with_the_argument(says, copy):
    for wrong in FOREIGN[says]:
        with pytest.raises(TypeError) as caught:
            wrong(copy)
        assert str(caught.value) == says


def test_the_message_names_the_call_the_code_and_why(copy):
    with pytest.raises(doca.BadState) as caught:
        copy.source_map.start()
    text = str(caught.value)
    assert text == "doca_mmap_start: DOCA_ERROR_BAD_STATE: the map is started"


def test_a_task_in_flight_is_not_touched(copy):
    task = copy.dma.memcpy(copy.src, copy.dst).submit()
    with pytest.raises(doca.InUse, match="in flight"):
        task.submit()
    with pytest.raises(doca.InUse, match="in flight"):
        task.dst = copy.dst
    task.wait(10)


# ---- tasks that fail ----


def test_a_copy_above_the_limit_fails_at_its_completion_and_stops_the_context():
    with copying((2 << 20) + 1) as copy:
        task = copy.dma.memcpy(copy.src, copy.dst).submit()
        with pytest.raises(doca.IoFailed, match="at most 2097152 bytes at once") as caught:
            task.wait(10)
        assert caught.value.code == task.status == task.error.code == Code.IO_FAILED
        assert task.done
        assert copy.dma.state == State.STOPPING
        with pytest.raises(doca.BadState):
            task.submit()
        assert copy.dma.stop() == State.IDLE
        copy.dma.start()
        copy.src.set_data(0, 100)
        copy.dma.memcpy(copy.src, copy.dst).submit().wait(10)
        assert copy.target[:100] == copy.source[:100]


FAULTY = """
from support.doca.binding import copying
with copying(100_000) as copy:
    while True:
        task = copy.dma.memcpy(copy.src, copy.dst).submit()
        try:
            task.wait(10)
        except doca.IoFailed:
            break
        finally:
            print(task.status)
        copy.again()
    print(copy.dma.stop())
    copy.dma.start()
    copy.again()
    copy.dma.memcpy(copy.src, copy.dst).submit().wait(10)
    print(copy.target == copy.source)
"""


def test_faults_that_are_ordered_come_as_errors_of_tasks():
    out = run(START + FAULTY, SOFTDOCA_FAULTS="error skip=2 count=1 status=io_failed")
    assert out.split() == ["SUCCESS", "SUCCESS", "IO_FAILED", "IDLE", "True"]


# ---- after the end ----

USES = {
    "device": lambda c: c.device.representors(),
    "map": lambda c: c.source_map.export_pci(),
    "imported": lambda c: doca.Mmap.from_export(b"", c.device),
    "map's state": lambda c: c.source_map.start(),
    "map's buffers": lambda c: c.source_map.bufs,
    "map of a closed device": lambda c: doca.Mmap(bytearray(8), c.device),
    "inventory": lambda c: c.inventory.free,
    "a buffer of it": lambda c: c.inventory.buf_by_addr(c.source_map),
    "buffer": lambda c: c.src.data_size,
    "buffer's list": lambda c: c.src.parts,
    "buffer's data": lambda c: c.src.data,
    "engine": lambda c: c.pe.progress(),
    "engine's wait": lambda c: c.pe.wait(0),
    "engine's fd": lambda c: c.pe.fileno(),
    "context": lambda c: c.dma.state,
    "context's start": lambda c: c.dma.start(),
    "context's stop": lambda c: c.dma.stop(),
    "a task of it": lambda c: c.dma.memcpy(c.src, c.dst),
    "context of a closed device": lambda c: doca.Dma(c.device),
    "with": lambda c: c.device.__enter__(),
}


@pytest.mark.parametrize("what", USES)
def test_use_after_close_is_refused(what, copy):
    for root in copy.roots:
        root.close()
    with pytest.raises(dgkit.ClosedError, match=r"this [\w ]+ is closed"):
        USES[what](copy)


def test_a_closed_task_is_not_submitted_and_keeps_its_status(copy):
    task = copy.dma.memcpy(copy.src, copy.dst).submit().wait(10)
    task.close()
    assert task.status == Code.SUCCESS
    with pytest.raises(dgkit.ClosedError):
        task.submit()


# ---- libraries that are not there ----


def test_without_doca_the_error_names_softdoca():
    program = """
import dgkit
from dgkit import doca
try:
    doca.version()
except dgkit.DeviceUnavailable as error:
    print(error)
"""
    said = run(program)
    assert "DOCA is not installed: cannot load library 'libdoca_common.so.3'" in said
    assert "use('softdoca')" in said
    assert "find_library" not in said  # cffi's own, of a search that was not asked for


def test_without_softdoca_the_error_names_the_folder(tmp_path):
    said = run(
        "import dgkit\nfrom dgkit import doca\ndoca.use('softdoca')\n"
        "try:\n    doca.devices()\nexcept dgkit.DeviceUnavailable as error:\n    print(error)\n",
        SOFTDOCA_LIB=str(tmp_path),
    )
    assert "softdoca is not in the folder of $SOFTDOCA_LIB" in said
    assert str(tmp_path) in said


def test_a_folder_that_is_not_absolute_is_refused():
    said = run(
        "import dgkit\nfrom dgkit import doca\ndoca.use('softdoca')\n"
        "try:\n    doca.devices()\nexcept dgkit.DeviceUnavailable as error:\n    print(error)\n",
        SOFTDOCA_LIB="some/where",
    )
    assert "SOFTDOCA_LIB is 'some/where'; it must be an absolute path" in said


def test_a_library_that_lacks_a_function_says_which():
    with pytest.raises(doca.NotSupported, match=r"doca_nothing: softdoca 3\.3\.0 has no such"):
        library().call("doca_nothing")


BY_PATH = """
from importlib.util import find_spec
from pathlib import Path
import cffi
from dgkit import doca
folder = Path(find_spec("dgkit._native").origin).parent / "_softdoca/lib"
folder = Path(os.environ.get("SOFTDOCA_LIB", folder))
loaded = cffi.FFI().dlopen(str(folder / "libdoca_common.so.3"))
try:
    doca.version()
except doca.BadState as error:
    print(error)
doca.use("softdoca")
print(doca.version())
"""


def test_who_loaded_a_library_before_decides_for_the_whole_process():
    said = run(f"import os\n{BY_PATH}").splitlines()
    assert said == [
        "this process already uses softdoca, so it cannot use doca: one kind per process",
        "3.3.0",
    ]


def test_softdoca_that_stands_in_for_doca_on_the_library_path_is_labelled_softdoca():
    folder = Path(library().path).parent
    said = run(
        "from dgkit import doca\nwith doca.Device() as device:\n    print(device)",
        LD_LIBRARY_PATH=str(folder),
    )
    assert "softdoca: software DOCA, no hardware" in said
