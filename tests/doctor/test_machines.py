# SPDX-License-Identifier: Apache-2.0
"""Whole machines: the verdicts that an expert expects.

`python -m pytest tests/doctor/test_machines.py --approve` writes the tutorial's snapshots again:
review the diff.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import msgspec
import pytest
from doctor.snapshots import NAMES, SYNTHETIC, TUTORIAL_FILES, machine, snapshot_file

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.collect.snapshot import RecordedReader, Snapshot, load
from dgkit.doctor.facts import nvidia_topo, pci, pci_ids, topology
from dgkit.doctor.finding import worst
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine
from dgkit.doctor.redact.redactor import Redactor
from dgkit.doctor.runner import diagnose

# For a machine, or a host and a DPU, and a goal: the exit code, the best data path that works, and
# the verdicts of the checks that matter. `dark`: unknown.
EXPECTED = """
pix rdma 0 rdma-gpu-dmabuf
    topology=ok link=ok acs=ok iommu=ok rdma-dmabuf=ok numa=ok
pix gpunetio 0 gpunetio-ethernet
    topology=ok bluefield-mode=na gpunetio-ethernet=ok gpunetio-dma=ok
pxb gpunetio 0 gpunetio-ethernet
    topology=ok bluefield-mode=ok gpunetio-verbs=ok gdrcopy=ok
pxb arm-dma 1 cuda
    bluefield-mode=fail topology=ok bluefield-tmfifo=warn
phb rdma 0 rdma-gpu-dmabuf
    topology=ok numa=ok rdma-devices=ok
node rdma 0 rdma-gpu-dmabuf
    topology=ok numa=ok
node gpunetio 0 gpunetio-ethernet
    topology=ok
sys rdma 0 rdma-gpu-dmabuf
    topology=ok numa=ok
dgx-a100 rdma 0 rdma-gpu-dmabuf
    topology=ok numa=ok acs=ok link=ok peermem=ok
dgx-spark rdma 5 rdma-host
    gpudirect-platform=warn dmabuf-gpu=warn topology=na acs=na
dgx-spark laptop 0 soft
    gpudirect-platform=na
bf2-dpu-mode arm-dma 0 doca-gpu-dmabuf
    bluefield-present=ok bluefield-mode=ok doca-libraries=ok dmabuf-gpu=ok bluefield-tmfifo=ok
bf2-dpu-mode gpunetio 1 cuda
    bluefield-mode=fail
bf2-nic-mode arm-dma 1 cuda
    bluefield-mode=fail
bf2-nic-mode gpunetio 0 gpunetio-ethernet
    bluefield-mode=ok gpunetio-rdma=ok
bf3-dpu-mode arm-dma 0 doca-gpu-dmabuf
    bluefield-mode=ok firmware-version=ok doca-version=ok dmabuf-gpu=ok kernel-version=ok
bf3-dpu-mode host-dma 0 doca-host-memory
    bluefield-mode=ok doca-libraries=ok gpu-present=na link=ok memlock=ok
bf3-dpu-mode rdma 0 rdma-gpu-dmabuf
    rdma-dmabuf=ok rdma-devices=ok
bf3-nic-mode host-dma 1 soft
    bluefield-mode=fail
bf3-nic-mode arm-dma 1 cuda
    bluefield-mode=fail
bf3-nic-mode gpunetio 0 gpunetio-ethernet
    bluefield-mode=ok bluefield-link=ok gpunetio-ethernet=ok
bf2-arm arm-dma 6 doca-host
    bluefield-mode=ok bluefield-representors=ok bluefield-tmfifo=ok doca-libraries=ok
bf3-arm arm-dma 6 doca-host
    bluefield-mode=ok page-size=ok memlock=ok
bf3-arm host-dma 0 doca-host-memory
    bluefield-mode=ok bluefield-representors=ok doca-version=ok
bf3-arm-zero-trust arm-dma 6 doca-host
    bluefield-mode=ok bluefield-representors=ok
bf2-dpu-mode+bf2-arm arm-dma 5 doca-gpu-dmabuf
    pair-bluefield=ok pair-versions=warn pair-memory=ok
bf3-dpu-mode+bf3-arm arm-dma 0 doca-gpu-dmabuf
    pair-bluefield=ok pair-versions=ok pair-memory=ok
bf3-dpu-mode+bf2-arm arm-dma 1 cuda
    pair-bluefield=fail
small-bar1 arm-dma 5 doca-gpu-dmabuf
    bar1-size=warn bar1-resizable=warn link=ok
