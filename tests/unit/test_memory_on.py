# SPDX-License-Identifier: Apache-2.0
"""dgkit.empty(on=...): the words for a place, and what is said where there is no GPU."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dgkit
from dgkit import memory
from dgkit.errors import DeviceUnavailable, Unsupported
from dgkit.memory import HostMemory, gpu_info, libcuda
from dgkit.memory.allocate import parse_on

MISSING = "libcuda.so.1: cannot open shared object file: No such file or directory"


@pytest.fixture
def no_driver(monkeypatch):
    """A machine without the driver, also where there is one. Gives what the loader says."""
    said = {"text": MISSING}

    def load(name):
        raise OSError(said["text"])

    monkeypatch.setattr(libcuda, "_driver", None)
    monkeypatch.setattr(libcuda.ctypes, "CDLL", load)
    return said


@pytest.mark.parametrize(
    ("on", "kind", "number"),
    [
        ("host", "host", None),
        ("pinned", "pinned", None),
        ("gpu", "gpu", None),
        ("auto", "auto", None),
        ("cuda:0", "gpu", 0),
        ("cuda:12", "gpu", 12),
    ],
)
def test_each_place_has_its_word(on, kind, number):
    assert parse_on(on) == (kind, number)


@pytest.mark.parametrize(
    "on", ["", "GPU", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "cuda:²", "gpu:0", None, 0]
)
def test_an_unknown_place_is_a_value_error_that_names_the_choices(on):
    with pytest.raises(ValueError, match=r"on is .*'host', 'pinned', 'gpu', 'cuda:0'.* 'auto'"):
        dgkit.empty(8, on=on)


@pytest.mark.parametrize("on", ["gpu", "cuda:0", "pinned"])
def test_without_the_driver_it_says_so_and_what_to_do(no_driver, on):
    with pytest.raises(DeviceUnavailable, match=r"libcuda\.so\.1 is missing.*Install the driver"):
        dgkit.empty(8, on=on)


def test_a_driver_that_does_not_load_is_not_called_missing(no_driver):
    no_driver["text"] = "libcuda.so.1: file too short"
    with pytest.raises(DeviceUnavailable, match=r"does not load .*file too short.*reinstall"):
        dgkit.empty(8, on="gpu")


@pytest.mark.parametrize("on", ["gpu", "auto", "pinned"])
@pytest.mark.parametrize(("shape", "error"), [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_a_shape_that_is_none_is_refused_before_the_gpu_is_looked_for(no_driver, on, shape, error):
    with pytest.raises(error):
        dgkit.empty(shape, on=on)


def test_a_gpu_has_no_lock_against_writing_importers(no_driver):
    with pytest.raises(Unsupported, match=r"is for host memory.*access='r'"):
        dgkit.empty(8, on="gpu", readonly_export=True)


def test_auto_takes_the_host_and_says_why(no_driver):
    with dgkit.empty(8, "<f4", on="auto", name="weights") as chosen:
        assert isinstance(chosen, HostMemory)
        assert chosen.place == "host"
        assert "libcuda.so.1 is missing" in chosen.chosen
        assert "on='auto' chose host memory: libcuda.so.1" in repr(chosen)
        assert "Chosen by on=" in chosen._repr_html_()
        chosen.array[:] = 7
        assert chosen.array.sum() == 56


def test_what_was_asked_for_by_name_says_nothing_of_a_choice():
    with dgkit.empty(8) as plain:
        assert plain.chosen == ""
        assert "chose" not in repr(plain) + plain._repr_html_()


def test_why_no_gpu_is_the_text_of_the_error(no_driver):
    with pytest.raises(DeviceUnavailable) as info:
        dgkit.empty(8, on="gpu")
    assert memory.why_no_gpu() == info.value.strerror
    assert memory.gpus() == []


def test_host_memory_is_on_no_gpu():
    with dgkit.empty(8) as host, dgkit.wrap(bytearray(8)) as foreign:
        assert host.gpu is None
        assert foreign.gpu is None


class _Dlpack:
    def __init__(self, kind):
        self.kind = kind

    def __dlpack_device__(self):
        return (self.kind, 0)


class _Interface:
    __cuda_array_interface__ = {}  # noqa: RUF012


@pytest.mark.parametrize(
    ("obj", "there"),
    [
        (bytearray(4), False),
        (b"1234", False),
        (memoryview(b"1234"), False),
        (np.zeros(4), False),
        ("text", False),
        (None, False),
        (_Dlpack(1), False),
        (_Dlpack(3), False),
        (_Dlpack(2), True),
        (_Dlpack(13), True),
        (_Interface(), True),
    ],
    ids=repr,
)
def test_an_array_on_a_gpu_is_known_by_what_it_says(obj, there):
    assert memory.is_gpu_array(obj) is there


def test_asking_whether_an_array_is_on_a_gpu_loads_no_gpu_library():
    code = (
        "import sys; import dgkit.memory as m; m.is_gpu_array(bytearray(4)); m.is_gpu_array(3)\n"
        "m.wrap(bytearray(4)); m.empty(4).close()\n"
        "print([n for n in sys.modules if n.startswith(('cuda', 'cupy', 'ctypes'))])"
    )
    found = f"import sys; sys.path[:] = {sys.path!r}\n"
    done = subprocess.run([sys.executable, "-c", found + code], capture_output=True, check=True)
    assert done.stdout.split() == [b"[]"]


VERSION = """\
NVRM version: NVIDIA UNIX {flavour}x86_64  580.159.04  Release Build  (dvs-builder@x)  Tue Sep
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""


