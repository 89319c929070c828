# SPDX-License-Identifier: Apache-2.0
"""JupyterLab in the guests, each with a new token."""

from __future__ import annotations

import secrets
import shlex
from typing import Any

from .guest import MANAGEMENT, NOTEBOOKS
from .guest_service import Service, sees_edits, shell_environment

_HOME, _ROOT = "/run/lab", f"/run/{NOTEBOOKS}"
_SERVES = "JupyterLab serves"
# Its log goes to standard error.
_PROGRAM = f"""\
import sys
from jupyterlab.labapp import LabApp
server = LabApp.initialize_server(argv=sys.argv[1:])
server.io_loop.add_callback(print, {_SERVES!r}, flush=True)
server.start()
"""
# Data files of the unpacked wheels, which pip would put into Python's prefix.
_SITE = """\
export JUPYTER_PATH=/run/site/share/jupyter JUPYTER_CONFIG_PATH=/run/site/etc/jupyter
export JUPYTERLAB_DIR=/run/site/share/jupyter/lab
"""


class LabServer(Service):
    """JupyterLab of a guest; its address is its URL, with the token.

    Args:
        path: Module search path for the host guest, which uses this Python.
        notebooks: Whether there are notebooks, of which the guest's one is opened.
        service: Arguments of Service.
    """

    key = "lab"
    title = "JupyterLab"

    def __init__(self, path: str, notebooks: bool, *service: Any) -> None:
        super().__init__(*service)
        self._path, self._notebooks = path, notebooks
        self._token = secrets.token_hex(24)

    def script(self, ports: list[int]) -> str:
        """Return the shell script that starts JupyterLab; no command line contains the token."""
        name = self.guest.name
        site = f"export PYTHONPATH={shlex.quote(self._path)}\n" if name == "host" else _SITE
        options = {
            "ip": MANAGEMENT,
            "port": ports[0],
            "port_retries": 0,
            "open_browser": False,
            "allow_root": True,
            "root_dir": _ROOT,
        }
        words = " ".join(f"--ServerApp.{option}={value}" for option, value in options.items())
        return (
            f"{shell_environment(name, _HOME)}{site}"
            f"mkdir -p {_HOME} && cd {_ROOT} || exit\n"
            "[ -d /run/share ] && mkdir -p share && mount --bind /run/share share\n"
            f"export HOME={_HOME} JUPYTER_TOKEN={self._token} PYTHONUNBUFFERED=1\n"
            f"{sees_edits(name)}exec {self.python} -c {shlex.quote(_PROGRAM)} {words}\n"
        )

    def listens(self, ports: list[int], printed: str) -> str:
        """Return the URL once the server's event loop runs."""
        opened = f"/tree/{self.guest.name}.ipynb" if self._notebooks else ""
        url = f"http://127.0.0.1:{ports[0]}/lab{opened}?token={self._token}"
        return url if _SERVES in printed else ""
