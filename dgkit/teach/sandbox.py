# SPDX-License-Identifier: Apache-2.0
"""Isolation of a submission's process, by bubblewrap, another user or Landlock, and limits.

A submission sees the system's programs, Python and dgkit, read-only, and folders of its own in
memory, of limited size: nothing of other submissions, of courses, or of the labs. isolation() tries
each limit, and names those that are not held here.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import KernelError
from . import cgroup, landlock

# Users that no account has, of which each grader takes one: DYNAMIC USER IDs of systemd, see
# "Users, Groups, UIDs and GIDs on systemd Systems".
_FIRST_USER, _USERS = 61184, 4336
_PROBE_S = 30.0
_END_S = 5.0
_PROGRAM = "import sys; sys.path[:] = sys.argv.pop().split(':')\n"
# Arguments: seconds of CPU time, bytes of address space, bytes of a file, processes (0: any).
_LIMITS = (
    "import resource, sys\n"
    "seconds, size, written, processes = map(int, sys.argv[1:5])\n"
    "wanted = {'CPU': seconds, 'AS': size, 'FSIZE': written, 'CORE': 0, 'NOFILE': 64}\n"
    "wanted |= {'NPROC': processes} if processes else {}\n"
    "for name, value in wanted.items():\n"
    "    kind = getattr(resource, 'RLIMIT_' + name)\n"
    "    hard = resource.getrlimit(kind)[1]\n"
    "    value = value if hard == resource.RLIM_INFINITY else min(value, hard)\n"
    "    resource.setrlimit(kind, (value, value))\n"
)
_SERVE = _PROGRAM + _LIMITS + "from dgkit.teach.harness import main\nmain(int(sys.argv[5]))"
# Compiles a source from stdin for the emulated GPU; the program is its output.
_COMPILE = (
    _PROGRAM
    + _LIMITS
    + (
        "import os, tempfile\n"
        "from dgkit.errors import KernelError\n"
        "from dgkit.gpu_initiated.compiler import compile_program\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    os.environ['XDG_CACHE_HOME'] = folder\n"
        "    try:\n"
        "        program = compile_program(sys.stdin.read()).read_bytes()\n"
        "    except KernelError as error:\n"
        "        sys.exit(str(error))\n"
        "sys.stdout.buffer.write(program)"
    )
)
# Runs a program with an empty environment and without output.
_EXECUTE = _LIMITS + (
    "import os\n"
    "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)\n"
    "os.execve(sys.argv[5], sys.argv[5:], {})"
)
_FILE_BYTES, _OBJECT_BYTES = 1 << 20, 64 << 20
_FOLDER_BYTES = 64 << 20  # of all files in one of the folders that a submission can write to
_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
_COMPILE_S = 120.0
# Succeeds only if dgkit can be imported and no file of a hidden folder can be read.
_PROBE = _PROGRAM + (
    "import os\n"
    "import dgkit.teach.harness\n"
    "for path in sys.argv[1:]:\n"
    "    for folder, _, names in os.walk(path):\n"
    "        for name in names:\n"
    "            try:\n"
    "                open(os.path.join(folder, name), 'rb').close()\n"
    "            except OSError:\n"
    "                continue\n"
    "            sys.exit(f'{path} can be read')\n"
    "print('isolated')"
)
# Prints how many processes can run at once, at most 24.
_COUNT_PROCESSES = _LIMITS + (
    "import os, signal\n"
    "children = []\n"
    "try:\n"
    "    while len(children) < 24:\n"
    "        if not (child := os.fork()):\n"
    "            signal.pause()\n"
    "        children.append(child)\n"
    "except OSError:\n"
    "    pass\n"
    "print(len(children), flush=True)\n"
    "for child in children:\n"
    "    os.kill(child, signal.SIGKILL)\n"
)
_PROBED_PROCESSES, _MOST_PROCESSES = 16, 24
# Prints only "started" if it is killed for its memory.
_USE_MEMORY = (
    "print('started', flush=True)\n"
    "try:\n"
    "    kept = [bytearray(1 << 20) for _ in range(128)]\n"
    "finally:\n"
    "    print('unlimited')"
)
_PROBED_MEMORY = 64 << 20
_MANY = 1 << 40
_DROP = ("--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all")
# Replaces the environment of the grader, which systemd-run needs.
_ENVIRONMENT = (
    *("env", "-i", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "LANG=C.UTF-8"),
    *("PYTHONDONTWRITEBYTECODE=1", "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"),
)
_REPLACED = ("/proc", "/dev", "/tmp")  # replaced by new ones even if they contain the search path
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives"),
    *("/etc/ld.so.cache", "/etc/localtime"),
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a submission's process.

    Attributes:
        time_s: Wall-clock time of one call, in seconds.
        start_s: Time to start the process, in seconds.
        cpu_s: CPU time of a process, in seconds.
        memory_bytes: Address space of a process; memory of all processes where there is a cgroup.
        processes: Processes and threads at the same time; the emulated GPU starts up to 66.
        requests: Requests to the grader in one call.
        test_s: Wall-clock time of one test, all of its calls together, in seconds.
    """

    time_s: float = 10.0
    start_s: float = 30.0
    cpu_s: int = 60
    memory_bytes: int = 2 << 30
    processes: int = 128
    requests: int = 100_000
    test_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Isolation:
    """Isolation of a submission's process, as words before its command.

    Attributes:
        method: "bubblewrap", "another user", "Landlock", or "" without isolation.
        prefix: Words before the command.
        note: Reason why there is no isolation.
        in_cgroup: Whether a cgroup limits the memory and the processes.
        counts_processes: Whether RLIMIT_NPROC counts the processes of a submission alone.
        missing: Limits that do not hold.
    """

    method: str
    prefix: tuple[str, ...] = ()
    note: str = ""
    in_cgroup: bool = False
    counts_processes: bool = False
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.method:
            return f"not isolated: {self.note}"
        missing = f"; missing: {'; '.join(self.missing)}" if self.missing else ""
        return f"isolated: {self.method}{missing}"


