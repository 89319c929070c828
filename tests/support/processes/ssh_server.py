# SPDX-License-Identifier: Apache-2.0
"""An SSH server of this user on this machine: the Arm side of a BlueField, as far as SSH goes."""

import ensurepip
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

from support.processes.waiting import until

from dgkit import __version__

# Runs in place of mkdir, with which each step of `up` begins: at call number `at`, it does what the
# file `action` says.
_MKDIR = """\
#!/bin/sh
count=$(($(cat {folder}/count) + 1))
echo $count > {folder}/count
[ "$count" != "$(cat {folder}/at)" ] || . {folder}/action
exec {mkdir} "$@"
"""
# The process of sshd that serves this connection is an ancestor.
CUT = """\
pid=$PPID
until grep -q sshd /proc/$pid/comm; do
    pid=$(awk '/^PPid/ {print $2}' /proc/$pid/status)
done
kill -9 $pid
"""


class SshServer:
    """Server with a home folder of its own, in whose `bin` programs can be replaced.

    Args:
        folder: An empty folder.
        environment: Further variables of its sessions.
    """

    def __init__(self, folder: Path, **environment: str):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = port = probe.getsockname()[1]
        self.folder, self.home, self.bin = folder, folder / "arm", folder / "bin"
        for path in (self.home, self.bin):
            path.mkdir()
        for key in ("host_key", "user_key", "other_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key]
            subprocess.run(command, check=True)
        public = (folder / "host_key.pub").read_text().split()[:2]
        (folder / "known").write_text(f"[127.0.0.1]:{port} {' '.join(public)}\n")
        variables = {"HOME": str(self.home), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        variables |= environment
        options = {
            "Port": port, "ListenAddress": "127.0.0.1", "HostKey": folder / "host_key",
            "AuthorizedKeysFile": folder / "user_key.pub", "StrictModes": "no", "UsePAM": "no",
            "PasswordAuthentication": "yes", "KbdInteractiveAuthentication": "no",
            "PidFile": "none", "SetEnv": " ".join(map("=".join, variables.items())),
        }  # fmt: skip
        config = folder / "sshd_config"
        config.write_text("".join(f"{name} {value}\n" for name, value in options.items()))
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        assert sshd is not None, "apt install openssh-server"
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.process = subprocess.Popen([sshd, "-D", "-e", "-f", config], stderr=subprocess.DEVNULL)
        self.ssh = self.client()
        until(self._listens, "sshd listens")

    def _listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def client(self, key="user_key", known="known", port=None, password=False):
        """Return the command of ssh for the destination `arm`; `password`: by that alone."""
        lines = {
            "HostName": "127.0.0.1", "User": subprocess.getoutput("id -un"),
            "Port": port or self.port,
            "IdentityFile": self.folder / key, "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.folder / known,
        }  # fmt: skip
        if password:
            lines["PreferredAuthentications"] = "password"
        config = self.folder / f"config-{key}-{known}-{port}-{password}"
        entry = "".join(f"  {name} {value}\n" for name, value in lines.items())
        config.write_text(f"Host arm\n{entry}")
        return f"ssh -F {config}"

    def replace(self, program, script):
        """Put a shell script in the place of a program there."""
        path = self.bin / program
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def at_step(self, number, action):
        """Have a shell script run there when step `number`, from 1, begins."""
        for name, text in (("count", "0"), ("at", str(number)), ("action", action)):
            (self.folder / name).write_text(text)
        path = self.bin / "mkdir"
        path.write_text(_MKDIR.format(folder=self.folder, mkdir=shutil.which("mkdir")))
        path.chmod(0o755)

    def steps(self):
        """Return how many steps have begun since at_step()."""
        return int((self.folder / "count").read_text())

    def restore(self):
        """Undo replace() and at_step()."""
        for path in self.bin.iterdir():
            path.unlink()

    def close(self):
        self.process.kill()
        self.process.wait()


def stub_wheels(folder: Path) -> Path:
    """Fill a folder with pip's wheel and one of dgkit that refers to this checkout."""
    folder.mkdir()
    site = next(path for path in sys.path if path.endswith("site-packages"))
    info = f"dgkit_dpu-{__version__}.dist-info"
    files = {
        "dgkit_checkout.pth": f"import site; site.addsitedir({site!r})\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: dgkit-dpu\nVersion: {__version__}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"dgkit_dpu-{__version__}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    bundled = Path(ensurepip.__file__).parent / "_bundled"
    debian = Path("/usr/share/python-wheels")
    shutil.copy(next(path for at in (bundled, debian) for path in at.glob("pip-*.whl")), folder)
    return folder
