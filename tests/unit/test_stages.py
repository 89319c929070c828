# SPDX-License-Identifier: Apache-2.0
"""The runner of the stages, and the choice of tests for a change (tests/support)."""

import json
import subprocess
import sys
import threading
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
from support import stages
from support.changed import touched
from support.processes.waiting import until
from support.stages import SECOND_TRY, Scheduler, Stage, failures, markdown, slowest, table

# Each program gets the folder of the test and whether this is the second try.
MEET = """
import pathlib, sys, time
mine, other = pathlib.Path(sys.argv[1], NAME), pathlib.Path(sys.argv[1], OTHER)
mine.touch()
end = time.monotonic() + 30
while not other.exists():
    assert time.monotonic() < end, "the other stage never ran beside this one"
    time.sleep(0.01)
"""
COUNT = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1], "running")
folder.mkdir(exist_ok=True)
mine = folder / NAME
mine.touch()
time.sleep(0.1)
print("beside", len(list(folder.iterdir())) - 1)
mine.unlink()
"""
MEET = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / f"{NAME}.met").touch()
end = time.monotonic() + 60
while len(list(folder.glob("*.met"))) < 2 and time.monotonic() < end:
    time.sleep(0.01)
print(len(list(folder.glob("*.met"))))
"""
RUNTIME = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["XDG_RUNTIME_DIR"])
assert folder.stat().st_mode & 0o777 == 0o700 and len(str(folder)) < 20
assert not list(folder.iterdir())
(folder / "left").touch()
pathlib.Path(sys.argv[1], NAME + ".folder").write_text(str(folder))
"""
FIRST = """
import pathlib, sys, time
time.sleep(0.3)
pathlib.Path(sys.argv[1], "x").touch()
"""


def stage(name: str, **options) -> Stage:
    def run() -> None:
        """a stage of a test"""

    run.__name__ = name
    return Stage(run, **options)


def scheduler(folder: Path, programs: dict[str, str], cores: int = 2) -> Scheduler:
    def command(name: str, again: bool) -> list[str]:
        return [sys.executable, "-c", programs[name], str(folder), str(int(again))]

    return Scheduler(command, folder, cores)


def named(text: str, name: str, other: str = "") -> str:
    return text.replace("NAME", repr(name)).replace("OTHER", repr(other))


def test_two_stages_run_side_by_side(tmp_path):
    programs = {"a": named(MEET, "a", "b"), "b": named(MEET, "b", "a")}
    results = scheduler(tmp_path, programs).run([stage("a"), stage("b")])
    assert sorted((each.name, each.verdict) for each in results) == [("a", "ok"), ("b", "ok")]


def test_nothing_runs_beside_a_stage_that_is_alone(tmp_path):
    names = ["a", "b", "c", "d"]
    programs = {name: named(COUNT, name) for name in names}
    stages = [stage(name, alone=name == "b") for name in names]
    results = scheduler(tmp_path, programs, cores=4).run(stages)
    assert all(each.ok for each in results)
    assert (tmp_path / "b.log").read_text() == "beside 0\n"
    assert max((tmp_path / f"{name}.log").read_text() for name in "acd") > "beside 0\n"


def test_a_stage_waits_for_those_that_come_before_it(tmp_path):
    programs = {
        "first": FIRST,
        "second": "import sys, pathlib\nassert pathlib.Path(sys.argv[1], 'x').exists()",
    }
    stages = [stage("second", after=("first", "not run")), stage("first")]
    results = scheduler(tmp_path, programs).run(stages)
    assert [(each.name, each.verdict) for each in results] == [("first", "ok"), ("second", "ok")]


@pytest.mark.parametrize("cores", [1, 3])
def test_what_fails_is_run_once_more_alone_and_said_so(tmp_path, capsys, cores):
    programs = {
        "busy": "import time; time.sleep(.5)",
        "shaky": "import sys; print('try', sys.argv[2]); sys.exit(sys.argv[2] == '0')",
        "slow": "import sys; sys.exit(sys.argv[2] == '0')",
        "broken": "import sys; print('no'); sys.exit(1)",
    }
    stages = [stage(name, alone=name == "slow") for name in programs]
    results = scheduler(tmp_path, programs, cores=cores).run(stages)
    verdicts = {each.name: each.verdict for each in results}
    assert verdicts == {"busy": "ok", "shaky": SECOND_TRY, "slow": SECOND_TRY, "broken": "FAILED"}
    assert [each.name for each in results if not each.ok] == ["broken"]
    said = capsys.readouterr().out
    assert "try 1" in said
    assert "(once more, alone)" in said


def test_a_stage_waits_for_the_second_try_of_the_one_before_it(tmp_path):
    programs = {
        "busy": "import time; time.sleep(.5)",
        "shaky": "import sys; sys.exit(sys.argv[2] == '0')",
        "after": "",
    }
    stages = [stage("busy"), stage("shaky"), stage("after", after=("shaky",))]
    results = scheduler(tmp_path, programs).run(stages)
    assert [each.name for each in results] == ["busy", "shaky", "after"]
    assert all(each.ok for each in results)


def test_each_stage_has_a_short_runtime_folder_that_goes_with_it(tmp_path):
    programs = {name: named(RUNTIME, name) for name in "ab"}
    results = scheduler(tmp_path, programs).run([stage("a"), stage("b")])
    assert all(each.ok for each in results)
    folders = {Path((tmp_path / f"{name}.folder").read_text()) for name in "ab"}
    assert len(folders) == 2
    assert not any(folder.exists() for folder in folders)


def test_an_interrupt_ends_the_stages_and_what_they_started(tmp_path, monkeypatch):
    program = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "60"])
pathlib.Path(sys.argv[1], "folder").write_text(os.environ["XDG_RUNTIME_DIR"])
pathlib.Path(sys.argv[1], "pid").write_text(str(child.pid))
time.sleep(60)
"""
    made = scheduler(tmp_path, {"long": program})

    def interrupt() -> None:
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "it runs")
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "_collect", interrupt)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        made.run([stage("long")])
    assert time.monotonic() - start < 30
    assert not Path((tmp_path / "folder").read_text()).exists()
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not cmdline(pid), "it ended")
    assert threading.active_count() >= 1


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


