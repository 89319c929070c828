# SPDX-License-Identifier: Apache-2.0
"""What a hostile submission can use up, leave behind and see, in each kind of isolation."""

import errno
import os
import shutil
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.processes.waiting import until
from support.teaching import source

from dgkit.teach import cgroup, course, landlock, sandbox, student_notebook
from dgkit.teach.submission import Submission, SubmissionFailed
from dgkit.teach.watchdog import Watchdog

HIDDEN = (str(course.labs_folder()),)
CODE = """
import ctypes, os, signal, socket, time

def start(count):
    '''Start processes; return the number that could be started.'''
    children = []
    try:
        while len(children) < count:
            child = os.fork()
            if not child:
                signal.pause()
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, signal.SIGKILL)
    return len(children)

def leave(count):
    '''Start processes that go on.'''
    for _ in range(count):
        if not os.fork():
            signal.pause()

def end(number):
    if number:
        os.kill(os.getpid(), number)
    os._exit(3)

def survivors(count, size):
    '''Start processes that each touch memory and end; return the number that succeeded.'''
    for _ in range(count):
        if not os.fork():
            kept = b"x" * size
            time.sleep(0.5)
            os._exit(0)
    return sum(os.waitpid(-1, 0)[1] == 0 for _ in range(count))

def fill():
    '''Allocate files wherever it is possible; return the folders and the sum of bytes.'''
    folders, written = [], 0
    for folder, names, _ in os.walk("/"):
        if folder in ("/proc", "/usr") or folder.count("/") > 3:
            names.clear()
        try:
            for n in range(1000):
                with open(f"{folder}/left {n}", "wb") as file:
                    os.posix_fallocate(file.fileno(), 0, 1 << 20)
                written += 1 << 20
                folders += [folder] * (not n)
        except OSError:
            pass
    return folders, written

def seen(*paths):
    found = []
    for path in paths:
        try:
            found += [path] if (os.listdir if os.path.isdir(path) else open)(path) else []
        except OSError:
            pass
    return found

def traced(pid):
    '''Trace a process, which stops it.'''
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace(16, pid, 0, 0)  # PTRACE_ATTACH
    return ctypes.get_errno()

def stopped(pid):
    try:
        return os.kill(pid, signal.SIGSTOP)
    except OSError as error:
        return error.errno

def connected(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 5):
            return 0
    except OSError as error:
        return error.errno

def stop_grader(how):
    how(os.getppid())
    time.sleep(60)

def stop_by_signal():
    stop_grader(stopped)

def stop_by_trace():
    stop_grader(traced)

def leave_daemon():
    if not os.fork():
        os.setsid()
        if not os.fork():
            time.sleep(60)
        os._exit(0)
    return 1

def leave_group():
    if not os.fork():
        os.setsid()
    time.sleep(60)

def user():
    return os.getuid()
"""


def _ways():
    if program := shutil.which("bwrap"):
        yield "bubblewrap", sandbox._bubblewrap(program, HIDDEN)
    if os.geteuid() == 0:
        yield "another user", sandbox._another_user(HIDDEN)
    if landlock.version():
        alone = () if os.geteuid() else ("setpriv", *sandbox._DROP)
        yield "Landlock", sandbox._landlock(HIDDEN, alone)


WAYS = dict(_ways())


@pytest.fixture(scope="module", params=WAYS)
def isolation(request):
    assert not sandbox._fails(WAYS[request.param], HIDDEN)
    used = sandbox.Isolation(request.param, WAYS[request.param])
    if used.method == "Landlock":
        used = replace(used, missing=sandbox._missing_of_landlock())
    return sandbox._tried(used)


def _submission(isolation, **limits):
    options = sandbox.Limits(**limits)
    return Submission.of_cells([("code", CODE)], limits=options, isolation=isolation)


def test_all_processes_together_have_the_memory_of_one_or_the_grade_says_so(isolation):
    with _submission(isolation, memory_bytes=256 << 20) as submission:
        try:
            survived = submission.function("survivors")(8, 100 << 20)
        except SubmissionFailed:  # its process was among those that were killed
            survived = 0
    if isolation.in_cgroup:
        assert survived <= 2
    else:
        assert "a limit of the memory of all its processes together" in str(isolation)


def test_a_submission_starts_no_more_processes_than_its_limit(isolation):
    assert isolation.in_cgroup or isolation.counts_processes
    with _submission(isolation) as submission:
        assert 32 < submission.function("start")(300) < sandbox.Limits().processes


