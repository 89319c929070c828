# SPDX-License-Identifier: Apache-2.0
"""Testbeds: start one, find the running one, run commands in its guests."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import child
from .._version import DISTRIBUTION
from ..errors import TestbedError
from ..files import make_user_folder
from ..runtime_folder import runtime_dir
from ..unique import Closable
from ..validate import whole
from ..wire import keys as keyring
from . import images, initramfs, requirements, wheels
from .agents import Agent
from .control_socket import DONE, ERROR, OUTPUT, frames, read_line, send
from .guest import ADDRESSES, NOTEBOOKS
from .guest_service import Service, shell_environment
from .images import Progress
from .jupyterlab import LabServer
from .ssh import SshServer
from .supervisor import PREFIX, SOCKET

if TYPE_CHECKING:
    from ..session import Session

MEMORY = 1 << 30  # bytes of a guest
LAB_MEMORY = 3 << 29  # bytes of a guest with JupyterLab
START_S = 300.0  # an emulated guest starts in half a minute on a busy machine with two cores
LAB_START_S = 900.0  # JupyterLab's imports take minutes in an emulated guest
_LEAST = 256 << 20  # bytes that a guest needs
_NAME = f"{PREFIX}cli"  # folder of a testbed that outlives the process that starts it
_SCRIPT = 1 << 17  # maximum length of a command in bytes
_ANSWER_S = 10.0
_END_S = 10.0
_REQUEST_S = 60.0  # an emulated guest may be slow
_PANIC = re.compile(r"(the guest \w+) did not start \(ended\).*?(Kernel panic.*?)$", re.M | re.S)


class Testbed(Closable):
    """Running testbed, returned by up() or running().

    The end of a `with` statement ends the testbed if up() has started it for this process.
    """

    __test__ = False  # pytest would collect the class because of its name

    def __init__(self, folder: Path, supervisor: _Supervisor | None) -> None:
        self._folder = folder
        self._supervisor = supervisor

    def __repr__(self) -> str:
        return f"<Testbed in {self._folder}: an emulated host and an emulated Arm DPU>"

    def close(self) -> None:
        """End the testbed if up() has started it for this process. Idempotent."""
        if self._supervisor:
            self._supervisor.close()

    def down(self) -> None:
        """End the testbed, even if another process has started it; wait until it is gone."""
        with contextlib.suppress(TestbedError), self._connected() as link:
            send(link, {"do": "down"})
            link.settimeout(_END_S)
            with contextlib.suppress(OSError):
                link.recv(1)
        self.close()

    def status(self) -> dict[str, Any]:
        """Return the state of the two guests, as `dgkit testbed status --json` prints it.

        Raises:
            TestbedError: It has ended.
        """
        return self._ask({"do": "status"})

    @property
    def host(self) -> str:
        """Address of the host guest's agent, which owns the memory.

        Raises:
            TestbedError: No agent runs: it has ended, or up() was called without `agents`.
        """
        return self._agent("host")

    @property
    def dpu(self) -> str:
        """Address of the DPU guest's agent, which moves the bytes. Errors as for `host`."""
        return self._agent("dpu")

    def session(self, *, timeout: float = _REQUEST_S) -> Session:
        """Open a session between the agents of the host guest and the DPU guest.

        This process is neither side: the bytes that it writes and reads cross the connection to the
        DPU guest without DMA, and the reports say so. Arguments and errors are those of
        dgkit.connect().

        Raises:
            TestbedError: As for `host`.
        """
        from ..session import connect

        return connect(self.dpu, host=self.host, timeout=timeout)

    def ssh(self, guest: str) -> list[str]:
        """Return the command that opens a shell in a guest by SSH; a command may follow it.

        Args:
            guest: host or dpu.

        Raises:
            TestbedError: No SSH server runs: it has ended, or up() was called without `ssh`.
        """
        return shlex.split(self._address(guest, SshServer, "--ssh"))

    def lab(self, guest: str) -> str:
        """Return the URL of JupyterLab in a guest, with its token. Errors as for ssh()."""
        return self._address(guest, LabServer, "--lab --agents FOLDER")

    def _agent(self, guest: str) -> str:
        return self._address(guest, Agent, "--agents FOLDER")

    def _address(self, guest: str, service: type[Service], option: str) -> str:
        state = self.status()["guests"][_checked(guest)]
        key, title = service.key, service.title
        if why := state.get(f"{key}_ended"):
            raise TestbedError(f"the {title} in the {guest} guest ended: {why}")
        if not state.get(key):
            raise TestbedError(
                f"no {title} runs in the {guest} guest: `dgkit testbed up {option}` starts one in "
                "each"
            )
        return str(state[key])

    def console(self, guest: str) -> str:
        """Return the last lines of a guest's console.

        Raises:
            TestbedError: It has ended.
        """
        return str(self._ask({"do": "console", "guest": _checked(guest)})["text"])

    def run(
        self,
        guest: str,
        command: Sequence[str | Path] | str,
        *,
        timeout: float | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root in a guest, like subprocess.run() on this machine.

        Its standard input is empty. When it ends, child processes that still run are killed.

        Args:
            guest: host or dpu.
            command: Words, or a line for the guest's shell.
            timeout: Seconds after which the command is ended.
            check: Raise CalledProcessError if it fails.

        Raises:
            subprocess.TimeoutExpired: The command took longer than `timeout`.
            TestbedError: The guest has ended, or runs as many commands as it can.
        """
        printed: dict[bytes, list[bytes]] = {}
        status = -1
        try:
            for kind, content in self.start(guest, command, timeout=timeout):
                printed.setdefault(kind, []).append(content)
                if kind == DONE:
                    status = int(content)
        except TimeoutError:
            out = b"".join(printed.get(OUTPUT, []))
            raise subprocess.TimeoutExpired(command, timeout or 0.0, out) from None
        texts = {kind: b"".join(parts).decode(errors="replace") for kind, parts in printed.items()}
        done = subprocess.CompletedProcess(
            command, status, texts.get(OUTPUT, ""), texts.get(b"e", "")
        )
        if check:
            done.check_returncode()
        return done

    def start(
        self, guest: str, command: Sequence[str | Path] | str, *, timeout: float | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Run a command; yield what it prints as (b"o" or b"e", bytes), then (b"d", exit status).

        b"o" is standard output, b"e" standard error. Closing the iterator ends the command.
        Arguments and errors are those of run(), except that `timeout` raises TimeoutError.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        request = {"do": "run", "guest": _checked(guest), "script": _script(guest, command)}
        with self._connected() as link:
            send(link, request)
            link.settimeout(timeout)
            status = False
            for kind, content in frames(link):
                if kind == ERROR:
                    raise TestbedError(content.decode())
                yield kind, content
                status = kind == DONE
                if deadline is not None:
                    link.settimeout(max(0.001, deadline - time.monotonic()))
        if not status:
            raise TestbedError(f"the testbed ended while a command ran in its {guest}")

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._connected() as link:
            link.settimeout(_ANSWER_S)
            send(link, request)
            answer = read_line(link)
        if answer is None:
            raise TestbedError("the testbed has ended")
        return answer

    @contextlib.contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        with socket.socket(socket.AF_UNIX) as link:
            try:
                link.connect(str(self._folder / SOCKET))
            except OSError:
                raise TestbedError(
                    "the testbed has ended: `dgkit testbed up` starts another"
                ) from None
            yield link


class _Supervisor:
    """Child process that runs a testbed; closing the socket to it ends the testbed."""

    def __init__(self) -> None:
        self.link, theirs = socket.socketpair()
        self._process = child.start("dgkit.testbed.supervisor", theirs)

    def next(self, deadline: float, waits_for: str) -> dict[str, Any]:
        """Return the supervisor's next message.

        Raises:
            TestbedError: The supervisor failed, or sent nothing before the deadline.
        """
        self.link.settimeout(max(0.001, deadline - time.monotonic()))
        try:
            message = read_line(self.link)
        except TimeoutError:
            raise TestbedError(f"{waits_for} was not ready in time") from None
        if message is None:
            raise TestbedError(f"the testbed ended before {waits_for} was ready")
        if "failed" in message:
            raise TestbedError(message["failed"])
        return message

    def detach(self) -> None:
        """Detach the testbed, which then outlives this process."""
        send(self.link, {"do": "detach"})
        self.link.close()
        self._process.returncode = 0  # so that Popen does not warn about a running child

    def close(self) -> None:
        """End the testbed. Idempotent."""
        self.link.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # QEMU ends with it
            self._process.wait()


def up(
    *,
    host_memory: int | None = None,
    dpu_memory: int | None = None,
    share: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    agents: str | os.PathLike[str] | None = None,
    ssh: bool = False,
    lab: bool = False,
    detach: bool = False,
    progress: Progress = lambda _: None,
) -> Testbed:
    """Start a testbed and return when both guests are ready.

    The first call downloads about 200 MB of packages to the user's cache.

    Args:
        host_memory: Memory of the host guest in bytes; default: 1 GiB, with `lab` 1.5 GiB.
        dpu_memory: Memory of the DPU guest in bytes, with the same default.
        share: Folder that both guests see as /run/share, read-only.
        timeout: Time limit of the start in seconds, not counting downloads; default: 300, with
            `lab` 900.
        agents: Folder of wheels of dgkit and its dependencies for aarch64, which
            native/wheelhouse.py makes: each guest then runs an agent, whose address is `host` or
            `dpu` of the testbed. The agents allow this user's key pair "default", which is created
            if missing.
        ssh: Run an SSH server in each guest; Testbed.ssh() returns the command that reaches it.
        lab: Run JupyterLab in each guest; Testbed.lab() returns its URL. This needs `agents`, with
            the wheels of the extra `lab`; the host guest uses this Python's JupyterLab.
        detach: Let the testbed outlive this process, until `dgkit testbed down`. A user can have
            at most one such testbed.
        progress: Called with a text about the current step.

    Raises:
        ValueError: `lab` without `agents`, or too little memory.
        TestbedError: Packages are missing on this machine, or a guest did not start.
    """
    default = LAB_MEMORY if lab else MEMORY
    memory = {"host": host_memory, "dpu": dpu_memory}
    for name, value in memory.items():
        memory[name] = default if value is None else whole(f"{name}_memory", value, _LEAST)
    folder = _folder("share", share)
    wheel_folder = _folder("agents", agents)
    if lab and not wheel_folder:
        raise ValueError("lab needs agents: the wheels of JupyterLab for the DPU guest")
    if detach and running():
        raise TestbedError("a testbed is already up: `dgkit testbed down` ends it")
    requirements.check(ssh=ssh, lab=lab)
    _check_place()
    images.sweep()
    with images.in_use():
        host, dpu = images.prepare(progress)
        shared = {"share": str(folder)} if folder else {}
        folders = {"host": shared, "dpu": dict(shared)}
        if wheel_folder:
            progress("unpacking the wheels")
            packages = (DISTRIBUTION, "jupyterlab") if lab else (DISTRIBUTION,)
            folders["dpu"]["site"] = str(wheels.site(wheel_folder, dpu.files, packages))
        if lab and wheel_folder:
            for name in folders:
                folders[name][NOTEBOOKS] = str(_notebooks(name, wheel_folder / NOTEBOOKS))
        if ssh:
            folders = {
                name: folders[name] | {"ssh": str(images.ssh_server(image.machine, progress))}
                for name, image in (("host", host), ("dpu", dpu))
            }
        options: dict[str, Any] = {
            "name": _NAME if detach else None,
            "memory": memory,
            "share": folder and str(folder),
            "folders": folders,
            "images": {"host": asdict(host), "dpu": asdict(dpu)},
            "client": _client_key() if wheel_folder else None,
            "path": ":".join(each or str(Path.cwd()) for each in sys.path),
            "agents": wheel_folder is not None,
            "ssh": ssh,
            "lab": lab,
            "notebooks": wheel_folder is not None and (wheel_folder / NOTEBOOKS).is_dir(),
        }
        limit = timeout if timeout is not None else LAB_START_S if lab else START_S
        return _started(options, time.monotonic() + limit, detach, progress)


def _folder(name: str, path: str | os.PathLike[str] | None) -> Path | None:
    """Return the absolute path of a folder; None for None."""
    folder = None if path is None else Path(path).resolve(strict=True)
    if folder is not None and not folder.is_dir():
        raise NotADirectoryError(f"{name} must be a folder, but {folder} is not one")
    return folder


def _check_place() -> None:
    """Raise TestbedError if the host guest does not see this Python or dgkit."""
    for path in (sys.executable, os.path.realpath(sys.executable), __file__):
        for own in initramfs.OWN:
            if Path(path).absolute().is_relative_to(own):
                raise TestbedError(
                    f"{path} is below {own}, which the host guest has for itself: install dgkit in "
                    "another folder"
                )


def _notebooks(guest: str, originals: Path) -> Path:
    """Return the folder that keeps a guest's notebooks, after copying those that it lacks."""
    kept = make_user_folder("DATA", f"testbed/{guest}")
    for source, target in ((guest, kept), ("tutorials", kept / "tutorials")):
        for path in (originals / source).rglob("*"):
            copy = target / path.relative_to(originals / source)
            if path.is_file() and not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, copy)
    return kept


