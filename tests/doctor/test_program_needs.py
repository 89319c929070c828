# SPDX-License-Identifier: Apache-2.0
"""`dgkit doctor --program NAME`: the machine, or the program, and the variables to set."""

import json

import msgspec
import pytest
from doctor.published import FOLDERS, load_all
from doctor.snapshots import NAMES, machine, snapshot_file

from dgkit.cli import main
from dgkit.doctor import Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.collect.snapshot import RecordedReader
from dgkit.doctor.facts import nic_choice
from dgkit.doctor.format.pages import needs_page
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine
from dgkit.doctor.program_needs import TITLES, Answer, answer, goal_of
from dgkit.doctor.runner import diagnose
from dgkit.doctor.symptoms import explain, matches


def asked(program: str, found: Machine) -> Answer:
    goal = goal_of(program, found)
    return answer(program, found, diagnose([found], goal=goal))


def commands(program: str, name: str) -> list[str]:
    return [setting.command for setting in asked(program, machine(name)).settings]


def published(name: str) -> Machine:
    found = (one for folder in FOLDERS for one in load_all(folder) if one.name == name)
    return next(found).machine()


def test_nccl_gets_the_nics_that_are_near_gpus_where_others_are_up():
    near = ",".join(f"mlx5_{at}" for at in (0, 1, 2, 3, 6, 7, 8, 9))
    assert f"export NCCL_IB_HCA=={near}" in commands("nccl", "dgx-a100")
    assert commands("nccl", "pix") == []


@pytest.mark.parametrize(("name", "level"), [("node", "PHB"), ("sys", "SYS"), ("pxb", "")])
def test_nccl_gets_the_level_of_gpudirect_that_the_distance_needs(name, level):
    found = [one for one in commands("nccl", name) if "GDR_LEVEL" in one]
    assert found == ([f"export NCCL_NET_GDR_LEVEL={level}"] if level else [])


def test_a_process_with_ucx_gets_the_nic_of_its_gpu():
    found = commands("ucx", "dgx-a100")
    assert found[:2] == ["export UCX_NET_DEVICES=mlx5_0:1", "export UCX_NET_DEVICES=mlx5_1:1"]


def test_ibgda_rings_by_a_cpu_where_the_driver_lacks_its_option():
    assert "export NVSHMEM_IBGDA_NIC_HANDLER=cpu  # with IBGDA" in commands("nvshmem", "pix")


def test_deepep_is_told_which_nic_each_gpu_has_where_gpus_share_one():
    shared = published("nccl-660-metal")
    found = [one.command for one in asked("deepep", shared).settings if "HCA_LIST" in one.command]
    assert found[0].startswith("export NVSHMEM_HCA_LIST=mlx5_0:1  # process of GPU 0")


def test_llama_cpp_is_told_to_copy_between_gpus_only_where_nothing_speaks_against_it():
    (setting,) = commands("llama.cpp", "dgx-a100")
    assert setting == "export GGML_CUDA_P2P=1  # after: dgkit doctor --goal p2p --try"
    translating = asked("llama.cpp", published("nccl-667-vtd"))
    assert translating.fine
    assert [one.command for one in translating.settings] == ["unset GGML_CUDA_P2P"]
    assert goal_of("llama.cpp", machine("pix")) is Goal.GPU
    assert commands("llama.cpp", "pix") == []


def test_no_setting_is_given_where_the_machine_is_not_fine():
    found = asked("nvshmem", machine("closed-driver"))
    assert (found.fine, found.settings) == (False, ())
    assert found.cause.check in ("dmabuf-gpu", "peermem")
    assert "The machine is not fine for NVSHMEM (rdma)" in found.sentence


def test_each_page_fits_a_screen():
    machines = [machine(name) for name in NAMES]
    machines += [one.machine() for one in load_all("nccl")]
    for one in machines:
        for program in ("nccl", "deepep"):
            page = needs_page(asked(program, one))
            assert len(page) <= 40, (one.name, program)


def test_the_command_prints_json_and_says_by_its_exit_code_whether_the_machine_is_fine(capsys):
    given = ["doctor", "--program", "NCCL", "--from", str(snapshot_file("dgx-a100"))]
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["fine"], found["goal"]) == (True, "rdma")
    assert main(given) == 0
    assert "The machine is fine for NCCL (rdma)" in capsys.readouterr().out
    bad = ["doctor", "--program", "ucx", "--from", str(snapshot_file("closed-driver"))]
    assert main(bad) == 1
    assert main(["doctor", "--program", "paint"]) == 2
    assert f"choose {', '.join(TITLES)}" in capsys.readouterr().err


def test_a_text_whose_causes_are_excluded_here_is_about_the_program():
    text = "NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable"
    found = matches(text)
    diagnosis = diagnose([machine("pix")], goal=Goal.RDMA, only=["rdma-devices"])
    assert explain(found, diagnosis)[0].program_only
    far = diagnose([machine("laptop")], goal=Goal.RDMA, only=["rdma-devices"])
    assert not explain(found, far)[0].program_only


def test_nccl_on_a_dgx_spark_takes_both_functions_of_a_port():
    made = published("gb10-dell-92")
    up = ",".join(nic.name for nic in made.know(nic_choice.nics) if nic.up)
    found = [setting.command for setting in asked("nccl", made).settings]
    assert "," in up
    assert f"export NCCL_IB_HCA=={up}" in found


def test_what_was_not_verified_of_a_confidential_guest_reaches_the_answer():
    made = published("eks-ami-2672-efa")
    assert "virtual-machine" not in asked("nccl", made).sentence
    readings = {**made.read.snapshot.readings, "names /dev": Reading(names=("sev-guest",))}
    snapshot = msgspec.structs.replace(made.read.snapshot, readings=readings)
    guest = Machine(RecordedReader(snapshot))
    (found,) = diagnose([guest], goal=Goal.RDMA).of("virtual-machine")
    assert (found.verdict, found.remedy) == (Verdict.UNKNOWN, ("nvidia-smi conf-compute -f -e",))
    assert "virtual-machine" in asked("nccl", guest).sentence
