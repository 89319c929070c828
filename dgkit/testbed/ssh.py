# SPDX-License-Identifier: Apache-2.0
"""SSH servers in the guests: Dropbear, with keys made at each start."""

from __future__ import annotations

import re
import shlex
import subprocess
import threading
from pathlib import Path
from typing import Any

from .guest import MANAGEMENT
from .guest_service import Service, sees_edits, shell_environment
from .requirements import find

_SERVES = re.compile(r"^(ssh-\S+ \S+).*\nserves$", re.MULTILINE)
# Home of root, with the permissions that Dropbear requires. The guest's own root is read-only.
_HOME = "/run/sshd"
_ENTER = """\
[ "$SSH_ORIGINAL_COMMAND" ] && exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
[ -x /bin/bash ] && exec /bin/bash
exec /bin/sh
"""
_SCRIPT = """\
umask 077
mkdir -p {home}/.ssh && cd {home} || exit
printf %s {key} > .ssh/authorized_keys
printf %s {enter} > enter
printf 'root:x:0:0:root:{home}:/bin/sh\\n' > passwd
grep -v '^root:' /etc/passwd >> passwd
chmod 644 passwd && chmod 755 . && mount --bind {home}/passwd /etc/passwd || exit
dropbear() {{ program=$1; shift; LD_LIBRARY_PATH=/run/ssh /run/ssh/$program "$@"; }}
dropbear dropbearkey -t ed25519 -f host_key >&2 || exit
dropbear dropbearkey -y -f host_key | grep '^ssh-' || exit
dropbear dropbear -F -E -s -m -r host_key -P {home}/pid -p {address}:{port} \\
    -c 'exec /bin/sh {home}/enter' &
until grep -qi ':{hex_port} 0*:0000 0A' /proc/net/tcp; do
    kill -0 $! || exit
    sleep 0.1
done
echo serves
wait $!
"""


class SshConfig:
    """Key pair and configuration file of the SSH client, in the testbed's folder.

    Args:
        folder: The folder, which only its user can access.

    Attributes:
        public: The public key.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hosts: dict[str, tuple[int, str]] = {}  # port, public key
        self._lock = threading.Lock()
        key = folder / "ssh_key"
        command = [find("ssh-keygen") or "ssh-keygen", "-q", "-t", "ed25519", "-N", ""]
        subprocess.run(
            [*command, "-C", "dgkit testbed", "-f", key], check=True, stdin=subprocess.DEVNULL
        )
        self.public = key.with_suffix(".pub").read_text()

    def add(self, guest: str, port: int, key: str) -> str:
        """Add a guest whose server has this public key; return the command that reaches it."""
        config, known = self._folder / "ssh_config", self._folder / "known_hosts"
        with self._lock:
            self._hosts[guest] = port, key
            hosts = sorted(self._hosts.items())
            known.write_text("".join(f"dgkit-{name} {key}\n" for name, (_, key) in hosts))
            config.write_text("".join(self._entry(name, port) for name, (port, _) in hosts))
        return f"ssh -F {shlex.quote(str(config))} {guest}"

    def _entry(self, guest: str, port: int) -> str:
        """Return a guest's lines of ssh_config(5)."""
        values = {
            "HostName": "127.0.0.1",
            "Port": port,
            "User": "root",
            "HostKeyAlias": f"dgkit-{guest}",
            "IdentityFile": f'"{self._folder}/ssh_key"',
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": f'"{self._folder}/known_hosts"',
            "StrictHostKeyChecking": "yes",
        }
        return f"Host {guest}\n" + "".join(f"  {name} {value}\n" for name, value in values.items())


class SshServer(Service):
    """SSH server of a guest; its address is the command that reaches it.

    Args:
        config: Configuration of the client.
        service: Arguments of Service.
    """

    key = "ssh"
    title = "SSH server"

    def __init__(self, config: SshConfig, *service: Any) -> None:
        super().__init__(*service)
        self._config = config

    def script(self, ports: list[int]) -> str:
        """Return the shell script that starts Dropbear."""
        environment = shell_environment(self.guest.name, str(Path.cwd()))
        return environment + _SCRIPT.format(
            home=_HOME,
            key=shlex.quote(self._config.public),
            enter=shlex.quote(environment + sees_edits(self.guest.name) + _ENTER),
            address=MANAGEMENT,
            port=ports[0],
            hex_port=f"{ports[0]:04X}",
        )

    def listens(self, ports: list[int], printed: str) -> str:
        """Return the command once the server has printed its key and that it is ready."""
        found = _SERVES.search(printed)
        return self._config.add(self.guest.name, ports[0], found[1]) if found else ""
