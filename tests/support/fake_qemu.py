"""A program that takes QEMU's place: a guest that boots at once and runs commands in this system.

$FAKE_GUEST says how the guests behave: `fails`, `silent`, `ends`; by default they are ready.
"""

import base64
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
    """Write it into a folder as the two programs that the testbed starts."""
    for machine in ("x86_64", "aarch64"):
        path = folder / f"qemu-system-{machine}"
        path.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
        path.chmod(0o755)


RUNNING: dict[str, int] = {}  # mark: process group


def serve(output: socket.socket, errors: socket.socket) -> None:
    for line in output.makefile("r"):
        mark, script = line.split()
        process = subprocess.Popen(
            ["sh", "-c", base64.b64decode(script)], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
        )  # fmt: skip
        RUNNING[mark] = process.pid
        status = process.wait()
        del RUNNING[mark]
        end = f"\x1e{mark} {status if status >= 0 else 128 - status}\n".encode()
        for byte in end:  # in pieces, as a port may deliver it
            output.sendall(bytes([byte]))
        errors.sendall(end)


def main(words: list[str]) -> None:
    print("fake kernel: booting", flush=True)
    found = (re.match(r"socket,id=(.*),fd=(\d+)", word) for word in words)
    ports = {
        each[1]: socket.socket(fileno=int(each[2])) for each in found if each and each[1] != "wire"
    }
    how = os.environ.get("FAKE_GUEST")
    if how == "ends":
        sys.exit("fake kernel: panic")
    if how == "silent":
        time.sleep(1000)
    control = ports.pop("control")
    for number in range(len(ports) // 2):
        pair = ports[f"output.{number}"], ports[f"errors.{number}"]
        threading.Thread(target=serve, args=pair, daemon=True).start()
    control.sendall(b"failed: no Soft-RoCE\n" if how == "fails" else b"ready\n")
    for line in control.makefile("r"):
        word, mark = line.split()
        assert word == "kill"
        if mark in RUNNING:
            os.killpg(RUNNING[mark], signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv)
