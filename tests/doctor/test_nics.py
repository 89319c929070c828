# SPDX-License-Identifier: Apache-2.0
"""`dgkit doctor --nics`: the NIC of each GPU, what NCCL and UCX take, the drawing."""

import json

import pytest
from doctor.published import FOLDERS, load_all
from doctor.snapshots import NAMES, machine, snapshot_file
from support.doctor.machines import reading

from dgkit.cli import main
from dgkit.doctor.collect.snapshot import RecordedReader, Snapshot
from dgkit.doctor.facts import nic_choice
from dgkit.doctor.format.nics import NicMap, lines, nic_map
from dgkit.doctor.machine import Machine

A100 = "dgx-a100"
PORT = "/sys/class/infiniband/mlx5_0/ports/1"


def changed(name: str, **texts: object) -> Machine:
    """A machine with other readings: the keys are those of sysfs."""
    known = machine(name).read.snapshot
    made = {key: reading(key, value) for key, value in texts.items()}
    readings = {**known.readings, **made}
    snapshot = Snapshot(source="synthetic: a test", readings=readings, otherwise="absent")
    return Machine(RecordedReader(snapshot), name)


def choice(found: Machine, gpu: int = 0) -> nic_choice.Choice:
    return found.know(nic_choice.choices)[gpu]


def test_each_gpu_has_the_nic_below_its_own_switch():
    found = machine(A100).know(nic_choice.choices)
    assert [one.nic.name for one in found] == [f"mlx5_{at}" for at in (0, 1, 2, 3, 6, 7, 8, 9)]
    assert found[0].nccl == ("mlx5_0", "mlx5_1")
    assert "GPUs take turns" in found[0].why


def test_a_nic_that_is_down_is_passed_over_and_named():
    found = choice(changed(A100, **{f"text {PORT}/state": "1: DOWN\n"}))
    assert (found.nic.name, found.nccl, found.ucx) == ("mlx5_1", ("mlx5_1",), ("mlx5_1",))
    far = {f"text {PORT}/state": "1: DOWN\n", f"text {PORT.replace('_0', '_1')}/state": "1: DOWN\n"}
    found = nic_map(changed(A100, **far))
    assert found.choices[0].down == ("mlx5_0", "mlx5_1")
    assert "nearer, but down: mlx5_0, mlx5_1." in str(found)


def test_nccl_prefers_the_wider_path_and_the_reason_is_given():
    slow = {f"text {PORT}/rate": "25 Gb/sec (1X EDR)\n"}
    slow |= {f"text {PORT.replace('_0', '_1')}/rate": "25 Gb/sec (1X EDR)\n"}
    found = choice(changed(A100, **slow))
    assert found.nic.name == "mlx5_0"
    assert "mlx5_0" not in found.nccl
    assert found.why.startswith("NCCL prefers the path of ")
    assert "to that of 3.1 GB/s to mlx5_0 (PXB)" in found.why


GIDS = {
    "0": ("fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1", "eth0"),
    "1": ("fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth0"),
    "2": ("0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1", "eth0"),
    "3": ("0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0"),
}


def with_gids(nets: list[str]) -> Machine:
    readings: dict[str, object] = {f"names {PORT}/gid_attrs/ndevs": list(GIDS)}
    for index, (gid, kind, net) in GIDS.items():
        readings[f"text {PORT}/gids/{index}"] = gid
        readings[f"text {PORT}/gid_attrs/types/{index}"] = kind
        readings[f"text {PORT}/gid_attrs/ndevs/{index}"] = net
    return changed("pix", **readings, **{"names /sys/class/net": nets})


def test_the_gid_is_that_of_roce_v2_over_ipv4_in_this_namespace():
    assert choice(with_gids(["lo", "eth0"])).nic.gid.text == "3, RoCE v2, eth0"


def test_a_gid_of_another_namespace_is_none():
    gid = choice(with_gids(["lo"])).nic.gid
    assert (gid.index, gid.here) == (-1, False)
    assert gid.text == "none here (eth0 is in another namespace)"


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("pix", "under one switch with its NIC"),
        ("pxb", "several switches, which is as good as one"),
        ("phb", "one host bridge, which works"),
        ("node", "two host bridges of one NUMA node"),
        ("sys", "on two sockets"),
        ("vm-passthrough", "the hypervisor's, not visible here"),
        ("laptop", "nothing to compare"),
    ],
)
def test_one_sentence_answers_whether_both_must_be_under_one_bridge(name, answer):
    found = nic_map(machine(name)).answer
    assert answer in found
    assert "\n" not in found


def every_machine() -> list[Machine]:
    published = [one.machine() for folder in FOLDERS for one in load_all(folder)]
    return [*map(machine, NAMES), *published]


def test_the_page_of_each_machine_fits_a_screen():
    for one in every_machine():
        found: NicMap = nic_map(one)
        text = lines(found)
        assert len(text) <= 40, one.name
        assert max(map(len, text)) <= 100, (one.name, max(text, key=len))


def test_the_command_prints_json(capsys):
    assert main(["doctor", "--nics", "--from", str(snapshot_file(A100)), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["gpus"][1]["nic"], found["gpus"][1]["near"]) == ("mlx5_1", "PXB")
    assert main(["doctor", "--nics", "--from", str(snapshot_file("laptop"))]) == 1