def search_path() -> str:
    """Return the search path of modules for a process with another working folder."""
    return ":".join(map(os.path.abspath, sys.path))


def _shown() -> list[str]:
    """Return the paths that a submission sees: the system's, Python's and dgkit's.

    Of a clone of dgkit, which contains the labs, only the package and the header for kernels.
    """
    from ..gpu_initiated.compiler import include_dir

    package = Path(__file__).resolve().parents[1]  # perhaps below a replaced folder
    ours = {sys.prefix, sys.base_prefix, sys.exec_prefix, *search_path().split(":")}
    ours = {path for path in ours if not Path(path, "notebooks/labs").is_dir()}
    ours |= {str(package), str(include_dir())}
    return [
        path
        for path in (*_SYSTEM, *sorted(ours - {"/", *_REPLACED}))
        if Path(path).is_symlink() or Path(path).exists()
    ]


def _own_user() -> tuple[str, ...]:
    """Return a command prefix that runs a command as a user without an account."""
    user = str(_FIRST_USER + os.getpid() % _USERS)
    return ("setpriv", "--reuid", user, "--regid", user, *_DROP)


def _bubblewrap(program: str, hidden: Sequence[str], *, sized: bool = True) -> tuple[str, ...]:
    """Return the words of bubblewrap; as root without a user namespace, but as another user.

    In a user namespace of root, its processes would be root's, and RLIMIT_NPROC not count them.
    """
    root = os.geteuid() == 0
    words = [program, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if root:
        words += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
        for capability in ("SETUID", "SETGID", "SETPCAP"):
            words += ["--cap-add", f"CAP_{capability}"]
    else:
        words += ["--unshare-all"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    size = ["--size", str(_FOLDER_BYTES)] if sized else []
    for path in _FOLDERS:
        words += [*(["--perms", "1777"] if root else []), *size, "--tmpfs", path]
    for path in _shown():
        if root:  # else others could not enter the folders around it
            for folder in reversed(Path(path).parents[:-1]):
                words += ["--perms", "0755", "--dir", str(folder)]
        link = Path(path).is_symlink() and path in _SYSTEM
        words += ["--symlink", str(Path(path).readlink())] if link else ["--ro-bind", path]
        words += [path]
    for path in hidden:
        words += ["--tmpfs", path, "--remount-ro", path]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]
    return (*words, *(_own_user() if root else ()))


def _another_user(hidden: Sequence[str]) -> tuple[str, ...]:
    """Return a command prefix that runs a command as another user, in a root folder of its own.

    The first process of the process namespace is a shell of root, which the kernel kills with its
    parent; the kernel forgets this request if a process changes its user.
    """
    unshare = ("unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child")
    return (*unshare, "sh", "-c", _root_script(hidden), "sh", *_own_user())


def _root_script(hidden: Sequence[str]) -> str:
    """Return a shell script that makes a root folder at /sys and runs its arguments in there."""
    lines = ["set -e", "mount -n -t tmpfs -o mode=755,size=1m,nosuid none /sys"]
    tmpfs = f"mount -n -t tmpfs -o mode=1777,size={_FOLDER_BYTES},nosuid,nodev none"
    lines += ["mkdir -p /sys/proc /sys/dev", "mount -n -t proc -o nosuid,nodev proc /sys/proc"]
    for path in _FOLDERS:
        lines += [f"mkdir -p /sys{path}", f"{tmpfs} /sys{path}"]
    for name in ("null", "zero", "full", "random", "urandom"):
        lines += [f": > /sys/dev/{name}", f"mount -n --bind /dev/{name} /sys/dev/{name}"]
    for path in _shown():
        place, source = shlex.quote(f"/sys{path}"), shlex.quote(path)
        lines += [f"mkdir -p {shlex.quote(f'/sys{os.path.dirname(path)}')}"]  # noqa: PTH120
        if Path(path).is_symlink() and path in _SYSTEM:
            lines += [f"ln -s {shlex.quote(str(Path(path).readlink()))} {place}"]
            continue
        make = "mkdir -p" if Path(path).is_dir() else "touch"
        lines += [f"{make} {place}", f"mount -n -o rbind,ro,nosuid {source} {place}"]
    for path in hidden:
        place = shlex.quote(f"/sys{path}")
        lines += [f"[ ! -d {place} ] || mount -n -t tmpfs -o ro,mode=000 none {place}"]
    lines += ["mount -n -o remount,ro /sys", 'chroot /sys "$@"', "exit $?"]
    return "\n".join(lines)


def _landlock(hidden: Sequence[str], user: Sequence[str] = ()) -> tuple[str, ...]:
    """Return a command prefix that runs a command with Landlock, by way of the prefix `user`.

    Python must list each folder of the search path; so the names in a hidden folder can be seen.
    """
    shown = [path for each in _shown() for path in _visible_parts(Path(each).resolve(), hidden)]
    around = [each for each in _shown() if any(Path(path).is_relative_to(each) for path in hidden)]
    words = (sys.executable, "-I", "-S", landlock.__file__, _own_folder())
    return (*words, *shown, "--names", *around, "--", *user)


def _missing_of_landlock() -> tuple[str, ...]:
    return (*landlock.missing(), "a limit of the size of its files together")


def _visible_parts(path: Path, hidden: Sequence[str]) -> list[str]:
    """Return a path or, if it contains hidden folders, its other content."""
    inside = [each for each in hidden if Path(each).is_relative_to(path)]
    if not inside:
        return [str(path)]
    if str(path) in inside:
        return []
    found = sorted({each.resolve() for each in path.iterdir()})  # lib64 is a link to lib
    inner = [each for each in found if not path.is_relative_to(each)]
    return [shown for each in inner for shown in _visible_parts(each, inside)]


@functools.cache
def _own_folder() -> str:
    """Return a folder for what submissions write with Landlock, removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="dgkit-grader-")
    Path(folder).chmod(0o711)  # a submission knows the name of its own folder only
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _fails(prefix: Sequence[str], hidden: Sequence[str]) -> str:
    """Return why a command prefix does not isolate, in one line; "" if it does."""
    said, why = _run([*prefix, sys.executable, "-I", "-c", _PROBE, *hidden, search_path()])
    return "" if said == "isolated" else why


def _run(command: Sequence[str], group: Sequence[str] = ()) -> tuple[str, str]:
    """Run a probe; return its output, and the last line of its errors or its exit status."""
    try:
        done = subprocess.run(
            [*group, *_ENVIRONMENT, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_S,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return "", str(exc)
    why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return done.stdout.strip(), why


@functools.cache
def isolation(hidden: tuple[str, ...]) -> Isolation:
    """Return the first kind of isolation that works on this machine and hides these folders.

    Its limits are tried by exceeding them.
    """
    reasons, root = [], os.geteuid() == 0
    if program := shutil.which("bwrap"):
        prefix = _bubblewrap(program, hidden)
        if not (why := _fails(prefix, hidden)):
            return _tried(Isolation("bubblewrap", prefix))
        reasons.append(f"bubblewrap: {why}")
        prefix = _bubblewrap(program, hidden, sized=False)
        if not root and not _fails(prefix, hidden):
            unsized = "a limit of the size of its files (bubblewrap 0.7 has one)"
            return _tried(Isolation("bubblewrap", prefix, missing=(unsized,)))
    else:
        reasons.append("bubblewrap is not installed")
    if root:
        prefix = _another_user(hidden)
        if not (why := _fails(prefix, hidden)):
            return _tried(Isolation("another user", prefix))
        reasons.append(f"another user: {why}")
    else:
        reasons.append("only root can use another user")
    for user in (_own_user(), ("setpriv", *_DROP)) if root else ((),):
        prefix = _landlock(hidden, user)
        if not (why := _fails(prefix, hidden)):
            return _tried(Isolation("Landlock", prefix, missing=_missing_of_landlock()))
        reasons.append(f"Landlock: {why}")
    return Isolation("", note="; ".join(reasons))


def _tried(used: Isolation) -> Isolation:
    """Return an isolation with the limits that hold, and with the names of those that do not."""
    missing = list(used.missing)
    try:
        group = cgroup.command(_PROBED_MEMORY, _MOST_PROCESSES)
        said, why = _run([*used.prefix, sys.executable, "-I", "-S", "-c", _USE_MEMORY], group)
        in_cgroup = said == "started"
        why = "its cgroup does not limit it" if said else why
    except cgroup.NoCgroup as exc:
        in_cgroup, why = False, str(exc)
    if not in_cgroup:
        missing.append(f"a limit of the memory of all its processes together ({why})")
    counted = _count_processes(used.prefix)
    used = replace(used, in_cgroup=in_cgroup, counts_processes=0 < counted < _MOST_PROCESSES)
    if not in_cgroup and not used.counts_processes:
        missing.append("a limit of the number of its processes")
    return replace(used, missing=tuple(missing))


def _count_processes(prefix: Sequence[str]) -> int:
    """Return how many processes a submission can start if RLIMIT_NPROC is 16, at most 24."""
    limits = (_PROBE_S, _MANY, _MANY, _PROBED_PROCESSES)
    numbers = [str(int(limit)) for limit in limits]
    command = [*prefix, sys.executable, "-I", "-S", "-c", _COUNT_PROCESSES, *numbers]
    said, _ = _run(command)
    return int(said) if said.isdecimal() else 0


def _limited(code: str, limits: Limits, used: Isolation, file_bytes: int) -> list[str]:
    """Return a command that runs Python code in isolation, after setting the limits."""
    group = cgroup.command(limits.memory_bytes, limits.processes) if used.in_cgroup else ()
    processes = limits.processes if used.counts_processes else 0
    numbers = map(str, (limits.cpu_s, limits.memory_bytes, file_bytes, processes))
    words = (*group, *_ENVIRONMENT, *used.prefix)
    return [*words, sys.executable, "-I", "-c", code, *numbers]


def compile_kernels(source: str, limits: Limits, used: Isolation) -> bytes:
    """Compile a submission's CUDA C++ in isolation; return the program of the emulated GPU.

    Raises:
        KernelError: It does not compile.
    """
    command = [*_limited(_COMPILE, limits, used, _OBJECT_BYTES), search_path()]
    try:
        done = subprocess.run(
            command,
            input=source.encode(),
            capture_output=True,
            check=False,
            timeout=_COMPILE_S,
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        raise KernelError(f"the kernel did not compile within {_COMPILE_S:g} s") from None
    if done.returncode or not done.stdout:
        why = done.stderr[-4000:].decode(errors="replace").strip()
        raise KernelError(why or f"the compiler ended with exit status {done.returncode}")
    return done.stdout


def kernel_prefix(limits: Limits, used: Isolation) -> list[str]:
    """Return the words before a submission's program, which run it in isolation."""
    return _limited(_EXECUTE, limits, used, _FILE_BYTES)


def start(limits: Limits, used: Isolation) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a submission's process; return the grader's socket and the process."""
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            fd = theirs.fileno()
            process = subprocess.Popen(
                [*_limited(_SERVE, limits, used, _FILE_BYTES), str(fd), search_path()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # its output is not graded
                stderr=subprocess.DEVNULL,
                pass_fds=(fd,),
                start_new_session=True,
                cwd="/",
            )
    except BaseException:
        ours.close()
        raise
    return ours, process


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a submission's process and all processes of its namespace; return when none is left.

    The first process of a namespace, its child, ends after all others. They would otherwise count
    for the next submission, which has the same user and cgroup, and keep it from starting.
    """
    deadline = time.monotonic() + _END_S
    with contextlib.suppress(OSError):  # it has ended, or a kernel without CONFIG_PROC_CHILDREN
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
            while process_stat(Path(f"/proc/{pid}/stat"))[0] not in "XZ":
                if time.monotonic() > deadline:
                    break
                time.sleep(0.001)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(_END_S)


def process_stat(path: Path) -> list[str]:
    """Return the fields after the name, of a process or thread: its state, its parent, ..."""
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:  # it has ended
        return ["X", "0"]