closed-driver arm-dma 1 doca-host
    driver-flavour=ok dmabuf-gpu=fail peermem=fail driver-persistence=ok topology=ok
acs-on arm-dma 5 doca-gpu-dmabuf
    acs=warn iommu=ok topology=ok
acs-on rdma 5 rdma-gpu-dmabuf
    acs=warn
iommu-on arm-dma 5 doca-gpu-dmabuf
    iommu=warn acs=ok
iommu-passthrough arm-dma 0 doca-gpu-dmabuf
    iommu=ok acs=ok
mode-pending arm-dma 1 cuda
    bluefield-mode=fail
mode-pending gpunetio 5 gpunetio-ethernet
    bluefield-mode=warn
nouveau arm-dma 1 doca-host
    driver-loaded=fail gpu-present=ok topology=ok
old-kernel arm-dma 0 doca-gpu-dmabuf
    kernel-version=ok dmabuf-gpu=ok driver-flavour=ok peermem=na
peermem-fallback arm-dma 0 doca-gpu-peermem
    kernel-version=ok driver-flavour=ok dmabuf-gpu=na peermem=ok
peermem-fallback rdma 0 rdma-gpu-peermem
    peermem=ok
driver-broken arm-dma 1 doca-host
    driver-loaded=fail cuda-driver=fail topology-nvidia-smi=dark topology=ok
    dgkit-providers=warn
not-root arm-dma 6 cuda
    acs=dark bluefield-mode=dark memlock=fail topology=ok
container arm-dma 1 cuda
    container=fail doca-libraries=fail bluefield-mode=dark dgkit-providers=fail
vm-passthrough rdma 0 rdma-gpu-dmabuf
    virtual-machine=ok topology=na acs=na iommu=na
h200 arm-dma 1 cuda
    bluefield-present=fail dmabuf-gpu=ok driver-flavour=ok bar1-size=ok kernel-version=ok iommu=na
h200-x2 arm-dma 1 cuda
    dmabuf-gpu=ok topology-nvidia-smi=na link=ok numa=ok bar1-size=ok bar1-resizable=ok
laptop arm-dma 1 soft
    gpu-present=fail bluefield-present=fail
wsl rdma 1 soft
    virtual-machine=warn gpu-present=fail
laptop laptop 0 soft
    dgkit-core=ok dgkit-providers=ok dgkit-extras=ok
wsl laptop 0 soft
    dgkit-core=ok open-files=ok
