# SPDX-License-Identifier: Apache-2.0
"""`dgkit doctor`: the page, the exit codes, files and output streams."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from doctor.snapshots import snapshot_file
from support.doctor.machines import UNAME, machine
from support.processes import cli
from support.processes.waiting import until

import dgkit
from dgkit.cli import main
from dgkit.cli.app import Dgkit
from dgkit.doctor import Goal
from dgkit.doctor.collect import live
from dgkit.doctor.program_needs import TITLES
from dgkit.doctor.registry import FAMILIES, checks

GOALS = {str(goal) for goal in Goal}
ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "dgkit" / "doctor" / "README.md"
OLD = {**UNAME, "release": "5.15.0-91-generic"}


@pytest.fixture
def old(tmp_path):
    """A snapshot of a machine with an old kernel, and nothing else."""
    path = tmp_path / "old.snap"
    machine({"ask uname": OLD, "names /sys/bus/pci/devices": []}).read.snapshot.save(path)
    return path


def test_a_recorded_machine_is_judged_and_the_first_line_says_that_it_is_synthetic(old, capsys):
    assert main(["doctor", "--from", str(old), "--goal", "rdma"]) == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("synthetic machine: a test (old.snap)")
    assert rest[0].startswith("rdma: fail (")


def test_a_recording_says_when_and_by_which_dgkit_it_was_made(tmp_path, capsys):
    known = machine({}).read.snapshot
    known.source, known.taken, known.dgkit = "recorded", "2026-11-21", "0.1.0"
    known.save(tmp_path / "box.snap")
    main(["doctor", "kernel-version", "--from", str(tmp_path / "box.snap")])
    assert capsys.readouterr().out.startswith("recorded on 2026-11-21 by dgkit 0.1.0: box.snap\n")


def test_a_failure_that_only_blocks_another_way_is_a_warning(capsys):
    """As --help and README say of exit code 5."""
    spark = str(snapshot_file("dgx-spark"))
    code = main(["doctor", "--json", "--goal", "rdma", "--from", spark])
    told = json.loads(capsys.readouterr().out)
    assert "fail" in {one["verdict"] for one in told["findings"] + told["data_paths"]}
    assert code == 5


@pytest.mark.parametrize("goal", ["arm-dma", "rdma", "gpunetio", "laptop"])
def test_json_is_all_that_is_on_stdout(goal, old, capsys):
    code = main(["doctor", "--json", "--from", str(old), "--goal", goal])
    told = json.loads(capsys.readouterr().out)
    assert told["goal"] == goal
    assert code == {"fail": 1, "warn": 5, "unknown": 6}.get(told["verdict"], 0)
    assert {"data_paths", "findings", "machines"} <= set(told)


def test_a_file_that_opens_and_cannot_be_read_is_named(capsys):
    assert main(["doctor", "--from", "/proc/self/mem"]) == 2
    err = capsys.readouterr().err
    assert "/proc/self/mem" in err
    assert "None" not in err


def test_the_checks_asked_for_by_name_are_shown_whatever_they_found(old, capsys):
    code = main(["doctor", "kernel-version", "--from", str(old)])
    out = capsys.readouterr().out
    assert code == 5
    assert "warn  kernel-version" in out
    assert "6.2" in out
    machine({}).read.snapshot.save(old)
    assert main(["doctor", "kernel-version", "--from", str(old)]) == 0
    assert "ok    kernel-version" in capsys.readouterr().out


def test_where_the_goal_asks_for_none_of_the_checks_named_another_one_is_taken(old, capsys):
    main(["doctor", "kernel-version", "--from", str(old)])
    out = capsys.readouterr().out
    assert out.splitlines()[1].startswith("arm-dma: ")
    assert "the goal laptop needs none of these checks" in " ".join(out.split())


def test_a_check_that_a_chosen_goal_does_not_ask_for_says_which_goals_do(old, capsys):
    assert main(["doctor", "bar1-size", "--goal", "laptop", "--from", str(old)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "laptop does not need it; try: --goal arm-dma, rdma, gpunetio" in out
    assert "n.a.." not in out


def test_checks_that_look_at_the_other_side_say_so(old, capsys):
    assert main(["doctor", "bluefield-representors", "--from", str(old)]) == 0
    out = capsys.readouterr().out
    assert "on the other side" in out
    assert "()" not in out


def test_the_list_has_each_check_with_its_question(capsys):
    assert main(["doctor", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if re.match("  [a-z]", line)]
    assert names == [one.name for one in checks()]
    families = [line for line in lines if not line.startswith(" ")]
    assert families == [one for one in FAMILIES if one in {check.family for check in checks()}]
    shown = " ".join(" ".join(lines).split())
    assert all(" ".join(one.asks.split()) in shown for one in checks())
    assert all(len(line) <= 100 for line in lines)
    assert main(["doctor", "--list", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {one["family"] for one in told} <= set(FAMILIES)


def test_the_list_takes_names_and_families(capsys):
    assert main(["doctor", "--list", "bar1-size", "LIMITS", "memlock"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if re.match("  [a-z]", line)]
    assert names == ["bar1-size", "memlock", "memlock-queues", "page-size", "open-files"]
    assert main(["doctor", "--list", "bar1-sise"]) == 2
    assert "bar1-size" in capsys.readouterr().err


def test_names_and_goals_may_be_in_capitals(old, capsys):
    assert main(["doctor", "Kernel-Version", "--goal", "RDMA", "--from", str(old)]) == 5
    assert "warn  kernel-version" in capsys.readouterr().out


def test_an_unknown_check_is_a_short_line_with_what_may_have_been_meant(capsys):
    assert main(["doctor", "bar1-sise"]) == 2
    err = capsys.readouterr().err
    assert "no check 'bar1-sise'; did you mean bar1-size" in err
    assert "--list" in err
    assert len(err) < 250


def bad(tmp_path):
    (tmp_path / "no.snap").write_text("{}")
    return [
        ["nope"],
        ["--goal", "fast"],
        ["--size", "0"],
        ["--size", "much"],
        ["--from", str(tmp_path / "missing.snap")],
        ["--from", str(tmp_path / "no.snap")],
        ["--from", str(tmp_path)],
        ["--from", ""],
    ]


@pytest.mark.parametrize("number", range(8))
def test_a_wrong_word_or_file_is_a_usage_error_in_one_line(number, tmp_path, capsys):
    args = bad(tmp_path)[number]
    assert main(["doctor", *args]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert len(err.splitlines()) == 1
    assert "`dgkit doctor --help`" in err
    assert args[-1] in err


def test_an_unknown_goal_names_those_that_there_are(capsys):
    main(["doctor", "--goal", "fast"])
    err = capsys.readouterr().err
    for goal in ("auto", "arm-dma", "rdma", "gpunetio", "laptop"):
        assert goal in err


def test_two_hosts_cannot_be_judged_together(old, capsys):
    assert main(["doctor", "--from", str(old), "--from", str(old)]) == 2
    assert "both hosts" in capsys.readouterr().err


def test_help_has_the_exit_codes_and_that_nothing_is_changed(capsys):
    main(["doctor", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    for words in ("Changes nothing", "needs no root", "1 a failure", "5 works", "6 unknown"):
        assert words in out


def test_this_machine_is_judged_in_time_with_nothing_but_the_page_on_stdout(tmp_path):
    done = cli.run(tmp_path, "doctor", "--quick", timeout=30)
    assert done.returncode in (0, 1, 5, 6)
    assert not done.stderr
    assert "\x1b" not in done.stdout
    assert all(len(line) <= 100 or line.startswith("      ") for line in done.stdout.splitlines())


def test_ctrl_c_ends_at_once_and_leaves_no_child(tmp_path):
    """A tool that hangs is found by name in PATH and asked by a check that runs it."""
    program = (
        "import sys, threading, dgkit.cli\n"
        "from dgkit.doctor import registry, finding\n"
        "def hangs(case):\n"
        "    case.machine.read.run('sh', '-c', 'echo $$ >' + sys.argv[1] + '; exec sleep 60')\n"
        "    yield finding.ok('no')\n"
        "hangs.__module__ = 'dgkit.doctor.checks.kernel'\n"
        "registry.check('hangs', 'A test', asks='Does it hang?')(hangs)\n"
        "sys.exit(dgkit.cli.main(['doctor', 'hangs']))\n"
    )
    mark = tmp_path / "child"
    command = cli.python(program, str(mark))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        until(lambda: mark.exists() and mark.read_text().strip(), "the command runs")
        child = int(mark.read_text())
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.endswith("dgkit: stopped\n")
    assert time.monotonic() - began < live.FULL_S  # it did not wait for the command's limit
    until(lambda: not Path(f"/proc/{child}").exists(), "the command is gone")


def test_the_package_is_called_like_a_function_whichever_import_came_first():
    for first in ("import dgkit", "import dgkit.doctor", "from dgkit.doctor import load"):
        program = (
            f"{first}\nimport dgkit, dgkit.doctor\n"
            "print(dgkit.doctor(checks='kernel', fast=True).goal)"
        )
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() in {"arm-dma", "rdma", "laptop"}


def test_the_function_takes_plain_values_and_snapshots(old):
    found = dgkit.doctor("rdma", checks=["kernel-version"], size="4G", snapshots=old)
    assert (str(found.goal), found.case.size) == ("rdma", 4 << 30)
    assert [one.check for one in found.findings] == ["kernel-version"]
    assert found.chosen == ""


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"goal": "x"}, "arm-dma"),
        ({"checks": "x"}, "no check"),
        ({"size": 0}, "size is 0; it must be 1 or more"),
    ],
)
def test_the_function_says_what_is_wrong_with_its_arguments(wrong, words, old):
    with pytest.raises(ValueError, match=words):
        dgkit.doctor(snapshots=old, **wrong)


@pytest.mark.parametrize("none", [[], ()])
def test_no_file_at_all_is_not_this_machine(none):
    """As of a pattern that matched nothing."""
    with pytest.raises(ValueError, match="snapshots is empty"):
        dgkit.doctor(snapshots=none)


def test_a_size_is_a_whole_number(old):
    with pytest.raises(TypeError):
        dgkit.doctor(snapshots=old, size=1.5)


def test_the_example_of_the_readme_is_what_the_command_prints(monkeypatch, capsys):
    """Except for the number of findings of each verdict."""
    readme = README.read_text(encoding="utf-8")
    (example,) = re.findall(r"```text\n\$ dgkit (doctor .*?)```", readme, flags=re.DOTALL)
    command, *shown = example.splitlines()
    monkeypatch.chdir(ROOT)
    main(shlex.split(command))
    printed = capsys.readouterr().out
    counts = re.compile(r"^([a-z-]+: [a-z ]+) \(\d.*\)$", flags=re.MULTILINE)
    wanted = "\n".join(line.rstrip() for line in shown)
    assert counts.search(printed)
    assert counts.sub(r"\1", printed).startswith(counts.sub(r"\1", wanted))


def test_the_commands_of_the_readme_are_understood(capsys):
    readme = README.read_text(encoding="utf-8")
    lines = re.findall(r"^dgkit (doctor.*?)(?: +#.*)?$", readme, flags=re.MULTILINE)
    assert len(lines) > 7
    for line in lines:
        command = Dgkit().get_command(click.Context(Dgkit()), "doctor")
        address = line.replace("ADDRESS", "ipc:///run/agent.sock")
        command.make_context("doctor", shlex.split(address)[1:])
        known = {name for one in checks() for name in (one.name, one.family)} | {*TITLES}
        words = [word for word in shlex.split(line)[1:] if re.fullmatch(r"[a-z0-9-]+", word)]
        assert {word for word in words if not word.startswith("--")} - GOALS - {"rack7"} <= known
