"""Isolation of a submission's process, by bubblewrap or another user if possible, and limits."""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import KernelError

NOBODY = 65534  # the overflow uid and gid of Linux: user_namespaces(7)
_PROBE_S = 30.0
_PROGRAM = "import sys; sys.path[:] = sys.argv.pop().split(':')\n"
# Arguments: seconds of CPU time, bytes of address space, bytes of a file.
_LIMITS = (
    "import resource, sys\n"
    "seconds, size, written = map(int, sys.argv[1:4])\n"
    "wanted = {'CPU': seconds, 'AS': size, 'FSIZE': written, 'CORE': 0, 'NOFILE': 64}\n"
    "for name, value in wanted.items():\n"
    "    kind = getattr(resource, 'RLIMIT_' + name)\n"
    "    hard = resource.getrlimit(kind)[1]\n"
    "    value = value if hard == resource.RLIM_INFINITY else min(value, hard)\n"
    "    resource.setrlimit(kind, (value, value))\n"
)
_SERVE = _PROGRAM + _LIMITS + "from dgkit.teach.harness import main\nmain(int(sys.argv[4]))"
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
    "os.execve(sys.argv[4], sys.argv[4:], {})"
)
_FILE_BYTES, _OBJECT_BYTES = 1 << 20, 64 << 20
_COMPILE_S = 120.0
# Succeeds only if dgkit can be imported and no hidden folder can be listed.
_PROBE = _PROGRAM + (
    "import os\n"
    "import dgkit.teach.harness\n"
    "for path in sys.argv[1:]:\n"
    "    try:\n"
    "        shown = os.listdir(path)\n"
    "    except OSError:\n"
    "        shown = []\n"
    "    assert not shown, f'{path} can be read'\n"
    "print('isolated')"
)
# $1: number of folders to hide, the folders, then the command.
_AS_NOBODY = (
    'n=$1; shift; while [ "$n" -gt 0 ]; do [ ! -d "$1" ] || mount -t tmpfs -o mode=000 none "$1" '
    f"|| exit 1; shift; n=$((n-1)); done; exec setpriv --reuid {NOBODY} --regid {NOBODY} "
    '--clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "$@"'
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
        cpu_s: CPU time of the process, in seconds.
        memory_bytes: Size of the address space.
        requests: Requests to the grader in one call.
    """

    time_s: float = 10.0
    start_s: float = 30.0
    cpu_s: int = 60
    memory_bytes: int = 2 << 30
    requests: int = 100_000


@dataclass(frozen=True, slots=True)
class Isolation:
    """Isolation of a submission's process, as words before its command.

    Attributes:
        method: "bubblewrap", "another user", or "" without isolation.
        prefix: Words before the command.
        note: Reason why there is no isolation.
    """

    method: str
    prefix: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return f"isolated: {self.method}" if self.method else f"not isolated: {self.note}"


def _search_path() -> str:
    """Return the search path of modules for a process with another working folder."""
    return ":".join(map(os.path.abspath, sys.path))


def _bubblewrap(program: str, hidden: Sequence[str]) -> tuple[str, ...]:
    words = [program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for path in _SYSTEM:
        if Path(path).is_symlink():
            words += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).exists():
            words += ["--ro-bind", path, path]
    package = str(Path(__file__).resolve().parents[1])  # perhaps below a replaced folder
    ours = {sys.prefix, sys.base_prefix, sys.exec_prefix, package, *_search_path().split(":")}
    for path in sorted(ours - {"/", *_REPLACED}):
        if Path(path).exists():
            words += ["--ro-bind", path, path]
    for path in hidden:
        if Path(path).is_dir():
            words += ["--tmpfs", path]
    return (*words, "--chdir", "/tmp", "--")


def _another_user(hidden: Sequence[str]) -> tuple[str, ...]:
    unshare = ("unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child")
    shell = ("--mount-proc", "sh", "-c", _AS_NOBODY, "sh", str(len(hidden)), *hidden)
    return (*unshare, *shell)


def _fails(prefix: Sequence[str], hidden: Sequence[str]) -> str:
    """Return one line on why a command prefix does not isolate; "" if it does."""
    command = [*prefix, sys.executable, "-I", "-c", _PROBE, *hidden, _search_path()]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_S,
            stdin=subprocess.DEVNULL,
            env=_environment(),
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    if done.stdout.strip() == "isolated":
        return ""
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]


@functools.cache
def isolation(hidden: tuple[str, ...]) -> Isolation:
    """Return the first kind of isolation that works on this machine and hides these folders."""
    reasons = []
    if program := shutil.which("bwrap"):
        prefix = _bubblewrap(program, hidden)
        if not (why := _fails(prefix, hidden)):
            return Isolation("bubblewrap", prefix)
        reasons.append(f"bubblewrap: {why}")
    else:
        reasons.append("bubblewrap is not installed")
    if os.geteuid():
        reasons.append("only root can use another user")
    else:
        prefix = _another_user(hidden)
        if not (why := _fails(prefix, hidden)):
            return Isolation("another user", prefix)
        reasons.append(f"another user: {why}")
    return Isolation("", note="; ".join(reasons))


def _environment() -> dict[str, str]:
    """Return an environment without the variables of the grader's environment."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def _limited(code: str, limits: Limits, used: Isolation, file_bytes: int) -> list[str]:
    """Return a command that runs Python code in isolation, after setting the limits."""
    numbers = [str(limits.cpu_s), str(limits.memory_bytes), str(file_bytes)]
    return [*used.prefix, sys.executable, "-I", "-c", code, *numbers]


def compile_kernels(source: str, limits: Limits, used: Isolation) -> bytes:
    """Compile a submission's CUDA C++ in isolation; return the program of the emulated GPU.

    Raises:
        KernelError: It does not compile.
    """
    command = [*_limited(_COMPILE, limits, used, _OBJECT_BYTES), _search_path()]
    try:
        done = subprocess.run(
            command,
            input=source.encode(),
            capture_output=True,
            check=False,
            timeout=_COMPILE_S,
            env=_environment(),
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
                [*_limited(_SERVE, limits, used, _FILE_BYTES), str(fd), _search_path()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # its output is not graded
                stderr=subprocess.DEVNULL,
                pass_fds=(fd,),
                start_new_session=True,
                env=_environment(),
                cwd="/",
            )
    except BaseException:
        ours.close()
        raise
    return ours, process