BURN = """
import time
while time.process_time() < 1.2:
    pass
"""


def test_the_table_has_wall_and_cpu_time_of_each_stage_and_of_all(tmp_path):
    results = scheduler(tmp_path, {"a": BURN}).run([stage("a")])
    lines = table(results, 12.0, 3.0).splitlines()
    assert lines[0].split() == ["stage", "wall", "CPU"]
    assert lines[1].split()[0] == "a"
    assert int(lines[1].split()[3]) >= 1
    assert lines[-1].split()[:3] == ["all", "12", "s"]
    assert lines[-1].endswith("idle for 3 s")
    assert "| `a` | " in markdown(results)


def test_stages_that_mostly_wait_share_a_core(tmp_path):
    """Also where their shares add up to a little more than one: each sees the other one run."""
    programs = {"a": named(COUNT, "a"), "b": named(MEET, "b"), "c": named(MEET, "c")}
    stages = [stage("a"), stage("b", share=0.5), stage("c", share=0.6)]
    scheduler(tmp_path, programs, cores=1).run(stages)
    said = [(tmp_path / f"{name}.log").read_text() for name in programs]
    assert said == ["beside 0\n", "2\n", "2\n"]


@pytest.mark.parametrize(("idle", "met"), [(time.monotonic, ["2\n", "2\n"]), (int, ["1\n", "2\n"])])
def test_one_more_stage_starts_while_the_cores_are_idle(idle, met, tmp_path, monkeypatch):
    monkeypatch.setattr(stages, "SETTLE_S", 0.1)
    monkeypatch.setattr(stages, "idle_s", idle)  # one core's, or none
    programs = {name: named(MEET, name).replace("60", "1") for name in "ab"}
    scheduler(tmp_path, programs, cores=1).run([stage(name) for name in programs])
    assert [(tmp_path / f"{name}.log").read_text() for name in programs] == met


CTEST = """
      Start  1: test_ring
 1/3 Test  #1: test_ring ........................   Passed    0.50 sec
 2/3 Test #21: test_share_many ..................***Failed   10.69 sec
The following tests FAILED:
\t 21 - test_share_many (Failed)
"""
PYTEST = """
============================= slowest 10 durations =============================
12.50s call     tests/unit/test_a.py::test_b[x y]
0.61s setup    tests/unit/test_a.py::test_c
=========================== short test summary info ============================
FAILED tests/unit/test_a.py::test_b[x - y] - AssertionError: assert 1 == 2
ERROR tests/unit/test_a.py::test_c
"""


def test_the_slowest_tests_of_a_log_are_listed():
    assert [line.split() for line in slowest(CTEST)] == [
        ["10.7", "s", "test_share_many"],
        ["0.5", "s", "test_ring"],
    ]
    assert slowest(PYTEST)[0].split(maxsplit=2)[2] == "tests/unit/test_a.py::test_b[x y]"
    assert slowest("one\ntwo") == []


