"""systemd user unit that runs the agent."""

from __future__ import annotations

import sys

__all__ = ["unit"]

_UNIT = """\
[Unit]
Description=dgkit agent: serves this machine's memory or its DPU to notebooks
Documentation=man:systemd.unit(5)

[Service]
Type=exec
ExecStart={python} -m dgkit.cli serve{options}
Restart=on-failure
RestartSec=1
KillSignal=SIGTERM
TimeoutStopSec=5
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def unit(options: str = "") -> str:
    """Return the text of the unit; `options` are those of `dgkit serve`.

    Save it as ~/.config/systemd/user/dgkit.service, then run
    `systemctl --user enable --now dgkit`.
    """
    python = sys.executable.replace("%", "%%").replace(" ", "\\x20")
    return _UNIT.format(python=python, options=f" {options}" if options else "")
