# SPDX-License-Identifier: Apache-2.0
"""A diagnosis ends in time, and with it all that it began."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from doctor.snapshots import snapshot_file
from support.processes.waiting import gone, until

from dgkit.doctor import diagnose
from dgkit.doctor.collect.live import LiveReader
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.collect.snapshot import RecordedReader, load
from dgkit.doctor.finding import Verdict, worst
from dgkit.doctor.machine import Machine
from dgkit.doctor.runner import live_machine

HANG = "trap '' TERM; echo $$ >>{pids}; exec sleep 1000"


def _hanging(folder: Path) -> tuple[Path, Path]:
    """A folder of tools that all hang, and the file where they note their numbers."""
    tools, pids = folder / "tools", folder / "pids"
    tools.mkdir()
    for name in ("nvidia-smi", "lspci", "mlxconfig", "mst", "ofed_info", "ibv_devinfo", "hang"):
        (tools / name).write_text(f"#!/bin/sh\n{HANG.format(pids=pids)}\n", "ascii")
        (tools / name).chmod(0o755)
    pids.touch()
    return tools, pids


def _begun(pids: Path) -> list[int]:
    return [int(line) for line in pids.read_text("ascii").split()]


def _program(folder: Path, text: str) -> "subprocess.Popen[str]":
    tools, _ = _hanging(folder)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", text], env=environ, **pipes)  # type: ignore[call-overload]


def test_after_the_deadline_every_read_is_late_and_what_ran_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, pids = _hanging(tmp_path)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with LiveReader(limit_s=1.0) as reader:
        found = reader.together(["run hang 1", "run hang 2", "text /proc/version"])
        assert [one.fault for one in found] == ["late", "late", ""]
        assert time.monotonic() >= reader.until
        assert reader.read("run true").fault == "late"
        assert reader.text("/proc/version").ok, "what was read is not forgotten"
        for pid in _begun(pids):
            until(lambda pid=pid: gone(pid), "the command is gone")


def test_close_ends_what_runs_and_nothing_begins_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, pids = _hanging(tmp_path)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    reader = LiveReader(limit_s=60.0)
    said: list[Reading] = []
    asking = threading.Thread(target=lambda: said.append(reader.run("hang")))
    asking.start()
    until(lambda: _begun(pids), "the command runs")
    reader.close()
    assert all(gone(pid) for pid in _begun(pids))
    asking.join(20)
    assert [one.fault for one in said] == ["late"]
    assert (reader.run("true").fault, "is closed" in reader.run("true").why) == ("late", True)
    reader.close()


def test_a_reader_that_is_forgotten_leaves_nothing() -> None:
    reader = LiveReader(60.0)
    made = reader._commands
    del reader
    assert made._closed


def test_a_fork_does_not_end_what_its_parent_runs(tmp_path: Path) -> None:
    text = (
        "import os, sys, warnings\nfrom dgkit.doctor.collect.live import LiveReader\n"
        "warnings.simplefilter('ignore')\n"  # Python 3.12 warns of a fork beside threads
        "with LiveReader(60.0) as reader:\n"
        "    job = reader._start('run sh -c \"sleep 0.3; echo whole\"')\n"
        "    reader.run('true')\n"
        "    child = os.fork()\n"
        "    if not child:\n        sys.exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    print(job.result(reader.until).text.strip())\n"
    )
    with _program(tmp_path, text) as program:
        assert program.communicate(timeout=60) == ("whole\n", "")


class OtherMachine(LiveReader):
    """Commands run here; all else is a recorded server's, with a GPU and a BlueField."""

    def read(self, key: str) -> Reading:
        return super().read(key) if key.startswith("run ") else SERVER.read(key)

    def together(self, keys: Sequence[str]) -> list[Reading]:
        super().together([key for key in keys if key.startswith("run ")])
        return [self.read(key) for key in keys]


SERVER = RecordedReader(load(snapshot_file("bf3-dpu-mode")))


def test_tools_that_hang_leave_only_what_they_alone_tell_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, pids = _hanging(tmp_path)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with OtherMachine(limit_s=2.0) as reader:
        found = diagnose([Machine(reader)], limit_s=2.5)
        asked = {key.split()[1] for key, one in reader.seen().items() if one.fault == "late"}
    assert asked >= {"nvidia-smi", "mlxconfig"}
    assert _begun(pids)
    for pid in _begun(pids):
        until(lambda pid=pid: gone(pid), "the command is gone")
    for name in ("gpu-present", "bluefield-present", "kernel-version"):
        assert worst(found.of(name)) is Verdict.OK
    assert worst(found.of("topology-nvidia-smi")) is Verdict.UNKNOWN


def test_an_exit_is_not_held_up_and_leaves_no_command(tmp_path: Path) -> None:
    text = (
        "import threading\nfrom dgkit.doctor.collect.live import LiveReader\n"
        "reader = LiveReader(60.0)\n"
        "threading.Thread(target=reader.run, args=('hang',), daemon=True).start()\n"
        f"while not open({str(tmp_path / 'pids')!r}).read().strip(): pass\n"
        "print('leaves')"
    )
    with _program(tmp_path, text) as program:
        assert program.communicate(timeout=30) == ("leaves\n", "")
    (pid,) = _begun(tmp_path / "pids")
    assert gone(pid)


def test_ctrl_c_in_the_middle_leaves_no_command(tmp_path: Path) -> None:
    text = "from dgkit.doctor.collect.live import LiveReader\n"
    text += "with LiveReader(60.0) as reader: reader.run('hang')"
    with _program(tmp_path, text) as program:
        pids = tmp_path / "pids"
        until(lambda: _begun(pids), "the command runs")
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=30)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert all(gone(pid) for pid in _begun(pids))


def test_a_diagnosis_of_this_machine_ends_well_before_its_limit() -> None:
    machine = live_machine()
    found = diagnose([machine])
    assert isinstance(machine.read, LiveReader)
    assert found.took_s < machine.read.limit_s
    machine.read.close()


HEAVY = ("numpy", "zmq", "cupy", "ctypes", "asyncio", "click", "rich", "bokeh", "ipywidgets")


def test_the_doctor_is_imported_without_what_is_heavy() -> None:
    text = "import sys; import dgkit.doctor; print(*sorted(sys.modules))"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    listing = subprocess.run(
        [sys.executable, "-c", text], env=environ, capture_output=True, text=True, check=True
    )
    assert not {*HEAVY, "dgkit._native"} & set(listing.stdout.split())
