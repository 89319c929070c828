# SPDX-License-Identifier: Apache-2.0
"""Memory that a process may use: of the machine, and of each cgroup that it is in."""

import os
import tracemalloc

import pytest

from dgkit.agent import default_memory
from dgkit.memory import meminfo

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
V1 = "33 30 0:30 {root} {mount} rw,relatime - cgroup cgroup rw,memory\n"
V2 = "34 30 0:31 {root} {mount} rw,relatime - cgroup2 cgroup2 rw\n"
OTHERS = (
    "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 30 0:29 / /sys/fs/cgroup/cpu rw - cgroup cpu rw,cpu\n"
)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Returns a function that makes /proc/self/cgroup, mountinfo and the files of cgroups."""

    def make(cgroup, mounts, files):
        mount = str(tmp_path / "sys")
        texts = {
            "/proc/meminfo": f"MemAvailable: {MACHINE // 1024} kB\n",
            "/proc/self/cgroup": cgroup,
            "/proc/self/mountinfo": OTHERS + mounts.replace("MOUNT", mount),
        }
        for name, value in files.items():
            path = tmp_path / "sys" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
        real = meminfo._read_proc
        monkeypatch.setattr(meminfo, "_read_proc", lambda name: texts.get(name) or real(name))
        meminfo._memory_mounts.cache_clear()

    yield make
    meminfo._memory_mounts.cache_clear()


def v2(root="/"):
    return V2.format(root=root, mount="MOUNT")


def v1(root="/"):
    return V1.format(root=root, mount="MOUNT/memory")


def test_the_smallest_limit_of_nested_cgroups_v2_counts(tree):
    files = {
        "memory.max": "max",
        "a/memory.max": 512 * MIB,
        "a/memory.current": 100 * MIB,
        "a/b/memory.max": 800 * MIB,
        "a/b/memory.current": 20 * MIB,
        "a/b/c/memory.max": "max",
        "a/b/c/memory.current": 10 * MIB,
        "other/memory.max": MIB,
        "other/memory.current": 0,
    }
    tree("0::/a/b/c\n", v2(), files)
    assert meminfo.available_bytes() == 412 * MIB
    assert meminfo.total_bytes() == 512 * MIB
    assert default_memory() == 256 * MIB


def test_the_cgroup_with_the_least_room_counts_even_if_its_limit_is_larger(tree):
    files = {
        "a/memory.max": 800 * MIB,
        "a/memory.current": 790 * MIB,
        "a/b/memory.max": 512 * MIB,
        "a/b/memory.current": 12 * MIB,
    }
    tree("0::/a/b\n", v2(), files)
    assert meminfo.available_bytes() == 10 * MIB


def test_limits_of_cgroup_v1_count(tree):
    files = {
        "memory/memory.limit_in_bytes": 0x7FFFFFFFFFFFF000,
        "memory/memory.usage_in_bytes": 5 * MIB,
        "memory/docker/memory.limit_in_bytes": 512 * MIB,
        "memory/docker/memory.usage_in_bytes": 12 * MIB,
        "memory/docker/x/memory.limit_in_bytes": 0x7FFFFFFFFFFFF000,
        "memory/docker/x/memory.usage_in_bytes": 5 * MIB,
    }
    tree("7:pids:/other\n4:cpu,memory:/docker/x\n0::/\n", v1(), files)
    assert meminfo.available_bytes() == 500 * MIB
    assert default_memory() == 256 * MIB


def test_both_hierarchies_of_a_hybrid_machine_count(tree):
    mounts = v1() + V2.format(root="/", mount="MOUNT/unified")
    files = {
        "memory/memory.limit_in_bytes": 300 * MIB,
        "memory/memory.usage_in_bytes": 0,
        "unified/memory.max": 200 * MIB,
        "unified/memory.current": 0,
    }
    tree("4:memory:/\n0::/\n", mounts, files)
    assert meminfo.available_bytes() == 200 * MIB


def test_a_container_sees_its_own_part_of_the_tree(tree):
    """Without a cgroup namespace the path is the host's, and the mount's root is the container."""
    files = {
        "memory/memory.limit_in_bytes": 512 * MIB,
        "memory/memory.usage_in_bytes": 0,
        "memory/job/memory.limit_in_bytes": 64 * MIB,
        "memory/job/memory.usage_in_bytes": 0,
    }
    tree("4:memory:/docker/abc\n", v1("/docker/abc"), files)
    assert meminfo.available_bytes() == 512 * MIB
    tree("4:memory:/docker/abc/job\n", v1("/docker/abc"), files)
    assert meminfo.available_bytes() == 64 * MIB
    tree("4:memory:/docker/abcdef\n", v1("/docker/abc"), files)
    assert meminfo.available_bytes() == 512 * MIB


@pytest.mark.parametrize("path", ["/../../x", "/gone", "/\udcff", "/ä b"])
def test_a_path_outside_the_mount_or_without_files_leaves_the_limits_above_it(tree, path):
    tree(f"0::{path}\n", v2(), {"memory.max": 512 * MIB, "memory.current": MIB})
    assert meminfo.available_bytes() == 511 * MIB


@pytest.mark.parametrize(("version", "prefix"), [("v1", "total_"), ("v2", "")])
def test_page_cache_that_can_be_reclaimed_is_available(tree, version, prefix):
    stat = f"anon 7\n{prefix}inactive_file {30 * MIB}\n{prefix}active_file {20 * MIB}\nshmem 9"
    files = {
        "memory.max": 100 * MIB,
        "memory.current": 90 * MIB,
        "memory.stat": stat,
        "memory/memory.limit_in_bytes": 100 * MIB,
        "memory/memory.usage_in_bytes": 90 * MIB,
        "memory/memory.stat": stat,
    }
    tree(*(("4:memory:/\n", v1()) if version == "v1" else ("0::/\n", v2())), files)
    assert meminfo.available_bytes() == 60 * MIB


def test_more_used_than_the_limit_leaves_nothing(tree):
    tree("0::/\n", v2(), {"memory.max": MIB, "memory.current": 2 * MIB})
    assert meminfo.available_bytes() == 0


@pytest.mark.parametrize("cgroup", ["", "nonsense\n", "::\n", "0::/\n"])
def test_no_cgroup_leaves_the_machines_figure(tree, cgroup):
    tree(cgroup or "\n", v2() + "short\n - \n", {})
    assert meminfo.available_bytes() == MACHINE // 1024 * 1024
    assert meminfo.total_bytes() == MACHINE
    assert default_memory() == MACHINE // 2


def test_the_limit_of_this_process_is_a_limit_of_this_machine():
    assert 0 < meminfo.available_bytes() <= meminfo.total_bytes() <= MACHINE


def test_a_kernel_that_does_not_say_what_is_available_sets_no_limit(tree, monkeypatch):
    tree("", "", {})
    monkeypatch.setattr(meminfo, "_read_proc", lambda name: "MemFree: 3 kB\n")
    assert meminfo.available_bytes() == 1 << 62


def test_asking_again_keeps_no_memory():
    tracemalloc.start()
    try:
        for _ in range(2000):
            meminfo.total_bytes()
        kept = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/meminfo.py")])
        assert len(kept.traces) < 20, kept.statistics("lineno")
    finally:
        tracemalloc.stop()
