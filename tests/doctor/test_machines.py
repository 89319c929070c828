"""Whole machines, judged as somebody who knows them would judge them.

Each is a file beside this one, written by make_machines.py or recorded; its `source` says which.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from doctor.make_machines import MACHINE_FOLDER, files, snapshot

from dgkit.doctor.facts import pci, topo_m, topology
from dgkit.doctor.machine import Machine
from dgkit.doctor.snapshot import Recorded, load

# The nearest that a GPU and a NIC are to each other.
NEAR = {
    "pix": "PIX", "pxb": "PXB", "phb": "PHB", "node": "NODE", "sys": "SYS",
    "bf2-dpu-mode": "PIX", "bf3-nic-mode": "PIX", "acs-on": "PIX", "dgx-a100": "PXB",
    "dgx-spark": "NODE", "vm-passthrough": "PHB",
}  # fmt: skip


def machine(name: str) -> Machine:
    return Machine(Recorded(load(MACHINE_FOLDER / f"{name}.snap")), f"{name}.snap")


@pytest.mark.parametrize("path", sorted(files()), ids=lambda path: path.name)
def test_a_file_is_what_its_description_makes(path: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    snapshot(files()[path]).save(made)
    assert path.read_bytes() == made.read_bytes(), "run python tests/doctor/make_machines.py"


def test_each_file_says_where_it_comes_from() -> None:
    for path in MACHINE_FOLDER.glob("*.snap"):
        source = load(path).source
        assert source == "recorded" or source.startswith(("recorded: ", "synthetic: after ")), path


@pytest.mark.parametrize("name", sorted(NEAR))
def test_a_gpu_and_a_nic_are_as_near_as_the_machines_name_says(name: str) -> None:
    tree = machine(name).know(pci.tree)
    nics = [one for one in tree.nics if one.vendor == pci.MELLANOX]
    near = [topology.path(tree, a.address, b.address).near for a in tree.gpus for b in nics]
    assert str(min(near)) == NEAR[name]


@pytest.mark.parametrize("name", sorted(set(NEAR) - {"vm-passthrough"}))
def test_the_tree_in_sysfs_and_nvidia_smi_say_the_same(name: str) -> None:
    """The files' own two accounts of one machine: else the doctor's disagreement is our mistake."""
    known = machine(name)
    tree, matrix = known.know(pci.tree), known.know(topo_m.topo_m)
    at = topo_m.named(known, matrix)
    pairs = [pair for pair in matrix.cells if not matrix.cells[pair].startswith("NV")]
    assert pairs
    for a, b in pairs:
        assert matrix.near(a, b) == topology.path(tree, at[a], at[b]).near, (a, b)
