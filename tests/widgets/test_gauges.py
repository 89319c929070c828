# SPDX-License-Identifier: Apache-2.0
"""The load of the machine: CPUs of /proc/stat, GPUs of NVML, and what is said where none is."""

from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from dgkit.memory import gpu_load
from dgkit.memory.gpu_load import gpu_loads
from dgkit.widgets.dashboard import gauges
from dgkit.widgets.dashboard.gauges import Gauges


class NotSupported(Exception):
    """As NVML's: it has no base in common with other errors."""


class Nvml:
    """An H200 of PCIe 5 x16."""

    def __init__(self, **replaced):
        self.__dict__.update(replaced)

    def device_get_count_v2(self):
        return 1

    def device_get_handle_by_index_v2(self, index):
        return 700 + index

    def device_get_name(self, gpu):
        assert gpu == 700
        return "NVIDIA H200"

    def device_get_utilization_rates(self, _gpu):
        return SimpleNamespace(gpu=45, memory=20)

    def device_get_memory_info_v2(self, _gpu):
        return SimpleNamespace(used=36 << 30, total=144 << 30, free=108 << 30)

    def device_get_max_pcie_link_generation(self, _gpu):
        return 5

    def device_get_max_pcie_link_width(self, _gpu):
        return 16

    def device_get_pcie_throughput(self, _gpu, counter):
        return [1_500_000, 31_504_000][counter]  # KB/s


def refuse(*_args):
    raise NotSupported("Not Supported")


@pytest.fixture
def nvml(monkeypatch):
    def install(nvml):
        monkeypatch.setattr(gpu_load, "open_nvml", lambda: nvml)

    return install


def shown(read):
    return {one["name"]: (one["text"], one["fraction"]) for one in read if "CPU" not in one["name"]}


def test_a_gpu_has_its_load_its_memory_and_its_pcie_traffic(nvml):
    nvml(Nvml())
    read = Gauges().read()
    assert shown(read) == {
        "GPU 0": ("45 %", 0.45),
        "GPU 0 memory": ("36 GiB of 144 GiB", 0.25),
        "GPU 0 PCIe": ("in 31.50 GB/s, out 1.50 GB/s", 0.5),
    }
    assert "of 63.01 GB/s in each direction" in read[-1]["title"]


def test_nvlink_is_the_rate_between_two_readings_and_all_gpus_are_one_series(nvml, monkeypatch):
    """A stand-in with the interface of cuda.bindings.nvml, which needs a GPU."""

    class Field(SimpleNamespace):
        def __init__(self, size):
            super().__init__(nvml_return=[0] * size, kib=[0] * size)

        def __getitem__(self, at):
            return SimpleNamespace(value=SimpleNamespace(ull_val=[self.kib[at]]))

    def fill(_gpu, fields):
        assert fields.scope_id == [0xFFFFFFFF] * 2
        fields.kib = [{138: 1 << 20, 139: 1 << 21}[one] * reading for one in fields.field_id]

    nvml(Nvml(FieldValue=Field, device_get_field_values=fill))
    clock = count(100, 2)
    monkeypatch.setattr(gauges.time, "monotonic", lambda: next(clock))
    read, reading = Gauges(), 1
    read.read()
    assert np.isnan(read.series[4:]).all()
    reading = 2
    assert shown(read.read())["GPU 0 NVLink"] == ("in 1.07 GB/s, out 0.54 GB/s", None)
    assert read.series[1:4] == (45, 31.504, 1.5)
    assert np.allclose(read.series[4:], [(1 << 30) / 1e9, (1 << 29) / 1e9])


def test_what_a_gpu_does_not_tell_is_unknown_and_says_why(nvml):
    nvml(Nvml(device_get_utilization_rates=refuse, device_get_pcie_throughput=refuse))
    read = Gauges().read()
    assert shown(read) == {
        "GPU 0": ("unknown", None),
        "GPU 0 memory": ("36 GiB of 144 GiB", 0.25),
        "GPU 0 PCIe": ("unknown", None),
    }
    assert read[-1]["title"] == "NVIDIA H200: Not Supported"


def test_a_link_of_an_unknown_generation_has_no_fraction(nvml):
    nvml(Nvml(device_get_max_pcie_link_generation=lambda _gpu: 9))
    assert shown(Gauges().read())["GPU 0 PCIe"] == ("in 31.50 GB/s, out 1.50 GB/s", None)


def test_without_nvml_or_a_gpu_it_says_so_and_does_not_ask_again(nvml):
    tries = []

    def count():
        tries.append("count")
        raise NotSupported("libnvidia-ml.so.1 is not here")

    nvml(SimpleNamespace(device_get_count_v2=count))
    read = Gauges()
    for _ in range(2):
        *_, gpu = read.read()
        assert (gpu["text"], gpu["fraction"]) == ("none that NVML can read", None)
        assert "libnvidia-ml.so.1 is not here" in gpu["title"]
    assert tries == ["count"]
    nvml(Nvml(device_get_count_v2=lambda: 0))
    assert gpu_loads() == ([], "NVML lists no GPU")


def test_the_cpu_gauge_is_of_the_time_since_the_last_reading(monkeypatch, tmp_path, nvml):
    nvml(Nvml(device_get_count_v2=lambda: 0))
    stat = tmp_path / "stat"
    monkeypatch.setattr(gauges, "_STAT", stat)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    stat.write_text("cpu  100 0 50 1000 50 0 0 0 90 0\ncpu0 1 2 3\n")
    read = Gauges()
    assert read.read()[0]["text"] == "measuring"
    stat.write_text("cpu  140 10 60 1100 80 5 5 0 95 0\ncpu0 1 2 3\n")
    cpu = read.read()[0]
    assert (cpu["name"], cpu["text"], cpu["fraction"]) == ("CPU, 2 cores", "35 %", 0.35)
    stat.write_text("cpu  141 10 60 1101 80 5 5 0 95 0\n")  # too soon for a percentage
    assert read.read()[0] == cpu
    stat.unlink()
    assert read.read()[0]["text"] == "unknown"
