# SPDX-License-Identifier: Apache-2.0
"""What `nvidia-smi topo -m` prints, in several versions of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import machine
from support.doctor.pci import gpu, nic, sysfs

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import nvidia_topo
from dgkit.doctor.facts.topology import Near

# The GPUNetIO guide, Installation and Setup: tabs became blanks.
GUIDE = """\
GPU0 NIC0 NIC1 CPU Affinity NUMA Affinity GPU NUMA ID
GPU0 X NODE NODE 12-23,36-47 1 N/A
NIC0 NODE X PIX
NIC1 NODE PIX X
Legend:
X = Self
SYS = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
NV# = Connection traversing a bonded set of # NVLinks
NIC Legend:
NIC0: mlx5_0
NIC1: mlx5_1
"""
# After NVIDIA/nccl-tests issue 78 (driver 450), shortened: NICs by their own names, NVLinks.
OLD = """\
\tGPU0\tGPU1\tGPU2\tmlx5_0\tmlx5_1\tCPU Affinity
GPU0\t X \tNV6\tNV6\tPIX\tNODE\t0-23,48-71
GPU1\tNV6\t X \tNV6\tPXB\tNODE\t0-23,48-71
GPU2\tNV6\tNV6\t X \tSYS\tSYS\t24-47
mlx5_0\tPIX\tPXB\tSYS\t X \tNODE\t
mlx5_1\tNODE\tNODE\tSYS\tNODE\t X \t

Legend:
"""
# One GPU and no NIC; the header underlined, as it is on a terminal.
ALONE = (
    "\t\x1b[4mGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \t0-251\t0\t\tN/A\n"
)


def test_the_output_of_the_guide_is_read() -> None:
    found = nvidia_topo.parse(GUIDE)
    assert found.near("GPU0", "NIC1") is Near.NODE
    assert found.near("NIC0", "NIC1") is Near.PIX
    assert found.nics == {"NIC0": "mlx5_0", "NIC1": "mlx5_1"}
    assert found.why == ""


def test_older_drivers_name_nics_themselves() -> None:
    found = nvidia_topo.parse(OLD)
    assert found.cells["GPU0", "GPU1"] == "NV6"
    assert found.near("GPU0", "GPU1") is None
    assert found.near("GPU1", "mlx5_0") is Near.PXB
    assert found.near("mlx5_0", "GPU2") is Near.SYS


def test_a_machine_with_one_gpu_has_a_matrix_of_nothing() -> None:
    found = nvidia_topo.parse(ALONE)
    assert (found.cells, found.why) == ({}, "")


def test_the_oldest_words_have_their_meaning() -> None:
    text = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tSOC\tPSB\t0-5\n"
    found = nvidia_topo.parse(text)
    assert found.near("GPU0", "GPU1") is Near.SYS
    assert found.near("GPU0", "GPU2") is Near.PIX


def test_a_cut_output_gives_what_is_there() -> None:
    found = nvidia_topo.parse(GUIDE[: GUIDE.index("NODE NODE") + 4])
    assert found.cells == {("GPU0", "NIC0"): "NODE"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "Aucun périphérique",
    ],
)
def test_what_is_no_matrix_says_so(text: str) -> None:
    assert nvidia_topo.parse(text).why


@st.composite
def matrices(draw: Any) -> tuple[str, dict[tuple[str, str], str], dict[str, str]]:
    """Generate an output of nvidia-smi, up to that of a large machine, and its cells."""
    gpus = [f"GPU{at}" for at in range(draw(st.integers(1, 8)))]
    nics = [f"NIC{at}" for at in range(draw(st.integers(0, 12)))]
    legend = {name: f"mlx5_{at}" for at, name in enumerate(nics)}
    if nics and draw(st.booleans()):
        nics, legend = [legend[name] for name in nics], {}
    names = gpus + nics
    classes = st.sampled_from(["PIX", "PXB", "PHB", "NODE", "SYS", "NV12", "NV4", "N/A"])
    cells = {(a, b): draw(classes) for a in names for b in names if a != b}
    tail = draw(st.sampled_from([[], ["0-23,48-71"], ["0-23", "0"], ["0-23", "0-1", "", "N/A"]]))
    titles = ["CPU Affinity", "NUMA Affinity", "", "GPU NUMA ID"][: len(tail)] or ["CPU Affinity"]
    header = "\t" + "\t".join(names + [one for one in titles if one])
    if draw(st.booleans()):
        header = f"\t\x1b[4m{header[1:]}\x1b[0m"
    rows = [
        "\t".join(
            [a, *(" X " if a == b else cells[a, b] for b in names), *(tail if a in gpus else [""])]
        )
        for a in names
    ]
    lines = [header, *rows, "", "Legend:", "", "  X    = Self", ""]
    lines += ["NIC Legend:", "", *(f"  {nic}: {name}" for nic, name in legend.items())]
    between = draw(st.sampled_from(["\t", "    ", " "]))
    return "\n".join(lines).replace("\t", between), cells, legend


@given(matrices())
def test_a_matrix_is_read_as_it_was_written(
    made: tuple[str, dict[tuple[str, str], str], dict[str, str]],
) -> None:
    text, cells, legend = made
    found = nvidia_topo.parse(text)
    assert found.cells == cells
    assert found.nics == legend


@given(st.text(), st.integers(0, len(OLD)), st.integers(0, len(OLD)))
def test_no_text_raises(text: str, first: int, second: int) -> None:
    for one in (text, OLD[first:], OLD[:first] + text + OLD[second:], GUIDE[first:] + text):
        nvidia_topo.parse(one)


def test_names_of_the_matrix_are_joined_with_pci_addresses() -> None:
    devices = [
        gpu("pci0000:16/0000:16:01.0/0000:17:00.0"),
        nic("pci0000:16/0000:16:02.0/0000:18:00.0"),
    ]
    smi = "GPU 00000000:17:00.0\n    Product Name : NVIDIA H100\n"
    box = machine(
        {
            **sysfs(devices),
            "run nvidia-smi -q": f"\n==============NVSMI LOG==============\n\n{smi}",
            "run nvidia-smi topo -m": GUIDE,
            "names /sys/class/infiniband": ["mlx5_0"],
            "link /sys/class/infiniband/mlx5_0/device": f"/sys/devices/{devices[1].path}",
        }
    )
    assert nvidia_topo.addresses(box, box.know(nvidia_topo.topology_matrix)) == {
        "GPU0": "0000:17:00.0",
        "NIC0": "0000:18:00.0",
    }


@pytest.mark.parametrize(
    ("reading", "words"),
    [
        (Reading(fault="absent", why="there is no command nvidia-smi"), "no command nvidia-smi"),
        (Reading(text="Failed to initialize NVML\n", code=9), "Failed to initialize NVML"),
        (Reading(code=1), "exit status 1"),
    ],
)
def test_why_there_is_no_matrix_is_said(reading: Reading, words: str) -> None:
    assert words in nvidia_topo.topology_matrix(machine({"run nvidia-smi topo -m": reading})).why