"""
ROWS = re.split(r"\n(?! )", EXPECTED.strip())
WORDS = {"ok": "ok", "warn": "warn", "fail": "fail", "na": "n.a.", "dark": "unknown"}
# Keys that a machine may lack, so that a check finds them absent. Any other absent key is one that
# `synthetic_machines` forgot.
MAY_LACK = r"""
(text|names) /opt/mellanox/doca/.*
link /sys/bus/pci/devices/[^/]+/(iommu_group|physfn)
link /usr/local/cuda
names /usr/local
names /dev/infiniband
names /sys/bus/platform/devices
names /sys/class/infiniband(/[^/]+/ports/1/gid_attrs/ndevs)?
names /sys/module/(nvidia_peermem|mlx[45]_(core|ib))
names /sys/kernel/mm/memory_peers
names /dev/nvidia-caps-imex-channels
text /proc/meminfo
ask (device-files|address-space)
run (dmesg|modinfo -F depends nvidia-peermem|nvidia-smi topo -p2p rw?)
run (systemctl is-active|pgrep -x) nvidia-imex
run systemctl is-active rshim
text /sys/fs/cgroup/devices/devices.list
run (modinfo -F (filename nvidia-peermem|version nvidia)|rdma system)
run (nvcc --version|nvidia-smi .*|ofed_info -s)
run (mlxconfig|mstconfig) .*
text /\.dockerenv
text /etc/(mlnx-release|rshim\.conf|modprobe\.d/nvidia\.conf)
text /(lib/modules/[^/]+/(build/\.)?|proc/)config(\.gz)?
text /proc/device-tree/.*
text /proc/driver/nvidia/.*
text /run/(\.containerenv|systemd/container)
text /sys/class/infiniband/[^/]+/parent
text /sys/class/net/(lo|oob_net0|tmfifo_net0)/phys_port_name
text /sys/hypervisor/type
text /sys/module/(mlx5_core|nvidia)/version
text /usr/local/cuda/version\.(json|txt)
"""

# The topology class of the nearest GPU and NIC.
NEAR = {
    "pix": "PIX", "pxb": "PXB", "phb": "PHB", "node": "NODE", "sys": "SYS",
    "bf2-dpu-mode": "PIX", "bf3-nic-mode": "PIX", "acs-on": "PIX", "dgx-a100": "PXB",
    "dgx-spark": "NODE", "vm-passthrough": "PHB",
}  # fmt: skip


@pytest.mark.parametrize("path", TUTORIAL_FILES, ids=lambda path: path.name)
def test_the_tutorial_has_the_machine_that_is_described(
    path: Path, request: pytest.FixtureRequest
) -> None:
    made = snapshot_file(TUTORIAL_FILES[path]).read_bytes()
    if request.config.getoption("approve"):
        path.write_bytes(made)
    assert path.read_bytes() == made, "--approve writes it again"


@pytest.mark.parametrize("name", NAMES)
def test_each_machine_says_where_it_comes_from(name: str) -> None:
    source = load(snapshot_file(name)).source
    assert source.startswith("synthetic: after ") == (name in SYNTHETIC)
    assert source == "recorded" or source.startswith(("recorded: ", "synthetic: after "))


@pytest.mark.parametrize("name", sorted(NEAR))
def test_a_gpu_and_a_nic_are_as_near_as_the_machines_name_says(name: str) -> None:
    tree = machine(name).know(pci.tree)
    nics = [one for one in tree.nics if one.vendor == pci_ids.MELLANOX]
    near = [topology.path(tree, a.address, b.address).near for a in tree.gpus for b in nics]
    assert str(min(near)) == NEAR[name]


@pytest.mark.parametrize("name", sorted(set(NEAR) - {"vm-passthrough"}))
def test_the_tree_in_sysfs_and_nvidia_smi_say_the_same(name: str) -> None:
    """The two accounts within one snapshot agree: a disagreement is a mistake of the snapshot."""
    known = machine(name)
    tree, matrix = known.know(pci.tree), known.know(nvidia_topo.topology_matrix)
    at = nvidia_topo.addresses(known, matrix)
    pairs = [pair for pair in matrix.cells if not matrix.cells[pair].startswith("NV")]
    assert pairs
    for a, b in pairs:
        assert matrix.near(a, b) == topology.path(tree, at[a], at[b]).near, (a, b)


def sides(names: str) -> list[Machine]:
    return [machine(name) for name in names.split("+")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row.split()[:2]))
def test_a_machine_is_judged_as_one_who_knows_it_would(row: str) -> None:
    names, goal, code, best, *checks = row.split()
    found = diagnose(sides(names), goal=Goal(goal))
    said = {check.partition("=")[0]: check.partition("=")[2] for check in checks}
    assert {name: str(worst(found.of(name))) for name in said} == {
        name: WORDS[word] for name, word in said.items()
    }
    assert found.best is not None
    assert (found.best.name, found.exit_code) == (best, int(code))


@functools.cache
def hidden_snapshot(name: str) -> Snapshot:
    """Return the snapshot of a machine, redacted with a word that all have in common."""
    known = load(snapshot_file(name))
    return msgspec.structs.replace(known, readings=Redactor("a word").redact(known.readings))


def under_pseudonyms(names: str) -> list[Machine]:
    """Return the machines of a recording, redacted."""
    return [Machine(RecordedReader(hidden_snapshot(name)), name) for name in names.split("+")]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: " ".join(row.split()[:2]))
def test_pseudonyms_change_no_verdict(row: str) -> None:
    names, goal = row.split()[:2]
    plain, hidden = (
        diagnose(machines, goal=Goal(goal)) for machines in (sides(names), under_pseudonyms(names))
    )
    assert sorted((one.check, one.side, one.found) for one in plain.findings) == sorted(
        (one.check, one.side, one.found) for one in hidden.findings
    )
    assert plain.data_paths == hidden.data_paths


class Asked(RecordedReader):
    """Keeps the keys that are not in the snapshot."""

    def __init__(self, name: str) -> None:
        super().__init__(load(snapshot_file(name)))
        self.lacks: set[str] = set()

    def read(self, key: str) -> Reading:
        if key not in self.snapshot.readings:
            self.lacks.add(key)
        return super().read(key)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_machine_has_every_file_that_checks_ask_for(name: str) -> None:
    known = Asked(name)
    for goal in Goal:
        diagnose([Machine(known, name)], goal=goal)
    allowed = [line.strip() for line in MAY_LACK.strip().splitlines()]
    lacks = {key for key in known.lacks if not any(re.fullmatch(one, key) for one in allowed)}
    assert lacks == set(), "add it to synthetic_machines, or to MAY_LACK"