@pytest.mark.parametrize(
    ("flavour", "known"), [("Open Kernel Module for ", "open"), ("Kernel Module  ", "closed")]
)
def test_the_flavour_of_the_kernel_modules_is_read_from_their_version(
    monkeypatch, tmp_path, flavour, known
):
    file = tmp_path / "version"
    file.write_text(VERSION.format(flavour=flavour))
    monkeypatch.setattr(gpu_info, "_VERSION", file)
    assert gpu_info.kernel_modules() == ("580.159.04", known, "")


def test_a_flavour_that_cannot_be_read_is_unknown_and_says_why(monkeypatch):
    monkeypatch.setattr(gpu_info, "_VERSION", Path("/nowhere/version"))
    version, flavour, why = gpu_info.kernel_modules()
    assert (version, flavour) == ("unknown", "unknown")
    assert "/nowhere/version cannot be read" in why


def test_the_size_of_bar1_is_that_of_the_devices_second_resource(monkeypatch, tmp_path):
    device = tmp_path / "0000:17:00.0"
    device.mkdir()
    lines = [
        "0x00000000b2000000 0x00000000b2ffffff 0x0000000000040200",
        "0x0000204000000000 0x000020bfffffffff 0x000000000014220c",
    ]
    (device / "resource").write_text("\n".join(lines))
    monkeypatch.setattr(gpu_info, "_PCI", tmp_path)

    def no_nvml():
        raise RuntimeError("libnvidia-ml.so.1 is not here")

    monkeypatch.setattr(gpu_info, "open_nvml", no_nvml)
    assert gpu_info._memory("0000:17:00.0")[:3] == (512 << 30, None, None)
    assert "libnvidia-ml.so.1 is not here" in gpu_info._memory("0000:17:00.0")[3]
    *sizes, why = gpu_info._memory("0000:18:00.0")
    assert sizes == [None, None, None]
    assert "cannot be read" in why


def test_a_64_bit_bar0_takes_two_lines_and_the_next_in_use_is_bar1(monkeypatch, tmp_path):
    device = tmp_path / "0000:17:00.0"
    device.mkdir()
    unused = "0x0000000000000000 0x0000000000000000 0x0000000000000000"
    lines = [
        *("0x00000000c0000000 0x00000000c0ffffff 0x000000000014220c", unused),
        *("0x0000204000000000 0x0000207fffffffff 0x000000000014220c", unused),
    ]
    (device / "resource").write_text("\n".join(lines))
    monkeypatch.setattr(gpu_info, "_PCI", tmp_path)
    assert gpu_info._bar1_size("0000:17:00.0") == 256 << 30
    (device / "resource").write_text("\n".join(lines[:2]))
    assert gpu_info._bar1_size("0000:17:00.0") is None


class _Nvml:
    """NVML's functions, for one GPU."""

    def device_get_handle_by_pci_bus_id_v2(self, pci):
        return {"0000:17:00.0": 7}[pci]

    def device_get_memory_info_v2(self, handle):
        return SimpleNamespace(free=handle * 1000)

    def device_get_bar1_memory_info(self, handle):
        return SimpleNamespace(bar1_total=handle * 10, bar1_free=handle)


def test_bar1_and_free_memory_are_asked_of_nvml_first(monkeypatch):
    monkeypatch.setattr(gpu_info, "open_nvml", _Nvml)
    assert gpu_info._memory("0000:17:00.0") == (70, 7, 7000, "")
