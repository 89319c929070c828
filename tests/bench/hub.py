# SPDX-License-Identifier: Apache-2.0
"""Measures a class on JupyterHub, by the configuration that `dgkit teach hub` prints.

    python tests/bench/hub.py start FOLDER --students 20    the hub, and a notebook of each student
    python tests/bench/hub.py limits FOLDER                 one student exceeds each limit
    python tests/bench/hub.py measure FOLDER --json results/NAME.json
    python tests/bench/hub.py stop FOLDER

It needs an environment with dgkit[teach], jupyterhub and its spawner, and the program
configurable-http-proxy. With --spawner systemd (as root, where systemd runs) each student has an
account student1, student2, ... of the machine; with --spawner local nothing is limited. Only the
log-in, the ports and a token for this program are added to the configuration. Nothing here passes
or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect
from traitlets.config.loader import PyFileConfigLoader

sys.path.insert(0, str(Path(__file__).parent.parent))  # tests, for support

from support import json_lines

import dgkit
from dgkit.report import Machine

ADDED = """
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie_secret"
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.services = [{{"name": "bench", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [{{
    "name": "bench", "services": ["bench"],
    "scopes": ["admin:users", "admin:servers", "access:servers", "list:users"],
}}]
"""
LOCAL = """
c.JupyterHub.spawner_class = "simple"
c.Spawner.notebook_dir = ""
c.Spawner.args = ["--allow-root"]
"""
DASHBOARD = "import dgkit\nd = dgkit.dashboard()\nd"
# The solution of lab 1 and the visible test of its longest part.
LAB = """
import json, time
from pathlib import Path
from dgkit.teach import course, find_bytes, student_notebook
(path,) = (course.labs_folder() / "lab1").glob("*.ipynb")
for _, source in student_notebook.solutions(student_notebook.load(path)[1]):
    exec(source)
"""
CELL = """
t = time.perf_counter()
find_bytes.test_walk(walk, b"DGKITLST")
print(time.perf_counter() - t)
"""
WRITE = """
r = d.session.empty(1 << 20)
t = time.perf_counter()
for _ in range(20):
    d.session.write(r, bytes(1 << 20))
print((time.perf_counter() - t) / 20)
r.close()
"""
EXCESSES = {
    "memory": """
try:
    print(len(bytearray(b'x') * {memory}))
except MemoryError as error:
    print(repr(error))
""",
    "processes": """
import os, signal
pids = []
try:
    while len(pids) < {processes}:
        pid = os.fork()
        if not pid:
            signal.pause()
        pids.append(pid)
    print('all were started')
except OSError as error:
    print(len(pids), error)
for pid in pids:
    os.kill(pid, 9), os.waitpid(pid, 0)
""",
    "sockets": """
import socket
held = []
try:
    while len(held) < {sockets}:
        held.append(socket.socket())
    print('all were opened')
except OSError as error:
    print(len(held), error)
[each.close() for each in held]
""",
    "CPU": """
import multiprocessing, time
def spin(end):
    start = time.process_time()
    while time.monotonic() < end:
        pass
    return time.process_time() - start
with multiprocessing.get_context("fork").Pool(2) as pool:
    used = pool.map(spin, [time.monotonic() + 4] * 2)
print(f"{{sum(used) / 4:.2f}} CPUs")
""",
}


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Hub:
    """A running hub, by the file that `start` wrote."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "class.json"
        self.state: dict[str, Any] = json.loads(self.file.read_text())
        self.url = f"http://127.0.0.1:{self.state['port']}"
        self.headers = {"Authorization": f"token {self.state['token']}"}

    def ask(self, path: str, method: str = "GET", data: object = None) -> Any:
        """Ask a REST API; the answer, or None for an empty one."""
        body = None if data is None and method == "GET" else json.dumps(data or {}).encode()
        request = urllib.request.Request(self.url + path, body, self.headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    async def execute(self, student: str, code: str, timeout: float = 120) -> str:
        """Run code in a student's notebook; what it printed."""
        kernel = self.state["kernels"][student]
        at = f"{self.url.replace('http', 'ws')}/user/{student}/api/kernels/{kernel}/channels"
        socket_ = await websocket_connect(HTTPRequest(at, headers=self.headers))
        message = {
            "header": {
                "msg_id": uuid.uuid4().hex, "username": "", "session": uuid.uuid4().hex,
                "msg_type": "execute_request", "version": "5.3", "date": "",
            },
            "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": [],
            "content": {"code": code, "silent": False, "stop_on_error": True},
        }  # fmt: skip
        number = message["header"]["msg_id"]
        await socket_.write_message(json.dumps(message))
        printed = []
        try:
            while True:
                text = await asyncio.wait_for(socket_.read_message(), timeout)
                if text is None:
                    return "".join(printed) + "the connection was closed"
                if isinstance(text, bytes):
                    continue
                got = json.loads(text)
                kind, content = got["msg_type"], got["content"]
                if kind == "status" and content["execution_state"] in ("restarting", "dead"):
                    return "".join(printed) + "the kernel was killed"
                if got["parent_header"].get("msg_id") != number:
                    continue
                if kind == "stream":
                    printed.append(content["text"])
                elif kind == "error":
                    printed.append(f"{content['ename']}: {content['evalue']}")
                elif kind == "status" and content["execution_state"] == "idle":
                    return "".join(printed)
        finally:
            socket_.close()


def start(options: argparse.Namespace) -> None:
    """Start the hub, servers, notebooks with a dashboard each; write class.json."""
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True)
    words = ["teach", "hub", "--students", str(options.students), *options.limits.split()]
    printed = subprocess.run(
        [sys.executable, "-m", "dgkit", *words], capture_output=True, text=True, check=True
    ).stdout
    state = {"port": free_port(), "token": secrets.token_hex(16), "kernels": {}, "students": []}
    ports = {"hub_port": free_port(), "proxy_port": free_port(), "folder": folder}
    text = printed + ADDED.format(**state, **ports) + (LOCAL if options.spawner == "local" else "")
    (folder / "jupyterhub_config.py").write_text(text)
    state |= {"spawner": options.spawner, "command": " ".join(["dgkit", *words])}
    with (folder / "hub.log").open("wb") as log:
        programs = Path(sys.executable).parent
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        process = subprocess.Popen(
            [programs / "jupyterhub", "-f", "jupyterhub_config.py"],
            cwd=folder, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "PATH": path},
        )  # fmt: skip
    state["pid"] = process.pid
    (folder / "class.json").write_text(json.dumps(state))
    hub = Hub(folder)
    wait(lambda: hub.ask("/hub/api/")["version"], 60)
    begun = time.monotonic()
    for number in range(1, options.students + 1):
        student = f"student{number}"
        hub.ask(f"/hub/api/users/{student}", "POST")
        hub.ask(f"/hub/api/users/{student}/server", "POST")
        wait(lambda name=student: hub.ask(f"/hub/api/users/{name}")["servers"][""]["ready"], 180)
        kernel = wait(lambda name=student: hub.ask(f"/user/{name}/api/kernels", "POST"), 60)
        hub.state["kernels"][student] = kernel["id"]
        hub.state["students"].append(student)
        told = asyncio.run(hub.execute(student, DASHBOARD)) + asyncio.run(hub.execute(student, LAB))
        print(student, f"{time.monotonic() - begun:.1f} s", told, flush=True)
        hub.file.write_text(json.dumps(hub.state))


def wait(look: Any, timeout: float) -> Any:
    """Wait until a function returns something true; errors of HTTP mean not yet."""
    end = time.monotonic() + timeout
    while True:
        try:
            if found := look():
                return found
        except (urllib.error.URLError, OSError, KeyError):
            pass
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout} s")
        time.sleep(0.2)


def processes(hub: Hub) -> dict[str, list[psutil.Process]]:
    """Return the processes of each student, and as "hub" those of the hub with its proxy."""
    main = psutil.Process(hub.state["pid"])
    found = {"hub": [main]} | {name: [] for name in hub.state["students"]}
    for process in psutil.process_iter():
        try:
            name = process.environ().get("JUPYTERHUB_USER", "")
            if process.ppid() == main.pid and "http-proxy" in " ".join(process.cmdline()):
                name = "hub"
        except (psutil.Error, OSError):
            continue
        if name in found:
            found[name].append(process)
    return found


def memory(group: list[psutil.Process]) -> dict[str, float]:
    """Return the proportional set size of processes, in MiB, by kind."""
    found: dict[str, float] = {}
    for process in group:
        words = " ".join(process.cmdline())
        kind = "kernel" if "ipykernel" in words else "software DPU"
        kind = "server" if "singleuser" in words else kind
        found[kind] = round(found.get(kind, 0) + process.memory_full_info().pss / 2**20, 1)
    return found


def cpu_s(groups: list[list[psutil.Process]]) -> float:
    """Return the CPU time of processes so far, in seconds."""
    times = [process.cpu_times() for group in groups for process in group]
    return sum(each.user + each.system for each in times)


def cpus(groups: list[list[psutil.Process]], seconds: float) -> float:
    """Return how many CPUs processes use, for some seconds."""
    before = cpu_s(groups)
    time.sleep(seconds)
    return (cpu_s(groups) - before) / seconds


async def at_once(hub: Hub, code: str) -> list[float]:
    """Return what all students' notebooks print, run at the same time."""
    told = await asyncio.gather(*(hub.execute(student, code) for student in hub.state["students"]))
    return [float(each) for each in told]


def measure_cells(hub: Hub, students: list[list[psutil.Process]]) -> dict[str, Any]:
    """Measure cells in one notebook, the others idle, and in all at once."""
    figures = {}
    for name, code in (("lab 1's longest visible test", CELL), ("write of 1 MiB by DMA", WRITE)):
        alone, begun = [], cpu_s(students)
        for _ in range(5):
            alone.append(float(asyncio.run(hub.execute(hub.state["students"][0], code))))
        used = (cpu_s(students) - begun) / 5
        together = [each for _ in range(3) for each in asyncio.run(at_once(hub, code))]
        figures[f"{name}, ms"] = {
            "CPU time, with the message's": round(1e3 * used, 1),
            "alone, median of 5": round(1e3 * statistics.median(alone), 2),
            "all at once, median of 3 rounds": round(1e3 * statistics.median(together), 2),
            "all at once, slowest": round(1e3 * max(together), 2),
        }
    return figures


def measure(options: argparse.Namespace) -> None:
    """Measure memory, the idle machine, a cell alone and all cells at once."""
    hub = Hub(options.folder)
    first, *_ = hub.state["students"]
    groups = processes(hub)
    students = [groups[name] for name in hub.state["students"]]
    totals = [sum(memory(group).values()) for group in students]
    figures: dict[str, Any] = {
        "memory of a student, MiB": {
            "median": round(statistics.median(totals), 1),
            "most": round(max(totals), 1),
            "parts of the first": memory(groups[first]),
        },
        "memory of the hub and its proxy, MiB": round(sum(memory(groups["hub"]).values()), 1),
        "CPUs of all students, idle": round(cpus(students, options.seconds), 3),
        "CPUs of the hub and its proxy, idle": round(cpus([groups["hub"]], 5), 3),
    }
    if not options.idle_only:
        figures |= measure_cells(hub, students)
    made = {
        "machine": asdict(Machine.here(cpus=os.cpu_count() or 1)),
        "python": sys.version,
        "dgkit": dgkit.__version__,
        "jupyterhub": version("jupyterhub"),
        "provider": "soft (software DPU)",
        "command": " ".join(["python", *(Path(word).name for word in sys.argv)]),
        "load average of a minute before": os.getloadavg()[0],
        "students": len(hub.state["students"]),
        "spawner": hub.state["spawner"],
        "configuration": hub.state["command"],
        "figures": figures,
    }
    print(json_lines.dumps(made))
    if options.json:
        json_lines.write(options.json, made)


def limits(options: argparse.Namespace) -> None:
    """Exceed each limit as the last student; print what happened."""
    hub = Hub(options.folder)
    config = PyFileConfigLoader("jupyterhub_config.py", str(options.folder)).load_config()
    numbers = {"memory": config.Spawner.mem_limit}
    properties = config.SystemdSpawner.unit_extra_properties
    numbers |= {"processes": properties["TasksMax"], "sockets": properties["LimitNOFILE"]}
    student = hub.state["students"][-1]
    for what, code in EXCESSES.items():
        told = asyncio.run(hub.execute(student, code.format(**numbers), 60))
        print(f"{what}: {told.strip()}", flush=True)
        alive = hub.ask(f"/hub/api/users/{student}")["servers"][""]["ready"]
        print(f"  the server {'runs' if alive else 'has ended'}", flush=True)
    for code in (DASHBOARD, LAB):  # the kernel may be another one
        asyncio.run(hub.execute(student, code))


def stop(options: argparse.Namespace) -> None:
    """End all servers and the hub; keep the folder's logs."""
    hub = Hub(options.folder)
    for student in hub.state["students"]:
        hub.ask(f"/hub/api/users/{student}/server", "DELETE")
    wait(lambda: not any(each["servers"] for each in hub.ask("/hub/api/users")), 120)
    os.kill(hub.state["pid"], signal.SIGTERM)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["start", "limits", "measure", "stop"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--students", type=int, default=20)
    parser.add_argument("--spawner", choices=["local", "systemd"], default="systemd")
    parser.add_argument("--limits", default="", help="options of `dgkit teach hub`, in one word")
    parser.add_argument("--seconds", type=float, default=20, help="how long to look at idle CPUs")
    parser.add_argument("--idle-only", action="store_true", help="no cells: on a busy machine")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.what == "start" and not shutil.which("configurable-http-proxy"):
        sys.exit("configurable-http-proxy is missing: npm install -g configurable-http-proxy")
    {"start": start, "limits": limits, "measure": measure, "stop": stop}[options.what](options)


if __name__ == "__main__":
    main()