@pytest.mark.parametrize(
    ("log", "found"),
    [
        (CTEST, [("test_share_many", "Failed")]),
        (
            PYTEST,
            [
                ("tests/unit/test_a.py::test_b[x - y]", "AssertionError: assert 1 == 2"),
                ("tests/unit/test_a.py::test_c", ""),
            ],
        ),
        ("first\nthe reason\n", [("some stage", "the reason")]),
    ],
)
def test_the_failures_of_a_log_are_named_with_their_reasons(log, found):
    assert [(each.test, each.reason) for each in failures("some stage", log)] == found


def test_only_what_passed_when_it_was_run_again_is_a_second_try(tmp_path):
    programs = {
        "shaky": "import sys; print('late'); sys.exit(sys.argv[2] == '0')",
        "broken": "import sys; sys.exit(1)",
    }
    made = scheduler(tmp_path, programs)
    made.run([stage(name) for name in programs])
    assert [(each.test, each.reason) for each in made.second_tries] == [("shaky", "late")]


def test_second_tries_are_kept_in_a_file_and_printed(runner, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "SECOND_TRIES", tmp_path / "tries")
    for _ in range(2):
        runner.report_second_tries(failures("some stage", CTEST))
    assert capsys.readouterr().out.count("second try: test_share_many: Failed\n") == 2
    kept = [json.loads(line) for line in (tmp_path / "tries").read_text().splitlines()]
    assert [(each["stage"], each["test"]) for each in kept] == [
        ("some stage", "test_share_many")
    ] * 2


@pytest.fixture
def repository(tmp_path):
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    files = {
        "dgkit/dma/queue.py": "",
        "dgkit/cli/serve_command.py": "",
        "native/src/base/ring.c": "",
        "tests/support/dma.py": "from dgkit.dma.queue import Queue\n",
        "tests/unit/test_dma_queue.py": "from support import dma\n",
        "tests/unit/test_units.py": "import json\n",
        "dgkit/dma/__init__.py": "from .queue import Queue\n",
        "tests/unit/test_cli_serve.py": "import json\n",
        "tests/programs/test_cli.py": 'from dgkit.cli import main\nmain(["serve"])\n',
        "tests/programs/test_cli_demo.py": 'from dgkit.cli import main\nmain(["demo"])\n',
        "tests/cuda/test_dma_cuda.py": "from dgkit.dma import Device\n",
        "tests/safety/test_bounds.py": "from dgkit.dma import queue\n",
        "tests/browser/test_life.py": "import json\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "all")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "stages", "files"),
    [
        (
            "dgkit/dma/queue.py",
            "unit cuda safety lint",
            "unit/test_dma_queue cuda/test_dma_cuda safety/test_bounds",
        ),
        (
            "dgkit/cli/serve_command.py",
            "unit programs lint",
            "unit/test_cli_serve programs/test_cli",
        ),
        ("native/src/base/ring.c", "unit lint plain", "unit/test_dma_queue"),
        ("tests/support/dma.py", "unit lint", "unit/test_dma_queue"),
        ("tests/unit/test_units.py", "unit lint", "unit/test_units"),
        ("tests/browser/test_life.py", "browser pages lint", "browser/test_life"),
        ("LICENSE", "lint", ""),
    ],
)
def test_a_change_runs_the_tests_that_it_touches(repository, changed, stages, files):
    (repository / changed).write_text("# changed\n")
    found = touched(repository, "HEAD")
    assert found.changes == (changed,)
    assert " ".join(found.stages) == stages
    assert found.files == tuple(f"tests/{file}.py" for file in files.split())


@pytest.fixture
def runner(monkeypatch):
    """tests/run as a module."""
    root = Path(__file__).resolve().parents[2]
    monkeypatch.syspath_prepend(str(root / "tests"))
    loader = SourceFileLoader("tests_run", str(root / "tests/run"))
    module = ModuleType(loader.name)
    module.__file__ = loader.path
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("in_ci", [False, True])
def test_ci_runs_the_slow_stages_and_soak_runs_by_name_alone(runner, monkeypatch, in_ci):
    monkeypatch.setattr(runner, "IN_CI", in_ci)
    names = runner.ordered([])
    assert ("fuzz" in names, "soak" in names, "unit" in names) == (in_ci, False, True)
    assert runner.ordered(["soak", "fuzz"]) == ["fuzz", "soak"]


def test_the_hours_reach_the_program_of_the_stage(runner, monkeypatch):
    commands = []
    monkeypatch.setattr(runner, "do", lambda *command: commands.append([*map(str, command)]))
    monkeypatch.setattr(runner, "HOURS", ["--hours", "2.0"])
    for name in ("fuzz", "soak"):
        runner.STAGES[name].run()
    assert [command[-2:] for command in commands] == [["--hours", "2.0"]] * 2
    assert all(Path(command[1]).exists() for command in commands)
