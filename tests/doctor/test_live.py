# SPDX-License-Identifier: Apache-2.0
"""The reader of this machine: whatever a file or a command does, an answer comes, in time."""

import errno
import gc
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.processes.waiting import gone, until

from dgkit.doctor.collect import commands, live
from dgkit.doctor.collect.live import LiveReader
from dgkit.doctor.collect.reader import Reading


@pytest.fixture
def reader() -> Iterator[LiveReader]:
    with LiveReader(limit_s=60.0) as made:
        yield made


def _script(folder: Path, text: str, name: str = "tool") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", "ascii")
    path.chmod(0o755)
    return str(path)


def _threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("dgkit-doctor")]


def _children() -> set[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text("ascii").split()}


def test_files_folders_and_links_are_read(reader: LiveReader, tmp_path: Path) -> None:
    (tmp_path / "b").write_text("words\n", "utf-8")
    (tmp_path / "a").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "l").symlink_to("b")
    assert reader.text(f"{tmp_path}/b").text == "words\n"
    assert reader.raw(f"{tmp_path}/a").raw == bytes(range(256)) * 16
    assert reader.names(str(tmp_path)).names == ("a", "b", "l")
    assert reader.link(f"{tmp_path}/l").text == f"{tmp_path.resolve()}/b"