def _client_key() -> str:
    """Return the public key of this user's pair "default", which is created if missing."""
    with contextlib.suppress(FileExistsError):
        return keyring.make().public
    return keyring.load().public


def _started(options: dict[str, Any], deadline: float, detach: bool, progress: Progress) -> Testbed:
    """Start a testbed; once more if a kernel panics at boot, as an emulated one does by chance."""
    try:
        return _started_once(options, deadline, detach, progress)
    except TestbedError as exc:
        panic = _PANIC.search(str(exc))
        if not panic:
            raise
        progress(f"{panic[1]} panicked at boot ({panic[2].strip()}): both start once more")
    return _started_once(options, deadline, detach, progress)


def _started_once(
    options: dict[str, Any], deadline: float, detach: bool, progress: Progress
) -> Testbed:
    supervisor = _Supervisor()
    try:
        send(supervisor.link, options)
        folder = Path(supervisor.next(deadline, "its first process")["folder"])
        kinds: dict[str, type[Service]] = {"agents": Agent, "ssh": SshServer, "lab": LabServer}
        titles = [kind.title for name, kind in kinds.items() if options[name]]
        left = [*ADDRESSES, *(f"{name}'s {title}" for name in ADDRESSES for title in titles)]
        progress(f"starting {' and '.join(left)}")
        while left:
            said = supervisor.next(deadline, f"the guest {left[0]}")
            ready = f"{said['guest']}'s {said['serves']}" if "serves" in said else said["guest"]
            if said.get("state", "ready") != "ready":
                raise TestbedError(
                    f"the guest {said['guest']} did not start ({said['state']}); the end of its "
                    f"console:\n{said['console'][-2000:]}"
                )
            left.remove(ready)
            progress(f"{ready} is ready")
    except BaseException:
        supervisor.close()
        raise
    if detach:
        supervisor.detach()
    return Testbed(folder, None if detach else supervisor)


def running() -> Testbed | None:
    """Return the testbed that `dgkit testbed up` has started, or None."""
    bed = Testbed(runtime_dir() / _NAME, None)
    try:
        bed.status()
    except TestbedError:
        return None
    return bed


def _checked(guest: str) -> str:
    if guest not in ADDRESSES:
        raise ValueError(f"guest must be one of {', '.join(ADDRESSES)}, not {guest!r}")
    return guest


def _script(guest: str, command: Sequence[str | Path] | str) -> str:
    """Return the shell script by which a guest runs a command."""
    line = command if isinstance(command, str) else f"exec {shlex.join(map(str, command))}"
    script = f"{shell_environment(guest, str(Path.cwd()))}{line}\n"
    if len(script.encode()) > _SCRIPT:
        raise ValueError(f"a command has at most {_SCRIPT} bytes, not {len(script.encode())}")
    return script