def test_no_process_of_a_submission_counts_for_the_next_one(isolation):
    if isolation.method == "Landlock":  # no namespace of processes; a test ends all (watchdog.py)
        return
    marker = b"\x004320\x00"  # its limit of CPU time, an argument
    with _submission(isolation, cpu_s=4320) as submission:
        submission.function("leave")(100)
        assert sum(marker in line for line in _command_lines()) > 100
    assert not any(marker in line for line in _command_lines())


def test_an_ended_process_is_reported_with_its_status_or_signal(isolation):
    with _submission(isolation) as submission:
        for how, said in ((0, "exit status 3"), (signal.SIGKILL, "SIGKILL")):
            with pytest.raises(SubmissionFailed, match=rf"^end ended its process \({said}\)$"):
                submission.function("end")(how)


def test_what_a_submission_writes_is_limited_and_gone_with_it(isolation):
    if isolation.method == "Landlock":
        assert "a limit of the size of its files together" in str(isolation)
        return
    with _submission(isolation) as submission:
        folders, written = submission.function("fill")()
    assert set(folders) == {*sandbox._FOLDERS}
    assert written <= len(sandbox._FOLDERS) * sandbox._FOLDER_BYTES
    left = [f"{folder}/left 0" for folder in folders]
    assert not any(map(os.path.exists, left))
    with _submission(isolation) as submission:
        assert submission.function("seen")(*left) == []


def test_a_submission_sees_neither_files_of_the_host_nor_copies_of_the_labs(isolation, tmp_path):
    copy = tmp_path / "labs"
    shutil.copytree(course.labs_folder(), copy)
    for folder in (copy, *copy.parents[:3]):
        folder.chmod(0o755)
    files = [Path(folder, "dgkit-host-file") for folder in sandbox._FOLDERS]
    hidden = [str(source("lab1")), *map(str, (copy, *files)), "/etc/passwd", "/sys/kernel"]
    try:
        for file in files:
            file.write_text("mine")
        with _submission(isolation) as submission:
            assert submission.function("seen")(*hidden) == []
            assert submission.function("seen")(sandbox.__file__) == [sandbox.__file__]
    finally:
        for file in files:
            file.unlink()


def test_a_submission_of_root_is_another_user(isolation):
    with _submission(isolation) as submission:
        user = submission.function("user")()
    assert user == os.geteuid() or user >= sandbox._FIRST_USER
    assert user != 0 or isolation.method == "Landlock"


def test_a_submission_neither_stops_nor_traces_another_process(isolation):
    other = subprocess.Popen(["sleep", "60"])
    with other, _submission(isolation) as submission:
        try:
            assert submission.function("stopped")(other.pid) in (errno.EPERM, errno.ESRCH)
            assert submission.function("traced")(other.pid) in (errno.EPERM, errno.ESRCH)
            assert Path(f"/proc/{other.pid}/stat").read_text().split()[2] == "S"
        finally:
            other.kill()


def test_a_submission_has_no_network(isolation):
    with socket.create_server(("127.0.0.1", 0)) as server, _submission(isolation) as submission:
        assert submission.function("connected")(server.getsockname()[1]) != 0


@pytest.mark.skipif("Landlock" not in WAYS, reason="the kernel has no Landlock")
def test_with_landlock_a_submission_cannot_read_what_an_earlier_one_wrote():
    used = sandbox.Isolation("Landlock", WAYS["Landlock"])
    code = "import os\ndef write():\n    open('mine', 'w').write('x')\n    return os.getcwd()\n"
    cells = [("code", CODE + code)]
    with Submission.of_cells(cells, limits=sandbox.Limits(), isolation=used) as submission:
        folder = submission.function("write")()
    assert Path(folder, "mine").read_text() == "x"
    with _submission(used) as submission:
        assert submission.function("seen")(f"{folder}/mine", folder, str(Path(folder).parent)) == []


CALLS = """
from dgkit.teach import concepts, verdict
report = verdict.Report(concepts.LAB1)
with report.case("a call", "format"):
    verdict.expect({function}() == 1, "it does not return 1")
report.finish()
"""
NOT_ISOLATED = sandbox.Isolation("", note="a test")


def _watched(*functions, isolation=NOT_ISOLATED, **limits):
    """Grade calls of functions as nbgrader does."""
    with Watchdog() as watchdog:
        return [
            watchdog.grade(
                [("code", CODE)],
                student_notebook.Test(name, CALLS.format(function=name), 10),
                seed="of a test",
                isolation=isolation,
                limits=sandbox.Limits(**limits),
            )
            for name in functions
        ]


@pytest.mark.cheat
@pytest.mark.parametrize("how", ["stop_by_signal", "stop_by_trace"])
def test_a_submission_that_stops_the_grader_fails_that_test_only(how):
    stopped, after = _watched(how, "leave_daemon", time_s=5.0)
    assert stopped.points == 0
    refused = os.geteuid() != 0 and how == "stop_by_trace"
    why = "did not return within" if refused else "the submission stopped the grader"
    assert why in stopped.feedback
    assert after.points == 10