@pytest.mark.parametrize("kind", ["text", "raw", "names", "link"])
def test_what_is_not_there_is_absent(reader: LiveReader, tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    assert reader.read(f"{kind} {tmp_path}/nothing").absent
    assert reader.read(f"{kind} {tmp_path}/file/below").absent


def test_a_file_of_this_process_in_proc_is_read_whole(reader: LiveReader) -> None:
    assert "VmRSS" in reader.text("/proc/self/status").text
    assert reader.text("/proc/self/maps").text.count("\n") > 20


@pytest.mark.parametrize("kind", ["text", "raw"])
def test_pipes_devices_and_folders_are_not_opened(
    reader: LiveReader, tmp_path: Path, kind: str
) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (f"{tmp_path}/fifo", "/dev/zero", str(tmp_path)):
        found = reader.read(f"{kind} {path}")
        assert found.fault == "failed"
        assert path in found.why


def test_a_huge_file_is_cut(reader: LiveReader, tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert len(reader.text(f"{tmp_path}/huge").text) == 1 << 20


def test_bytes_that_are_no_utf8_and_odd_names_do_no_harm(
    reader: LiveReader, tmp_path: Path
) -> None:
    (tmp_path / "line\nbreak").write_bytes(b"\xff\xfe ok \x80")
    (tmp_path / os.fsdecode(b"\xff")).touch()
    assert reader.text(f"{tmp_path}/line\nbreak").text == "\ufffd\ufffd ok \ufffd"
    assert reader.names(str(tmp_path)).names == ("\\udcff", "line\nbreak")
    assert reader.text("/a\0b").fault == "failed"


def test_a_link_that_leads_to_itself_is_no_answer(reader: LiveReader, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert reader.link(f"{tmp_path}/loop").fault == "failed"
    assert reader.text(f"{tmp_path}/loop").fault == "failed"


def test_a_file_that_may_not_be_read_is_denied_and_says_that_root_is_needed(
    reader: LiveReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, most: int) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(live, "_bytes", refuse)
    found = reader.text("/sys/secret")
    assert (found.fault, found.why) == ("denied", "only root may read /sys/secret")


def test_a_file_that_hangs_is_late_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang, plain = threading.Event(), live._bytes

    def dead(path: str, most: int) -> bytes:
        if path.startswith("/dead"):
            hang.wait()
        return plain(path, most)

    monkeypatch.setattr(live, "_bytes", dead)
    monkeypatch.setattr(live, "FILE_S", 0.3)
    (tmp_path / "file").write_text("here", "utf-8")
    with LiveReader(60.0) as reader:
        keys = ["text /dead/1", "text /dead/2", f"text {tmp_path}/file", "text /dead/3"]
        found = reader.together(keys)
        assert [one.fault for one in found] == ["late", "late", "", "late"]
        hang.set()
        assert reader.together(keys) == found, "what was late stays late"
        assert reader.seen() == dict(zip(keys, found, strict=True))


def test_an_unknown_kind_of_look_is_refused(reader: LiveReader) -> None:
    with pytest.raises(ValueError, match="unknown key"):
        reader.read("write /etc/passwd")


def test_a_commands_words_and_code_are_read_in_the_c_locale(
    reader: LiveReader, tmp_path: Path
) -> None:
    tool = _script(tmp_path, 'echo "$LC_ALL $1"; echo oh >&2; exit 3')
    assert reader.run(tool, "a b'c") == Reading(text="C a b'c\n", said="oh\n", code=3)


def test_a_command_that_is_not_there_is_absent(reader: LiveReader) -> None:
    assert reader.run("dgkit-no-such-tool", "-q").absent
    assert reader.run("/no/such/tool").absent


def test_a_command_that_cannot_be_run_is_no_error(reader: LiveReader, tmp_path: Path) -> None:
    plain, odd = tmp_path / "plain", tmp_path / "odd"
    plain.write_text("#!/bin/sh\n", "ascii")
    odd.write_bytes(b"\x7fELFnonsense")
    odd.chmod(0o755)
    assert reader.run(str(plain)).fault == "denied"
    found = reader.run(str(odd))
    assert (found.fault, "format error" in found.why) == ("failed", True)


def test_tools_are_found_without_a_path_but_never_in_the_current_folder(
    reader: LiveReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _script(tmp_path, "echo planted", "dgkit-planted")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ":.:")
    assert reader.run("dgkit-planted").absent
    monkeypatch.delenv("PATH")
    assert reader.run("dgkit-planted", "again").absent
    assert reader.run("sh", "-c", "exit 4").code == 4


def test_a_command_gets_neither_input_nor_terminal(reader: LiveReader, tmp_path: Path) -> None:
    tool = _script(tmp_path, "cat; (: </dev/tty) 2>/dev/null || echo none")
    assert reader.run(tool).text == "none\n"


def test_a_command_that_hangs_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "COMMAND_S", 0.5)
    pids = tmp_path / "pids"
    tool = _script(tmp_path, f"trap '' TERM; sleep 1000 & echo $$ $! >{pids}; wait; sleep 1000")
    with LiveReader(60.0) as reader:
        found = reader.run(tool)
    assert (found.fault, "no answer within 0.5 s" in found.why) == ("late", True)
    for pid in map(int, pids.read_text("ascii").split()):
        until(partial(gone, pid), f"{pid} is gone")


def test_the_output_of_a_command_is_not_waited_for_once_it_has_ended(
    reader: LiveReader, tmp_path: Path
) -> None:
    """Its child has left the group, and holds the pipe."""
    pid = tmp_path / "pid"
    hold = "import os, sys, time; os.setsid(); open(sys.argv[1], 'w').write(str(os.getpid()))"
    hold = f"{hold}; os.rename(sys.argv[1], sys.argv[1] + '.made'); time.sleep(1000)"
    made = f"{pid}.made"
    script = f"{shlex.join([sys.executable, '-c', hold, str(pid)])} &\n"
    tool = _script(tmp_path, f"{script}until [ -e {made} ]; do :; done; echo done")
    try:
        assert reader.run(tool) == Reading(text="done\n")
    finally:
        os.kill(int(Path(made).read_text("ascii")), signal.SIGKILL)


def test_a_command_that_prints_much_is_cut_and_one_without_end_is_ended(reader: LiveReader) -> None:
    tool = "import os; [os.write(1, b'x' * 65536) for _ in range(96)]"
    much = reader.run(sys.executable, "-c", tool)
    assert (len(much.text), much.code, much.fault) == (4 << 20, 0, "")
    endless = reader.run("yes")
    assert endless.fault == "failed"
    assert "64 MiB" in endless.why


def test_a_command_that_closes_its_output_first_is_waited_for(
    reader: LiveReader, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    tool = _script(tmp_path, f"exec >&- 2>&-; until [ -e {go} ]; do :; done; exit 5")
    thread = threading.Thread(target=go.touch)
    thread.start()
    assert reader.run(tool).code == 5
    thread.join()


def test_where_no_process_can_be_made_commands_fail_in_words(
    reader: LiveReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object, **options: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(commands.subprocess, "Popen", refused)
    assert reader.run("true") == Reading(
        fault="failed", why="true: Resource temporarily unavailable"
    )


def test_a_command_works_where_ended_children_are_ignored() -> None:
    code = (
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from dgkit.doctor.collect.live import LiveReader\n"
        "with LiveReader() as reader: print(reader.run('echo', 'fine').text)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "fine", done.stderr


def test_the_system_is_asked(reader: LiveReader) -> None:
    found = {what: reader.ask(what) for what in live.QUERIES}
    assert all(one.ok for one in found.values())
    assert found["uname"].data["system"] == "Linux"
    assert found["page-size"].data == os.sysconf("SC_PAGE_SIZE")


def test_each_thing_is_looked_at_once(reader: LiveReader, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1", "ascii")
    first = reader.text(f"{tmp_path}/file")
    (tmp_path / "file").write_text("2", "ascii")
    assert reader.text(f"{tmp_path}/file") == first


def test_after_all_nothing_is_left(tmp_path: Path) -> None:
    before, children = set(os.listdir("/proc/self/fd")), _children()  # noqa: PTH208
    with LiveReader(60.0) as reader:
        keys = [f"run sh -c 'echo {n}; exit {n}'" for n in range(40)]
        keys += [f"text /proc/{name}" for name in ("version", "cpuinfo", "nothing")]
        assert [one.code for one in reader.together(keys)[:40]] == list(range(40))
    until(lambda: not _threads(), "its threads have ended")
    gc.collect()
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert _children() == children


def test_two_thousand_small_files_are_read_by_few_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(2000):
        (tmp_path / str(n)).write_text(f"{n}\n", "ascii")
    seen: set[int] = set()
    plain = live._bytes

    def noted(path: str, most: int) -> bytes:
        seen.add(threading.get_ident())
        return plain(path, most)

    monkeypatch.setattr(live, "_bytes", noted)
    with LiveReader(60.0) as reader:
        found = reader.together([f"text {tmp_path}/{n}" for n in range(2000)])
    assert [one.text for one in found] == [f"{n}\n" for n in range(2000)]
    assert len(seen) < 32


def test_time_runs_from_when_it_was_made() -> None:
    with LiveReader(limit_s=0.0) as reader:
        found = reader.together(["text /proc/version", "run true"])
        assert [one.fault for one in found] == ["late", "late"]
        assert reader.until <= time.monotonic()


def test_a_program_without_a_python_to_run_is_told_why(
    reader: LiveReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live.sys, "executable", None)
    answer = reader.probe("libraries")
    assert (answer.fault, answer.data) == ("failed", None)
    assert "no Python" in answer.why


@pytest.mark.parametrize(("age", "limit"), [(0.25, 0.45), (0.6, 0.3), (2.0, 0.3), (60.0, 0.7)])
def test_a_fast_run_counts_from_the_start_of_a_program(
    monkeypatch: pytest.MonkeyPatch, age: float, limit: float
) -> None:
    monkeypatch.setattr(live, "_age", lambda: age)
    assert live.fast_limit() == pytest.approx(limit)


def test_the_age_of_this_process_grows_with_its_clock() -> None:
    before = live._age()
    assert 0 < before <= live._age()
    ran = subprocess.run(
        [sys.executable, "-c", "from dgkit.doctor.collect import live; print(live._age())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0 <= float(ran.stdout) < live._age()
