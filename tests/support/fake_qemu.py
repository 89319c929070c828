# SPDX-License-Identifier: Apache-2.0
"""Program in QEMU's place: a guest that boots at once and runs its commands on this machine.

$FAKE_GUEST says how the guests behave: `fails`, `silent`, `ends`, or `panics`, at the first start
only; by default they are ready. The command `attack` sends this machine what it should not, and
`attack N` the N-th of ENDS as its exit status.
Agents are those of this machine, by the provider `soft`, with $FAKE_AGENT_PATH as Python's path.
"""

import base64
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path


def install(folder: Path) -> None:
    """Install it in a folder under the names of both QEMU programs that the testbed starts."""
    for machine in ("x86_64", "aarch64"):
        path = folder / f"qemu-system-{machine}"
        path.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
        path.chmod(0o755)


RUNNING: dict[str, int] = {}  # mark: process group
CONTROL: list[socket.socket] = []
ENDS = (b"9" * (64 << 20), b"x\n", b"\n", b"1\n2\n")


def attack(output: socket.socket, errors: socket.socket, mark: str, words: list[str]) -> None:
    """Say again and again that the guest is ready, fill the console, and end a command wrongly."""
    if not words:
        for _ in range(1000):
            CONTROL[0].sendall(b"ready\n")
            time.sleep(0)
        CONTROL[0].sendall(b"\x1b]0;owned\x07" * 4096)
        for _ in range(64):
            print("\x1b[2J" * (1 << 18), end="", flush=True)
    with contextlib.suppress(OSError):  # the other side may close it
        for port in (output, errors):
            port.sendall(f"\x1e{mark} ".encode() + (ENDS[int(words[0])] if words else b"0\n"))


def here(script: str) -> str:
    """Return the guest's script that starts an agent, adapted to this machine."""
    path = os.environ.get("FAKE_AGENT_PATH", "")
    run = f"{os.environ['XDG_CACHE_HOME']}/run-{os.getpid()}/"
    changes = {
        "exec python3 ": f"exec {sys.executable} ",
        "PYTHONPATH=/run/site PYTHONPYCACHEPREFIX=/run/pycache": f"PYTHONPATH={path}",
        "XDG_RUNTIME_DIR=/run ": "",
        "=/run/agent\n": f"={run}agent/\n",
        "0.0.0.0": "127.0.0.1",
        "10.0.2.15": "127.0.0.1",
        "export JUPYTERLAB_DIR=/run/site/share/jupyter/lab": "true",
        "mount --bind": "true",
        "/run/ssh/": f"{os.environ['XDG_CACHE_HOME']}/dropbear/",
        "/run/": run,
        "/proc/sys/vm/drop_caches": "/dev/null",
        "--provider verbs": "--provider soft",
    }
    # In one pass, and /run at a path's start only: a folder of this machine may have that name.
    words = "|".join(rf"(?<![\w.-]){re.escape(old)}" for old in changes)
    return re.sub(words, lambda found: changes[found[0]], script)


def has_booted() -> None:
    """Create the folders that a guest has when it boots."""
    for name in ("testbed", "exchange", "notebooks"):
        Path(os.environ["XDG_CACHE_HOME"], f"run-{os.getpid()}", name).mkdir(parents=True)


def monitor(port: socket.socket) -> None:
    """Answer as QEMU's monitor: refuse the first forwarded port, set the others."""
    stream = port.makefile("rw")
    print(json.dumps({"QMP": {}}), file=stream, flush=True)
    refused = False
    for line in stream:
        request, said = json.loads(line), {}
        if request["execute"] == "human-monitor-command":
            command = request["arguments"]["command-line"]
            assert re.match(r"hostfwd_add management tcp:127.0.0.1:(\d+)-10.0.2.15:\1$", command)
            said, refused = "" if refused else "could not set up host forwarding rule", True
        print(json.dumps({"event": "NIC_RX_FILTER_CHANGED"}), file=stream)
        print(json.dumps({"return": said}), file=stream, flush=True)


def serve(output: socket.socket, errors: socket.socket) -> None:
    for line in output.makefile("r"):
        mark, script = line.split()
        first, *words = base64.b64decode(script).decode().splitlines()[-1].split()
        if first == "attack":
            attack(output, errors, mark, words)
            continue
        command = ["setpriv", "--pdeathsig", "KILL", "sh", "-c"]
        process = subprocess.Popen(
            [*command, here(base64.b64decode(script).decode())], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
        )  # fmt: skip
        RUNNING[mark] = process.pid
        status = process.wait()
        del RUNNING[mark]
        end = f"\x1e{mark} {status if status >= 0 else 128 - status}\n".encode()
        for byte in end:  # in pieces, as a port may deliver it
            output.sendall(bytes([byte]))
        errors.sendall(end)


def end(mark: str) -> None:
    """Kill a command; its output may arrive before its start is recorded."""
    for _ in range(500):
        if mark in RUNNING:
            os.killpg(RUNNING[mark], signal.SIGKILL)
            return
        time.sleep(0.01)


def main(words: list[str]) -> None:
    print("fake kernel: booting", flush=True)
    found = (re.match(r"socket,id=(.*),fd=(\d+)", word) for word in words)
    ports = {
        each[1]: socket.socket(fileno=int(each[2])) for each in found if each and each[1] != "wire"
    }
    how = os.environ.get("FAKE_GUEST")
    if how == "ends":
        sys.exit("fake kernel: panic")
    started = Path(os.environ["XDG_CACHE_HOME"], "started")
    if how == "panics" and not started.exists():
        started.touch()
        sys.exit("Kernel panic - not syncing: IO-APIC\n---[ end Kernel panic ]---")
    if how == "silent":
        time.sleep(1000)
    control = ports.pop("control")
    CONTROL.append(control)
    if "monitor" in ports:
        threading.Thread(target=monitor, args=[ports.pop("monitor")], daemon=True).start()
    for number in range(len(ports) // 2):
        pair = ports[f"output.{number}"], ports[f"errors.{number}"]
        threading.Thread(target=serve, args=pair, daemon=True).start()
    has_booted()
    control.sendall(b"failed: no Soft-RoCE\n" if how == "fails" else b"ready\n")
    for line in control.makefile("r"):
        word, mark = line.split()
        assert word == "kill"
        threading.Thread(target=end, args=[mark], daemon=True).start()


if __name__ == "__main__":
    main(sys.argv)