@pytest.mark.cheat
def test_a_process_that_a_submission_leaves_ends_with_its_test():
    marker = b"\x004322\x00"  # its limit of CPU time, an argument
    (made,) = _watched("leave_daemon", cpu_s=4322)
    assert made.points == 10
    assert not any(marker in line for line in _command_lines())


def test_a_test_that_takes_too_long_is_ended():
    (made,) = _watched("leave_group", test_s=1.0, time_s=30.0)
    assert made.points == 0
    assert "it did not end within 1 s" in made.feedback


def test_a_process_that_leaves_the_group_of_its_submission_ends_with_the_test(isolation):
    marker = b"\x004321\x00"  # its limit of CPU time, an argument
    (made,) = _watched("leave_group", isolation=isolation, cpu_s=4321, time_s=1.0)
    assert "did not return within 1 s" in made.feedback
    until(lambda: not any(marker in line for line in _command_lines()), "the process ends")


def _command_lines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:
            continue


def test_an_isolation_names_the_limits_that_do_not_hold(monkeypatch):
    def none(*_):
        raise cgroup.NoCgroup("no cgroup here")

    monkeypatch.setattr(cgroup, "command", none)
    monkeypatch.setattr(sandbox, "_run", lambda *_: ("24", ""))
    used = sandbox._tried(sandbox.Isolation("bubblewrap", missing=("a limit of files",)))
    assert str(used) == (
        "isolated: bubblewrap; missing: a limit of files; a limit of the memory of all its "
        "processes together (no cgroup here); a limit of the number of its processes"
    )


def test_a_cgroup_that_limits_nothing_is_not_counted(monkeypatch):
    monkeypatch.setattr(cgroup, "command", lambda *_: ("env",))
    used = sandbox._tried(sandbox.Isolation("nothing"))
    assert not used.in_cgroup
    assert "(its cgroup does not limit it)" in str(used)


def test_a_cgroup_in_which_nothing_starts_is_not_counted(monkeypatch):
    fails = ("sh", "-c", "echo Failed to connect to bus >&2; exit 1", "sh")
    monkeypatch.setattr(cgroup, "command", lambda *_: fails)
    used = sandbox._tried(sandbox.Isolation("nothing"))
    assert not used.in_cgroup
    assert "(Failed to connect to bus)" in str(used)


V2 = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max")


@pytest.mark.parametrize("own", ["", "service"])
def test_a_cgroup_of_version_2_is_made_where_it_can_have_limits(own, tmp_path, monkeypatch):
    """A folder with processes has no limited children, so the second one is beside it."""
    (tmp_path / "service").mkdir()
    for folder in (tmp_path, tmp_path / "service"):
        (folder / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "service/cgroup.subtree_control").mkdir()  # cannot be written
    made = []

    def make(folder, limits):
        made.append((folder, limits))
        return folder

    monkeypatch.setattr(cgroup, "_SYSTEMD", tmp_path / "missing")
    monkeypatch.setattr(cgroup, "_own_folders", lambda: {"": tmp_path / own})
    monkeypatch.setattr(cgroup, "_make", make)
    cgroup._folders.cache_clear()
    words = cgroup.command(1 << 20, 9)
    cgroup._folders.cache_clear()
    ((folder, limits),) = made
    assert folder.parent == tmp_path
    assert tuple(limits) == V2
    assert str(folder / "cgroup.procs") in words


def test_systemd_makes_a_scope_with_the_limits_and_the_environment_of_the_grader(
    tmp_path, monkeypatch
):
    """systemd-run needs the environment to find the user's systemd; a submission gets another."""
    program = tmp_path / "systemd-run"
    program.write_text(f'#!/bin/sh\necho "$XDG_RUNTIME_DIR $*" >> {tmp_path}/asked\n'
                       'while [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')  # fmt: skip
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.setattr(cgroup, "_SYSTEMD", tmp_path)
    code = "import os; print(os.environ.get('XDG_RUNTIME_DIR'))"
    used = sandbox.Isolation("", in_cgroup=True)
    limits = sandbox.Limits(memory_bytes=1 << 30, processes=99)
    words = sandbox._limited(code, limits, used, 1)
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "None\n"
    user = "--user " if os.geteuid() else ""
    assert (tmp_path / "asked").read_text().startswith(
        f"/run/user/7 {user}--scope --quiet --collect --property=MemoryMax=1073741824 "
        "--property=MemorySwapMax=0 --property=TasksMax=99 -- env -i "
    )  # fmt: skip
