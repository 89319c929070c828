# SPDX-License-Identifier: Apache-2.0
"""`dgkit bench`: it measures what it was asked to, says beside what floor, and cleans up."""

import json
import os

import pytest
from support.processes import cli

import dgkit
from dgkit.cli import main

SMALL = ["--sizes", "64,4K", "--depths", "1,8", "--count", "200", "--seconds", "0.02"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """This process and those it starts share a home of their own."""
    for name, value in cli.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def test_every_combination_is_measured_once(home):
    done = cli.run(home, "bench", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    found = json.loads(done.stdout)
    rows = [(row["op"], row["path"], row["size"]) for row in found["latency"]]
    wanted = [
        (op, path, size)
        for op in ("write", "read")
        for path in ("inline", "worker")
        for size in (64, 4096)
    ]
    assert rows == wanted
    assert [(row["op"], row["path"], row["size"], row["window"]) for row in found["bandwidth"]] == [
        (*case, depth) for case in wanted for depth in (1, 8)
    ]
    for row in found["latency"]:
        assert row["percentiles"]["n"] == 200
        assert len(row["floor_ns"]) == 2
        assert row["label"] == "software DPU"
    for row in found["bandwidth"]:
        assert row["elapsed_ns"] >= 20_000_000
        assert row["bytes"] == row["ops"] * row["size"] > 0
        assert not row["failed"]
    assert not cli.files_under(home)


def test_on_one_cpu_there_are_figures_and_no_hand_off_floor(home):
    one = min(os.sched_getaffinity(0))
    done = cli.run(
        home, "bench", *SMALL, "--ops", "write", "--json",
        preexec_fn=lambda: os.sched_setaffinity(0, {one}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for row in found["latency"]:
        assert row["percentiles"]["n"] == 200
        wanted = (0, "one CPU") if row["path"] == "worker" else (2, "")
        assert (len(row["floor_ns"]), row["no_floor"]) == wanted
    assert all(len(row["floor_gb_per_s"]) == 2 for row in found["bandwidth"])


def test_reports_in_the_file_can_be_read_back(home):
    from dgkit.report import BandwidthReport, LatencyReport

    path = home / "result.json"
    done = cli.run(home, "bench", *SMALL, "--ops", "read", "--json", path)
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    for row in found["latency"]:
        assert LatencyReport.from_dict(row).to_dict() == row
    for row in found["bandwidth"]:
        assert BandwidthReport.from_dict(row).to_dict() == row
    assert "Latency of one read, µs (software DPU)" in done.stdout
    assert "Rates of reads (software DPU)" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert cli.files_under(home) == [str(path)]


def test_it_runs_against_a_running_agent(home, capsys):
    with cli.started(home, "serve") as process:
        address = process.stdout.readline().strip()
        assert main(["bench", *SMALL, "--paths", "auto", "--address", address, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["info"]["dpu"]["pid"] == process.pid
        cli.send(process, "SIGTERM")
        process.wait(10)


@pytest.mark.parametrize(
    "args",
    [
        ["--sizes", "big"],
        ["--sizes", "8,,9"],
        ["--depths", "0"],
        ["--depths", "65537"],
        ["--ops", "erase"],
        ["--paths", "sideways"],
        ["--count", "0"],
        ["--sizes", "9999999999999999999"],
        ["--seconds", "-1"],
        ["--seconds", "nan"],
        ["--seconds", "inf"],
        ["--seconds", "soon"],
        ["--address", "foo"],
        ["--address", ""],
        ["--json", "/no/such/folder/file"],
        ["--json", "/"],
    ],
)
def test_wrong_usage_is_told_before_anything_is_measured(args, capsys, monkeypatch):
    monkeypatch.setattr(dgkit, "connect", lambda *a, **k: pytest.fail("it was started"))
    assert main(["bench", *args]) == 2
    assert "See `dgkit bench --help`" in capsys.readouterr().err


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_ctrl_c_while_it_measures_leaves_no_process_and_no_file(signal, home):
    result = home / "result.json"
    args = ["--sizes", "64", "--count", "1000", "--seconds", "60", "--json", result]
    with cli.started(home, "bench", *args) as process:
        (dpu,) = cli.until(lambda: cli.children_of(process.pid))
        # More than its start takes: it measures.
        cli.until(lambda: cli.cpu_seconds(dpu) > 1.5)
        cli.send(process, signal)
        out, err = cli.ended(process)
    assert process.returncode == (130 if signal == "SIGINT" else 143)
    assert not out
    assert "Traceback" not in err
    cli.until(lambda: not cli.alive(dpu), seconds=1)
    assert not cli.files_under(home)


def test_operations_of_a_kernel_each_say_how_they_were_posted(home):
    from dgkit.report import PostedLatencyReport, PostedRateReport

    path = home / "result.json"
    done = cli.run(home, "bench", "gpu-initiated", "--owners", "idle,busy", "--proxies", "here",
                   "--seconds", "0.01", "--json", path, timeout=110)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    assert [(r["op"], r["size"], r["fenced"], r["owner"]) for r in found["latency"]] == [
        (op, size, fenced, owner)
        for owner in ("idle", "busy")
        for op, size, fenced in (
            ("doorbell", 0, None), ("put", 8, True), ("put", 8, False), ("get", 8, True),
        )
    ]  # fmt: skip
    assert [(r["rings"], r["threads"], r["fenced"], r["owner"]) for r in found["rates"]] == [
        (rings, threads, fenced, owner)
        for owner in ("idle", "busy")
        for rings, threads in ((1, 32), (8, 256))
        for fenced in (True, False)
    ]
    for row in found["latency"]:
        assert PostedLatencyReport.from_dict(row).to_dict() == row
        assert len(row["floor_ns"]) == 2
    for row in found["rates"]:
        assert PostedRateReport.from_dict(row).to_dict() == row
        assert row["bytes"] == row["ops"] * 64 > 0
        assert all(row["floor_gb_per_s"])
    for row in (*found["latency"], *found["rates"]):
        assert (row["path"], row["proxy"]) == ("GPU-initiated", "this process")
        assert row["memory"] == "host to host"
        assert (row["label"], row["emulated"]) == ("software DPU, emulated GPU", True)
    assert found["not_measured"]
    assert done.stdout.startswith("The kernels ran on the emulated GPU")
    printed = " ".join(done.stdout.split())  # a title is wrapped to the width of its figures
    assert printed.count("emulated GPU)") == 2  # in each table's title
    assert done.stdout.count(" emulated ") >= 16  # in each row


def test_a_kernels_operations_are_served_by_the_dpu(home):
    done = cli.run(home, "bench", "gpu-initiated", "--owners", "idle", "--proxies", "dpu",
                   "--seconds", "0.01", "--json", timeout=110)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {row["proxy"] for row in found["latency"] + found["rates"]} == {"DPU process"}


def test_options_of_another_command_are_refused(home):
    done = cli.run(home, "bench", "--sizes", "64", "gpu-initiated")
    assert done.returncode == 2
    assert "--sizes is not an option of gpu-initiated" in done.stderr
    done = cli.run(home, "bench", "gpu-initiated", "--owners", "away")
    assert done.returncode == 2
    assert "'away' is not one of: idle, busy" in done.stderr
