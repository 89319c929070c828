# SPDX-License-Identifier: Apache-2.0
"""systemd user unit that runs the agent."""

from __future__ import annotations

import re
import sys

_SIMPLE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

# Modules are not imported from the working folder; before Python 3.11 that folder is /.
_SAFE_PATH = " -P" if sys.version_info >= (3, 11) else ""

_UNIT = """\
[Unit]
Description=dgkit agent: serves this machine's memory or its DPU to notebooks
Documentation=man:systemd.unit(5)

[Service]
Type=exec
WorkingDirectory=/
ExecStart={python} -m dgkit.cli serve{options}
Restart=on-failure
RestartSec=1
KillSignal=SIGTERM
TimeoutStopSec=5
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def quote(text: str) -> str:
    """Quote one word of ExecStart= (systemd.service(5), systemd.syntax(7))."""
    text = text.replace("%", "%%")
    if _SIMPLE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    escaped = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", escaped)
    return f'"{escaped}"'


def unit(options: str = "") -> str:
    """Return the text of the unit; `options` are those of `dgkit serve`, quoted.

    Save it as ~/.config/systemd/user/dgkit.service, then run
    `systemctl --user enable --now dgkit`.
    """
    python = quote(sys.executable) + _SAFE_PATH
    return _UNIT.format(python=python, options=f" {options}" if options else "")
