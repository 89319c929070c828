# SPDX-License-Identifier: Apache-2.0
"""`dgkit info` on DOCA: versions, functions, whose word it is, and what keeps a library silent."""

import json
import subprocess
import sys

import pytest
from support.doca.libraries import HOME
from support.processes import cli

from dgkit.cli import info_command

DEVICE = {"pci": "0000:03:00.0", "ibdev": "mlx5_0", "iface": "", "dma": True, "export_pci": True}
DEVICE |= {"from_export_pci": False, "max_copy": 2097152, "max_list": 64}


@pytest.mark.parametrize(("side", "iface"), [("host", "ens3f0np0"), ("dpu", "p0")])
def test_the_functions_of_the_side_are_named_with_what_they_can(side, iface, tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTDOCA_SIDE", side)
    says = "DMA, export, import; 2 MiB per task, lists of 64"
    text = cli.run(tmp_path, "info").stdout
    assert all(len(line) <= 100 for line in text.splitlines())
    function = f"softdoca 3.3.0 (simulated)  0000:03:00.0 mlx5_0 {iface}: {says}"
    assert function in " ".join(text.split()).replace("(simulated) ", "(simulated)  ")
    facts = json.loads(cli.run(tmp_path, "info", "--json").stdout)["doca"]
    assert facts["softdoca"]["version"] == "3.3.0"
    assert [one["iface"] for one in facts["softdoca"]["devices"]] == [iface]


def test_softdoca_in_doca_s_place_is_not_told_as_doca(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(HOME / "lib"))
    facts = info_command.collect_doca()
    assert facts["doca"] == {"why": "the loader finds the libdoca_common of softdoca instead"}
    assert all(line.startswith("softdoca ") for line in info_command.doca_lines(facts))


def test_what_softdoca_s_environment_has_wrong_is_the_reason(monkeypatch):
    monkeypatch.setenv("SOFTDOCA_SIDE", "nowhere")
    facts = info_command.collect_doca()
    assert "'nowhere' is not host, dpu or both" in facts["softdoca"]["why"]
    assert not info_command.doca_lines(facts)


def test_a_function_without_dma_has_no_limits_of_tasks():
    said = {"version": "2.9", "devices": [DEVICE, DEVICE | {"dma": False}], "why": ""}
    able, unable = info_command.doca_lines({"doca": said})
    assert able == "doca 2.9  0000:03:00.0 mlx5_0: DMA, export; 2 MiB per task, lists of 64"
    assert unable == "doca 2.9  0000:03:00.0 mlx5_0: export"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import os; os._exit(3)", "exited with 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "exited with -11"),
        ("import signal; signal.pause()", "no answer within 0.2 s"),
    ],
)
def test_a_library_that_crashes_or_hangs_is_a_fact(program, why, monkeypatch):
    monkeypatch.setattr(info_command, "_DOCA_PROGRAM", program)
    monkeypatch.setattr(info_command, "_DOCA_TIMEOUT_S", 0.2 if "pause" in program else 30.0)
    for said in info_command.collect_doca().values():
        assert why in said["why"]


def test_this_process_loads_no_library_for_it():
    program = (
        "from dgkit.cli import info_command; info_command.collect_doca(); "
        "print('libdoca' in open('/proc/self/maps').read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert done.stdout == "False\n"
