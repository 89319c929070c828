# SPDX-License-Identifier: Apache-2.0
"""SSH connection to the Arm side: one login, by the system's `ssh`, for all commands of a run."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ..child import bound
from ..errors import BluefieldError
from ..runtime_folder import runtime_folder
from ..unique import Closable

FOLDER = ".dgkit-bluefield"  # in the home of the user there; `down` removes it
_READY, _BUSY = "dgkit: connected", "dgkit: busy"
# The home folder itself is locked, so that nothing is created before the user has agreed.
_HOLD = f"""\
exec 9<"$HOME"
if command -v flock >/dev/null && ! flock -n 9; then echo '{_BUSY}'; exit 1; fi
echo '{_READY}'
cat >/dev/null
"""
# A step that was interrupted here may still run there: the next one waits for it.
_STEP = f"""\
umask 077; export LC_ALL=C.UTF-8
mkdir -p "$HOME/{FOLDER}/run" && cd "$HOME/{FOLDER}" || exit
exec 8<.
if command -v flock >/dev/null && ! flock -w 120 8; then
    echo 'an earlier step still runs there' >&2; exit 75
fi
export XDG_CONFIG_HOME="$PWD/config" XDG_RUNTIME_DIR="$PWD/run" XDG_CACHE_HOME="$PWD/cache"
dgkit() {{ venv/bin/python -m dgkit.cli "$@"; }}
"""
_VERBOSE = re.compile(r"\s*$|Authenticated to |Transferred: |Bytes per second: ")
_LINK_LOST = 255  # ssh(1): its own errors
# What ssh prints, and what it means for the user; {arm} is the destination.
_CAUSES = (
    (r"REMOTE HOST IDENTIFICATION HAS CHANGED", ("its host key is not the one that is known. After "
     "a new image that is expected: compare the fingerprint, then `ssh-keygen -R {host}`")),
    (r"Host key verification failed", ("its host key is not known and was not accepted: "
     "`{ssh} {arm}` shows the fingerprint; compare it, accept it, and go on")),
    (r"(?i)password has expired|password change required", ("the password has expired, as on a new "
     "image: log in once with `{ssh} {arm}`, change it, and go on")),
    (r"Permission denied|Too many authentication failures", ("it accepts neither the password nor "
     "a key: check the user's name, or install a key with `ssh-copy-id {arm}`")),
    (r"Could not resolve hostname", "the name is not known: use --arm USER@ADDRESS"),
    (r"Connection refused", ("no SSH server listens there: does the card still boot, and is the "
     "address the Arm side's?")),
    (r"timed out|No route to host|Network is unreachable|Connection closed|Connection reset",
     "it does not answer: `ping {host}`; over rshim, check the address of tmfifo_net0"),
    (r"(?i)no such file.*identity|Bad configuration option|Bad owner or permissions",
     "the configuration of ssh is wrong"),
)  # fmt: skip


class Arm(Closable):
    """Connection to the Arm side of a BlueField. Use it in a `with` statement.

    ssh itself asks for a password, and whether an unknown host key is right, on the terminal.

    Args:
        destination: USER@ADDRESS, or whatever else ssh takes.
        ssh: The command, with its own options.

    Raises:
        BluefieldError: It cannot be reached, or somebody else is at work there.
    """

    def __init__(self, destination: str, ssh: str = "ssh") -> None:
        if destination.startswith("-") or not destination.strip():
            raise ValueError(f"--arm {destination!r}: it must be USER@ADDRESS")
        self.destination, self.ssh, self.step = destination, ssh, "connect"
        with contextlib.ExitStack() as undo:
            folder = undo.enter_context(runtime_folder("bluefield-"))
            self._log, socket = folder / "log", str(folder / "ssh")
            command = shlex.split(ssh)
            self._ssh = [*command, "-S", socket, "-o", "ControlMaster=no", "-o", "LogLevel=ERROR"]
            # never a second login; with -J, which ProxyCommand does not undo, none with a password
            self._ssh += ["-o", "ProxyCommand=false", "-o", "BatchMode=yes"]
            options = ["ServerAliveInterval=10", "ServerAliveCountMax=3", "ConnectTimeout=20"]
            argv = [*command, "-M", "-S", socket, "-E", str(self._log), "-o", "ControlPersist=no"]
            argv += ["-o", "LogLevel=VERBOSE"]  # how it logged in
            argv += [word for option in options for word in ("-o", option)]
            with self._log.open("ab") as log:
                self._master = self._start([*argv, destination, _shell(_HOLD)], stderr=log)
            undo.callback(self._end)
            self._wait_until_ready()
            self._undo = undo.pop_all()

    def _start(self, argv: list[str], *, stderr: IO[bytes] | int) -> subprocess.Popen[bytes]:
        try:
            pipe = subprocess.PIPE
            return subprocess.Popen(bound(argv), stdin=pipe, stdout=pipe, stderr=stderr)
        except FileNotFoundError:
            text = (
                f"{argv[0]} was not found: install OpenSSH's client (`apt install openssh-client`)"
            )
            raise BluefieldError(text) from None

    def _wait_until_ready(self) -> None:
        assert self._master.stdout is not None
        for line in self._master.stdout:
            if line.decode("utf-8", "replace").strip() == _READY:
                return
            if line.decode("utf-8", "replace").strip() == _BUSY:
                raise BluefieldError(
                    f"somebody else sets up dgkit at {self.destination} now: wait until that has "
                    "ended, then run this again (`dgkit bluefield status` shows what is there)"
                )
        self._master.wait()
        raise BluefieldError(f"{self.destination} cannot be reached: {self._why()}")

    def _why(self) -> str:
        text = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
        host = self.destination.rpartition("@")[2]
        lines = [line.strip() for line in text.splitlines() if not _VERBOSE.match(line)]
        last = lines[-1].rstrip(".") if lines else "ssh ended without a message"
        for pattern, why in _CAUSES:
            if re.search(pattern, text):
                return f"{why.format(ssh=self.ssh, arm=self.destination, host=host)} (ssh: {last})"
        return last

    @property
    def by_password(self) -> bool:
        """True if the login took a password."""
        text = self._log.read_text("utf-8", "replace")
        return (
            re.search(r'Authenticated to .* using "(password|keyboard-interactive)', text)
            is not None
        )

    def read(self, script: str, *, timeout: float = 300.0) -> str:
        """Run a shell script outside dgkit's folder there; return its output.

        A lost link ends it after 30 s (ServerAliveInterval); busy Arm cores may take minutes.
        """
        return self._run(script, b"", timeout)

    def run(self, script: str, *, data: bytes = b"", timeout: float = 900.0) -> str:
        """Run a shell script in dgkit's folder there, with `dgkit` and dgkit's own environment.

        Raises:
            BluefieldError: It failed, or the connection was lost.
        """
        return self._run(_STEP + script, data, timeout)

    def _run(self, script: str, data: bytes, timeout: float) -> str:
        argv = [*self._ssh, self.destination, _shell(script)]
        with self._start(argv, stderr=subprocess.PIPE) as process:
            try:
                out, err = process.communicate(data, timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise BluefieldError(
                    f"{self.destination} did not end the step {self.step!r} within {timeout:g} s: "
                    "run this again, it goes on from there"
                ) from None
            except BaseException:
                process.kill()
                raise
        said = err.decode("utf-8", "replace").strip()
        if process.returncode == _LINK_LOST:
            raise BluefieldError(
                f"the connection to {self.destination} was lost in the step {self.step!r}: check "
                "the link, then run this again; it goes on from there"
            )
        if process.returncode:
            raise BluefieldError(
                _failure_text(self.destination, self.step, said, process.returncode)
            )
        return out.decode("utf-8", "replace")

    def send(self, files: Sequence[Path], folder: str) -> None:
        """Copy files into a folder below dgkit's own there.

        One archive over the connection: servers without SFTP take it, too, and one round trip is
        enough.

        Raises:
            BluefieldError: The disk there is full, or the connection was lost.
        """
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as archive:
            for file in files:
                archive.add(file, file.name, recursive=False)
        self.run(f"mkdir -p {folder} && tar -xmf - -C {folder}", data=content.getvalue())

    def _end(self) -> None:
        self._master.terminate()
        with self._master:  # waits, and closes the pipes
            pass

    def close(self) -> None:
        """End the connection. Idempotent."""
        self._undo.close()


def _shell(script: str) -> str:
    """Return the words with which any login shell there has sh run a script."""
    return f"exec sh -c {shlex.quote(script)}"


def _failure_text(arm: str, step: str, said: str, code: int) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    text = f"the step {step!r} failed at {arm}: {lines[-1].strip() if lines else f'exit {code}'}"
    if re.search(r"No space left on device|Disk quota exceeded", said):
        text = f"the disk at {arm} is full (step {step!r}): free some, then run this again"
    elif re.search(r"Read-only file system|Permission denied", said):
        text += ": dgkit needs a home folder there that its user can write to"
    return text
