# SPDX-License-Identifier: Apache-2.0
"""`dgkit` as a process, and the files and processes that it leaves behind."""

import contextlib
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

from support.processes.agents import python
from support.processes.waiting import child_states

PACKAGE_ROOT = Path(__file__).resolve().parents[3]


def command(*args):
    """Return a command with the same sys.path as this process, for any folder."""
    return python("from dgkit.cli import main; sys.exit(main())", *map(str, args))


def environment(home):
    """Return an environment with its own home, runtime and temporary folders, and faulthandler."""
    run = Path(home) / "run"
    run.mkdir(mode=0o700, exist_ok=True)
    own = {
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(run),
        "XDG_CONFIG_HOME": str(home),
        "LANG": "C",
        "PYTHONFAULTHANDLER": "1",
    }
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    return kept | own | {"TMPDIR": str(run)}


def run(home, *args, timeout=60, **more):
    """Run a command to its end; return it with the text of both streams."""
    return subprocess.run(
        command(*args), env=environment(home), capture_output=True, text=True, timeout=timeout,
        check=False, **more,
    )  # fmt: skip


@contextmanager
def started(home, *args, **more):
    """Run a command in a process group of its own, as a shell does; kill it at the end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
    process = subprocess.Popen(
        command(*args), env=environment(home), text=True, start_new_session=True, **pipes
    )
    with process:  # waits for it
        try:
            yield process
        finally:
            process.kill()


def send(process, name):
    """Send SIGINT to the whole process group, as Ctrl-C does, or SIGTERM to the process alone."""
    if name == "SIGINT":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(getattr(signal, name))


def ended(process, seconds=30):
    """Wait for its end and return the rest of both streams; the exit code is process.returncode.

    AssertionError if it does not end in time, with the Python stacks of its children and of itself.
    """
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        for pid in (*children_of(process.pid), process.pid):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGABRT)  # faulthandler's, by the environment above
    try:
        _, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as stuck:
        err = f"{stuck.stderr}\n(nor by SIGABRT)"
    raise AssertionError(f"it has not ended within {seconds} s:\n{err}")


def children_of(pid):
    """Return the pids of its child processes, which any of its threads may have started."""
    return [*child_states(pid)]


def alive(pid):
    """Return whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def files_under(home):
    """Return all files below a folder."""
    return sorted(str(path) for path in Path(home).rglob("*") if not path.is_dir())


def cpu_seconds(pid):
    """Return its CPU time in seconds (proc_pid_stat(5)), or 0 if there is no such process."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return 0


def until(condition, seconds=20):
    """Wait for it and return it; raise AssertionError if it does not come in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return found


def screen_text(screen):
    """Return what a terminal shows next, or b"" after its last writer closed it: EIO (pty(7))."""
    try:
        return os.read(screen, 4096)
    except OSError:
        return b""
