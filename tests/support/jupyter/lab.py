# SPDX-License-Identifier: Apache-2.0
"""A JupyterLab for tests: its own folders, a token, a free port, nothing from outside."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from support.processes import waiting

EXTENSION = "dgkit.jupyter.tcp_nodelay"
# An environment that has Voila, Notebook 7, marimo and Panel besides all of this one: tests/run
# keeps it apart, since they bring extensions of JupyterLab.
FRONT_ENDS = os.environ.get("DGKIT_FRONT_ENDS", "")


def jupyter_environment(home: Path) -> dict[str, str]:
    """Return this process's environment, with Jupyter's folders in `home`."""
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "MPLCONFIGDIR": "matplotlib",
    }
    return {**os.environ, **{name: str(home / at) for name, at in folders.items()}}


def has_front_end(module: str) -> bool:
    """Return whether Voila, Notebook 7, marimo or Panel is installed."""
    return bool(FRONT_ENDS) or find_spec(module) is not None


def front_ends_environment(home: Path) -> dict[str, str]:
    """Return the same, so that this Python finds the other front ends, and they their files."""
    environment = jupyter_environment(home)
    if FRONT_ENDS:
        (site,) = Path(FRONT_ENDS).glob("lib/python3*/site-packages")
        paths = [environment.get("PYTHONPATH", ""), str(site)]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        environment["JUPYTER_PATH"] = str(Path(FRONT_ENDS) / "share/jupyter")
        environment["JUPYTER_CONFIG_PATH"] = str(Path(FRONT_ENDS) / "etc/jupyter")
    return environment


class Lab:
    """A running server. `root` is the folder of its notebooks, `log` its output.

    With `front_ends` it also has Notebook 7. `policy` is the Content-Security-Policy of its pages.
    """

    def __init__(self, folder: Path, *, front_ends: bool = False, policy: str = "") -> None:
        self._policy = policy
        self.root, self.log = folder / "notebooks", folder / "lab.log"
        self.root.mkdir(parents=True)
        self.token = secrets.token_hex(8)
        self._home = folder / "home"
        self._ends = ThreadPoolExecutor(1)
        self._quiet_news()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self._command(),
                cwd=self.root,
                env=(front_ends_environment if front_ends else jupyter_environment)(self._home),
                stdout=log,
                stderr=log,
            )
        self.url = waiting.until(self._listening, "JupyterLab listens", timeout=60)

    def _quiet_news(self) -> None:
        """Disable update checks and the question about news: both would use the network."""
        settings = self._home / "settings/@jupyterlab/apputils-extension"
        settings.mkdir(parents=True)
        news = {"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True}
        (settings / "notification.jupyterlab-settings").write_text(json.dumps(news))

    def _command(self) -> list[str]:
        options = {
            "ServerApp.ip": "127.0.0.1",
            "ServerApp.port": 0,
            "ServerApp.open_browser": False,
            "ServerApp.allow_root": os.geteuid() == 0,
            "ServerApp.root_dir": self.root,
            "IdentityProvider.token": self.token,
            "LabApp.expose_app_in_browser": True,
            "JupyterNotebookApp.expose_app_in_browser": True,  # Notebook 7, of the same server
            "LabApp.extension_manager": "readonly",
        }
        if self._policy:
            headers = {"Content-Security-Policy": self._policy}
            options["ServerApp.tornado_settings"] = {"headers": headers}
        if find_spec("dgkit") and (found := find_spec(EXTENSION)):  # also where it is not installed
            options["ServerApp.jpserver_extensions"] = f"{EXTENSION}=True"
            extensions = Path(str(found.origin)).parent / "labextensions"
            options["LabApp.extra_labextensions_path"] = extensions
        words = [f"--{name}={value}" for name, value in options.items()]
        return [sys.executable, "-m", "jupyterlab", *words]

    def _listening(self) -> str:
        assert self.process.poll() is None, self.log.read_text()
        for file in (self._home / "runtime").glob("jpserver-*.json"):
            try:
                url: str = json.loads(file.read_text())["url"]
                self.url = url
                self.get("api/status")
            except (OSError, ValueError):
                continue
            return url
        return ""

    def get(self, path: str, method: str = "GET") -> Any:
        """Send a request to the server's REST API."""
        asked = urllib.request.Request(
            self.url + path, method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(asked, timeout=20) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def end_kernels(self, paths: Collection[str]) -> None:
        """Shut down the kernels of these notebooks, which outlive the pages that started them.

        They end in the background, which takes a second.
        """
        for session in self.get("api/sessions"):
            if session["path"] in paths:
                self._ends.submit(self.get, f"api/sessions/{session['id']}", "DELETE")

    def close(self) -> None:
        """End the kernels and the server."""
        try:
            self._ends.shutdown()  # a session that is being deleted is still listed
            for session in self.get("api/sessions"):
                self.get(f"api/sessions/{session['id']}", "DELETE")
        finally:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextmanager
def lab(folder: Path, *, front_ends: bool = False, policy: str = "") -> Iterator[Lab]:
    """Run a server in `folder` until the end of the block."""
    made = Lab(folder, front_ends=front_ends, policy=policy)
    try:
        yield made
    finally:
        made.close()
