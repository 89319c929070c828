# SPDX-License-Identifier: Apache-2.0
"""Hosts of anywidget that are not Jupyter, each with one page: a dashboard."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from support.jupyter.lab import front_ends_environment
from support.jupyter.voila import free_port
from support.processes import waiting

MARIMO = """import marimo

app = marimo.App(width="full")


@app.cell
def _():
    import dgkit

    dgkit.dashboard()
    return
"""
PANEL = """import dgkit
import panel

panel.extension("ipywidgets")
panel.pane.IPyWidget(dgkit.dashboard(), width=1300).servable()
"""
PLUGIN = ["--plugins", "dgkit.jupyter.panel_routes"]
_HOSTS = {
    "marimo": (MARIMO, ["run", "--headless", "--no-token", "--host=127.0.0.1"], ""),
    "panel": (PANEL, ["serve", "--address=127.0.0.1", *PLUGIN], "page"),
}


@contextmanager
def served(host: str, folder: Path) -> Iterator[str]:
    """Yield the address of a page of `marimo` or `panel` that shows a dashboard."""
    source, arguments, path = _HOSTS[host]
    script, log = folder / "page.py", folder / f"{host}.log"
    script.write_text(source)
    port = free_port()
    command = [sys.executable, "-m", host, *arguments, f"--port={port}", str(script)]
    environment = front_ends_environment(folder / "home")
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
    address = f"http://127.0.0.1:{port}/"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            return bool(urlopen(address, timeout=5).status == 200)
        except OSError:
            return False

    try:
        waiting.until(answers, f"{host} listens", timeout=90)
        yield address + path
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
