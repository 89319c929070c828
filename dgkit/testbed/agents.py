# SPDX-License-Identifier: Apache-2.0
"""Agents in the guests: `dgkit serve`."""

from __future__ import annotations

import re
import shlex
from typing import Any

from .guest_service import Service, shell_environment

_HEARTBEAT_S = 20  # an emulated guest may not run for seconds
_LISTENS = re.compile(r"^tcp://\S+\?(key=[0-9a-f]{64}\S*)$", re.MULTILINE)
# The keys are generated in the guest at each boot, so that no image contains a secret.
_PROGRAM = """\
import sys
from dgkit.cli import main
from dgkit.testbed import guest_pair
from dgkit.wire import keys
client, port, heartbeat, *options = sys.argv[1:]
keys.make()
keys.allow(client, "testbed")
guest_pair.announce(int(port), float(heartbeat))
sys.exit(main(["serve", *options]))
"""


class Agent(Service):
    """Agent of a guest; its address is an argument of dgkit.connect().

    Args:
        client: Public key of the client that the agent allows.
        path: Module search path with dgkit, for the host guest, which uses this Python.
        service: Arguments of Service.
    """

    key = "agent"
    title = "agent"
    ports = 2  # one for requests, one for telemetry

    def __init__(self, client: str, path: str, *service: Any) -> None:
        super().__init__(*service)
        self._client, self._path = client, path

    def script(self, ports: list[int]) -> str:
        """Return the shell script that starts the agent."""
        listen, telemetry = ports
        name = self.guest.name
        path = f"export PYTHONPATH={shlex.quote(self._path)}\n" if name == "host" else ""
        serve = f"--address tcp://0.0.0.0:{listen} --telemetry-port {telemetry} --provider verbs "
        serve += f"--heartbeat {_HEARTBEAT_S} --role {name}"
        program = f"{shlex.quote(_PROGRAM)} {self._client} {listen} {_HEARTBEAT_S} {serve}"
        return f"{shell_environment(name, '/run')}{path}exec {self.python} -c {program}\n"

    def listens(self, ports: list[int], printed: str) -> str:
        """Return the address, with the agent's public key and heartbeat interval."""
        found = _LISTENS.search(printed)
        return f"tcp://127.0.0.1:{ports[0]}?{found[1]}" if found else ""
