# SPDX-License-Identifier: Apache-2.0
"""Causes that users published, and the same machines without them."""

from __future__ import annotations

import pytest
from doctor.published import FOLDER, Published, load
from support.doctor.machines import judge

from dgkit.doctor import Finding, Verdict, diagnose
from dgkit.doctor.goals import Goal

GOALS = {str(goal): goal for goal in Goal}


def published(name: str, **sections: str) -> Published:
    """Return a machine, with sections that replace those of its file."""
    (path,) = FOLDER.glob(f"*/{name}.txt")
    made = load(path)
    return Published(made.name, made.head, {**made.sections, **sections})


def one(check: str, made: Published, goal: str = "") -> Finding:
    goal = goal or made.head["goal"]
    (found,) = judge(check, made.machine(), goal=GOALS[goal])
    return found


def test_geforce_without_nvlink_has_no_peer_access_unless_the_driver_says_so() -> None:
    unread = published("club3090-1133-gns", **{"run nvidia-smi topo -p2p rw": ""})
    assert one("gpu-peers", unread).verdict is Verdict.FAIL
    matrix = " GPU0 GPU1\n GPU0 X OK\n GPU1 OK X\n"
    patched = published("club3090-1133-gns", **{"run nvidia-smi topo -p2p rw": matrix})
    assert one("gpu-peers", patched).verdict is Verdict.OK


@pytest.mark.parametrize(("age", "verdict"), [("Ampere", Verdict.OK), ("Blackwell", Verdict.FAIL)])
def test_geforce_that_may_have_nvlink_is_not_judged_unread(age: str, verdict: Verdict) -> None:
    made = published("club3090-1133-gns")
    kinds = made.sections["kinds"].replace("age=Blackwell", f"age={age}")
    unread = {"run nvidia-smi topo -p2p rw": "", "run nvidia-smi topo -m": "", "kinds": kinds}
    assert one("gpu-peers", published("club3090-1133-gns", **unread)).verdict is verdict


@pytest.mark.parametrize(
    ("product", "verdict"),
    [
        ("g6e.24xlarge", Verdict.FAIL),
        ("g5.48xlarge", Verdict.FAIL),
        ("p4d.24xlarge", Verdict.OK),
        ("p5en.48xlarge", Verdict.OK),
        ("g7e.48xlarge", Verdict.OK),
    ],
)
def test_efa_reaches_gpus_on_some_types_of_instances_only(product: str, verdict: Verdict) -> None:
    name = "text /sys/class/dmi/id/product_name"
    made = published("aws-ofi-547-g6e", **{name: f"{product}\n"})
    assert one("gpudirect-platform", made).verdict is verdict


def test_a_kernel_without_p2pdma_explains_a_lack_of_dma_buf_and_nothing_else() -> None:
    made = published("talos-12021-p2pdma")
    assert one("kernel-p2pdma", made).verdict is Verdict.FAIL
    found = diagnose([made.machine()], goal=Goal.RDMA).findings
    assert {f.check: f.follows for f in found}["peermem"] == "kernel-p2pdma"
    exported = published("talos-12021-p2pdma", host="dmabuf=yes")
    assert one("kernel-p2pdma", exported).verdict is Verdict.NOT_APPLICABLE


def test_mlnx_ofed_that_is_not_of_the_running_kernel_is_named() -> None:
    log = "nv_peer_mem: Unknown symbol ib_register_peer_memory_client (err 0)\n"
    made = published("nv-peer-memory-79", **{"run dmesg": log})
    found = one("peermem", made)
    assert found.found == "MLNX_OFED is not of this kernel"
    assert "sudo modprobe nv_peer_mem" in found.remedy
    version = {"run dmesg": log, "text /sys/module/mlx5_core/version": "5.0-2.1.8\n"}
    built = one("peermem", published("nv-peer-memory-79", **version))
    assert built.found == "refused by ib_core (err -22)"
    assert any("build_module.sh" in line for line in built.remedy)


def test_a_driver_before_470_takes_mellanox_s_module() -> None:
    found = one("peermem", published("nv-peer-36-cx3"))
    assert "sudo modprobe nv_peer_mem" in found.remedy
    assert not any("nvidia-peermem" in line for line in found.remedy)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("deepep-36-nvpeer", Verdict.WARN), ("nv-peer-56-phb", Verdict.OK)],
    ids=["driver 535", "driver 440"],
)
def test_mellanox_s_module_is_outdated_where_the_driver_has_its_own(
    name: str, verdict: Verdict
) -> None:
    assert one("peermem", published(name)).verdict is verdict


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("talos-8764-gt710", "535.129.03, too new for this GPU"),
        ("vgpu-29-p100", "595.71.03, too new for this GPU"),
        ("truenas-20-p4", "580.178.04, open: not for this GPU"),
        ("startos-3693-gb10", "580.173.02, closed: not for this GPU"),
    ],
)
def test_a_driver_that_refuses_a_gpu_is_said_to_be_of_the_wrong_branch(
    name: str, found: str
) -> None:
    assert one("driver-loaded", published(name), "arm-dma").found == found


