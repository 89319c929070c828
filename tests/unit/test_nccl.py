# SPDX-License-Identifier: Apache-2.0
"""`dgkit nccl`: what NCCL's RMA plugin does is checked by a program in the place of NCCL."""

import ctypes
import json
import shlex
import signal
import subprocess

import pytest
from support.processes import cli
from support.processes.agents import agent
from support.processes.waiting import children, gone, until

from dgkit import nccl
from dgkit.cli import main


def test_env_names_a_plugin_of_all_interfaces(capsys):
    assert main(["nccl", "env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    exports = dict(shlex.split(line)[1].split("=", 1) for line in lines if line[0] != "#")
    assert exports == nccl.environment()
    library = ctypes.CDLL(exports["NCCL_RMA_PLUGIN"])
    for version in (17, 16, 15, 14, 13):
        plugin = ctypes.cast(
            getattr(library, f"ncclRmaPlugin_v{version}"), ctypes.POINTER(ctypes.c_char_p)
        )
        assert plugin[0] == b"dgkit"
    main(["nccl", "env", "--json"])
    assert json.loads(capsys.readouterr().out)["environment"] == exports


def test_env_turns_the_copy_service_on_unless_an_agent_copies(capsys):
    assert main(["nccl", "env", "--copy-service"]) == 0
    assert "export DGKIT_NCCL_COPY_SERVICE=1\n" in capsys.readouterr().out
    assert main(["nccl", "env", "--copy-service", "--dpu", "ipc:///tmp/agent"]) == 2
    assert "excludes --dpu" in capsys.readouterr().err
    with pytest.raises(ValueError, match="own process"):
        nccl.environment(dpu="ipc:///tmp/agent", copy_service=True)


@pytest.mark.parametrize("ranks_are", ["threads", "processes"])
def test_ranks_find_each_byte_and_counter(ranks_are, capsys):
    options = ["--processes"] if ranks_are == "processes" else []
    assert main(["nccl", "selftest", "--ranks", "3", "--rounds", "30", "--json", *options]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["ranks_are"] == ranks_are
    assert done["puts"] + done["gets"] > 30 * 3 * 6
    assert done["signals"] > 30 * 3 * 3
    assert done["refused_calls"] == 3 * 24


def test_a_killed_rank_is_noticed_within_2_s(capsys):
    given = ["--ranks", "3", "--rounds", "5", "--processes", "--kill"]
    assert main(["nccl", "selftest", *given]) == 0
    assert "noticed the killed one within" in capsys.readouterr().out
    assert 0 < nccl.selftest(2, rounds=2, processes=True, kill=True)["loss_noticed_ms"] <= 2000


def test_a_killed_selftest_leaves_no_process():
    command = cli.command("nccl", "selftest", "--processes", "--rounds", 1_000_000)
    with subprocess.Popen(command) as process:
        [driver] = until(lambda: children(process.pid), "the driver runs")
        until(lambda: len(children(driver)) == 4, "four ranks run")
        started = [driver, *children(driver)]
        process.kill()
    until(lambda: all(map(gone, started)), "they have ended")


def test_a_thread_cannot_be_killed(capsys):
    assert main(["nccl", "selftest", "--kill"]) == 2
    assert "--processes" in capsys.readouterr().err


def test_ranks_that_cannot_listen_say_why(monkeypatch, tmp_path, capsys):
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o777)
    (folder / "dgkit").mkdir()
    (folder / "dgkit").chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    assert main(["nccl", "selftest", "--rounds", "1"]) == 1
    assert "mode 0700" in capsys.readouterr().err


def test_the_driver_refuses_a_library_that_is_no_plugin():
    program = nccl.plugin_path().with_name("nccl-selftest")
    done = subprocess.run(
        [program, "--plugin", "libc.so.6", "--ranks", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "has no ncclRmaPlugin_v16" in done.stderr


def test_the_folder_of_statistics_has_each_request_of_each_rank(monkeypatch, tmp_path):
    monkeypatch.setenv("DGKIT_NCCL_STATISTICS", str(tmp_path))
    done = nccl.selftest(3, rounds=20, processes=True)
    ranks = nccl.statistics(tmp_path)
    assert [(rank.rank, rank.ranks, rank.closed) for rank in ranks] == [
        (0, 3, True), (1, 3, True), (2, 3, True),
    ]  # fmt: skip
    peers = [peer for rank in ranks for peer in rank.peers]
    assert sum(peer.signals.count for peer in peers) == done["signals"]
    assert sum(peer.puts.count + peer.signals.count for peer in peers) == done["puts"]
    assert sum(peer.puts.bytes + peer.signals.bytes for peer in peers) == done["bytes"]
    assert sum(peer.gets.count for peer in peers) == done["gets"]
    assert not any(peer.failed for peer in peers)
    assert all(0 < p.signals.p50_ns <= p.signals.p99_ns for p in peers if p.signals.count)
    floors = [p.puts.floor_ns for p in peers if p.puts.count]
    assert floors
    assert all(0 < floor < 10**8 for floor in floors)  # host memory: measured here
    assert nccl.Transfers(count=1, bytes=8, gpu=1).floor_ns is None
    assert ranks._repr_html_().count("<tr") == 4
    assert "us, floor " in ranks._repr_html_()
    assert nccl.environment(tmp_path)["DGKIT_NCCL_STATISTICS"] == str(tmp_path)


def test_a_killed_rank_leaves_its_last_figures(monkeypatch, tmp_path):
    monkeypatch.setenv("DGKIT_NCCL_STATISTICS", str(tmp_path))
    nccl.selftest(2, rounds=5, processes=True, kill=True)
    other, killed = nccl.statistics(tmp_path)
    assert other.closed
    assert not killed.closed


def test_a_folder_that_cannot_be_written_is_named(monkeypatch, capsys):
    monkeypatch.setenv("DGKIT_NCCL_STATISTICS", "/nonexistent")
    assert main(["nccl", "selftest", "--rounds", "1"]) == 1
    assert "/nonexistent" in capsys.readouterr().err


@pytest.fixture(scope="module")
def dpu():
    with agent() as running:
        yield running


@pytest.mark.parametrize("ranks_are", ["threads", "processes"])
def test_an_agent_moves_the_bytes(ranks_are, dpu, capsys):
    options = ["--processes"] if ranks_are == "processes" else []
    given = ["--ranks", "3", "--rounds", "20", "--dpu", dpu.address, "--json", *options]
    assert main(["nccl", "selftest", *given]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["puts"] + done["gets"] > 20 * 3 * 6
    main(["nccl", "env", "--dpu", dpu.address, "--json"])
    environment = json.loads(capsys.readouterr().out)["environment"]
    assert environment["DGKIT_NCCL_DPU"] == dpu.address


def test_a_rank_that_is_killed_leaves_the_agent_to_others(dpu):
    assert nccl.selftest(3, rounds=5, processes=True, kill=True, dpu=dpu.address)["puts"]
    assert nccl.selftest(2, rounds=5, processes=True, dpu=dpu.address)["puts"]


@pytest.fixture(scope="module")
def doca_dpu():
    with agent(provider="softdoca") as running:
        yield running


@pytest.mark.parametrize("processes", [False, True])
def test_an_agent_moves_the_bytes_by_doca(processes, doca_dpu):
    given = {"rounds": 10, "dpu": doca_dpu.address, "processes": processes}
    assert nccl.selftest(3, **given, kill=processes)["puts"]
    assert nccl.selftest(2, **given)["puts"]


def test_a_rank_exports_its_memory_by_doca_to_such_an_agent(doca_dpu, monkeypatch, capsys):
    monkeypatch.setenv("SOFTDOCA_LIB", "/nonexistent")
    assert main(["nccl", "selftest", "--rounds", "1", "--dpu", doca_dpu.address]) == 1
    assert "/nonexistent" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--processes"], []])
def test_a_killed_agent_is_an_error_within_2_s(options, monkeypatch):
    program = nccl.plugin_path().with_name("nccl-selftest")
    with agent() as running:
        monkeypatch.setenv("DGKIT_NCCL_DPU", running.address)
        command = [program, "--plugin", nccl.plugin_path(), "--ranks", "3", "--rounds", "5"]
        command += ["--kill-agent", str(running.pid), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 0 < json.loads(done.stdout)["loss_noticed_ms"] <= 2000


def test_an_agent_that_cannot_move_the_bytes_is_named(capsys):
    address = "ipc:///nonexistent/agent.sock"
    assert main(["nccl", "selftest", "--rounds", "1", "--dpu", address]) == 1
    error = capsys.readouterr().err
    assert address in error
    assert "DGKIT_NCCL_DPU" in error


def test_a_run_is_followed_to_its_end(dpu):
    command = nccl.selftest_command(3, rounds=60, processes=True)
    with nccl.Run(command, dpu=dpu.address) as run:
        seen = [len(each.ranks) for each in run.follow()]
        assert seen[-1] == 3
        assert run.wait(10) == 0
        assert json.loads(run.output)["ranks"] == 3
        rank = run.ranks[0]
        assert rank.passes > 60
        requests = sum(p.puts.count + p.gets.count + p.signals.count for p in rank.peers)
        assert 0 < rank.submissions.count < rank.submissions.items <= requests
        assert 0 < rank.submissions.call_ns < rank.submissions.busy_ns < rank.open_ns
        assert "ended with status 0" in run._repr_html_()
    assert not run.ranks


def test_a_run_that_is_closed_ends_its_program():
    with nccl.Run(nccl.selftest_command(2, rounds=1_000_000)) as run:
        assert run.returncode is None
        assert "running" in run._repr_html_()
    assert run.returncode == -signal.SIGKILL
    with pytest.raises(FileNotFoundError):
        nccl.Run(["/nonexistent/alltoall_gin"])