def test_without_cuda_a_missing_bluefield_is_not_the_next_thing() -> None:
    made = published("llama-7218-uvm")
    assert one("bluefield-present", made, "arm-dma").verdict is Verdict.NOT_APPLICABLE
    well = published("llama-7218-uvm", cuda="")
    assert one("bluefield-present", well, "arm-dma").verdict is Verdict.FAIL
    assert diagnose([made.machine()]).exit_code == 1


def test_stopped_drivers_of_mlnx_ofed_are_started() -> None:
    made = published("oneflow-9115-openibd")
    found = diagnose([made.machine()], goal=Goal.RDMA).findings
    assert found[0].check == "rdma-devices"
    assert found[0].remedy == ("sudo /etc/init.d/openibd start",)
    assert {f.check: f.follows for f in found}["peermem"] == "rdma-devices"
    kept = published("talos-pkgs-855-mlx5ib")
    (line,) = one("rdma-devices", kept).remedy
    assert line == "# In the machine configuration of talos: the kernel module mlx5_ib"


def test_a_container_that_lost_its_gpus_is_the_cause() -> None:
    found = diagnose([published("toolkit-1227-reload").machine()], goal=Goal.P2P).findings
    assert (found[0].check, found[0].verdict) == ("container", Verdict.FAIL)
    assert any("nvidia.com/gpu=all" in line for line in found[0].remedy)  # CDI keeps the rules
    assert {f.check: f.follows for f in found}["driver-loaded"] == "container"


def test_no_driver_is_changed_for_dgkit_alone() -> None:
    found = diagnose([published("nccl-660-metal").machine()], goal=Goal.RDMA)
    (wanted,) = found.of("cuda-python")
    assert (wanted.verdict, wanted.remedy, found.exit_code) == (Verdict.FAIL, (), 0)


def test_acs_of_grace_is_left_on() -> None:
    found = one("acs", published("nodewright-121-grace"))
    assert (found.verdict, found.remedy) == (Verdict.OK, ())


def test_what_only_root_may_read_and_may_only_slow_leaves_the_exit_code() -> None:
    found = diagnose([published("ucx-10929-h100").machine()], goal=Goal.RDMA)
    assert {f.verdict for f in found.of("acs")} == {Verdict.UNKNOWN}
    assert found.exit_code == 0
    assert "acs" in next(path.proviso for path in found.data_paths if path.works)


def test_a_guest_should_work_as_far_as_it_sees() -> None:
    found = diagnose([published("eks-ami-2672-efa").machine()], goal=Goal.RDMA)
    assert found.best is not None
    assert found.best.word == "should work"
    assert "hypervisor" in found.best.proviso


def test_a_kernel_older_than_the_option_that_keeps_acs_off_is_not_given_it() -> None:
    def printed(release: str) -> str:
        system = published("nccl-304-plx").sections["system"].replace("4.15.0-88-generic", release)
        made = published("nccl-304-plx", system=system).machine()
        (found,) = (one for one in judge("acs", made, goal=Goal.RDMA) if one.remedy)
        return " ".join(found.remedy)

    assert "disable_acs_redir" not in printed("4.15.0-88-generic")
    assert "setpci" in printed("4.15.0-88-generic")
    assert "disable_acs_redir" in printed("4.19.0-1")


_FAR_NIC = """
pci0000:20 numa=1 cpus=16-31
  01.1 root-amd
    00.0 cx6 rdma=mlx5_9 net=ens9
"""


@pytest.mark.parametrize(
    ("near", "verdicts"),
    [(" down", [Verdict.WARN, Verdict.OK]), ("", [Verdict.OK, Verdict.OK])],
)
def test_a_far_nic_does_not_stand_in_for_those_near_the_gpus_unsaid(
    near: str, verdicts: list[Verdict]
) -> None:
    tree = published("nccl-304-plx").sections["tree"].replace("net=ib0", f"net=ib0{near}")
    made = published("nccl-304-plx", tree=tree.rstrip() + _FAR_NIC).machine()
    found = judge("rdma-devices", made, goal=Goal.RDMA)
    assert [one.verdict for one in sorted(found, key=lambda one: one.subject)] == verdicts


@pytest.mark.parametrize(("count", "verdict"), [(9, Verdict.OK), (10, Verdict.WARN)])
def test_more_gpus_than_cuda_lets_one_reach_are_counted(count: int, verdict: Verdict) -> None:
    bus = "pci0000:{:02x} numa=0 cpus=0-31\n  01.1 root-amd\n    00.0 a40\n"
    tree = "".join(bus.format(16 * number) for number in range(count))
    assert one("gpu-peers", published("nccl-tests-74-a40", tree=tree)).verdict is verdict
