# SPDX-License-Identifier: Apache-2.0
"""Python programs that tests start, exchange lines with, and always end."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Exports a region and answers one line to each line that it reads. Its bytes are a count modulo
# 251. argv: the size; "memfd", "bytearray" or "readonly"; the access; the provider, if not soft.
EXPORTER = """
import hashlib, sys, dgkit
size, kind, access = int(sys.argv[1]), sys.argv[2], sys.argv[3]
memory = bytearray(size) if kind == "bytearray" else dgkit.empty(
    size, readonly_export=kind == "readonly")
view = memoryview(memory) if kind == "bytearray" else memory.buffer
view[:] = (bytes(range(251)) * (size // 251 + 1))[:size]
device = dgkit.Device(*sys.argv[4:])
region = device.register(memory)
print(region.export(access).hex(), flush=True)
for line in sys.stdin:
    words = line.split()
    try:
        if words[0] == "close":
            region.close(timeout=float(words[1]))
            print("closed", flush=True)
        elif words[0] == "digest":
            print(hashlib.sha256(view).hexdigest(), flush=True)
        elif words[0] == "importers":
            print(region.importers, flush=True)
    except dgkit.DgkitError as error:
        print(type(error).__name__, error, flush=True)
view = None
device.close()
"""

# Imports the descriptor argv[1]; each line of Python that it reads it evaluates and prints.
# argv[2]: the provider, if not soft.
IMPORTER = """
import sys, dgkit
device = dgkit.Device(*sys.argv[2:])
queue = device.queue(path="worker")
remote = device.import_region(bytes.fromhex(sys.argv[1]), timeout=5)
memory = bytearray(remote.size)
local = device.register(memory)
kept = []
print(remote.method, flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
device.close()
"""


class Child:
    """A running program. `line()` returns its next line of output, `say()` sends it a line."""

    def __init__(self, program: str, *args: object, **environment: str) -> None:
        command = f"import sys; sys.path[:] = {sys.path!r}\n{program}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", command, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        self.pid = self.process.pid
        self._read = b""

    def line(self, timeout: float = 20.0) -> str:
        end = time.monotonic() + timeout
        while b"\n" not in self._read:
            left = max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            assert ready, f"no line within {timeout} s, only {self._read!r}"
            data = os.read(self.process.stdout.fileno(), 65536)
            assert data, f"it ended: {self.process.stderr.read().decode()}"
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    def say(self, text: str) -> None:
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, text: str, timeout: float = 20.0) -> str:
        self.say(text)
        return self.line(timeout)

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def end(self, timeout: float = 20.0) -> tuple[int, str]:
        """Close its input and wait for its end; return the exit code and stderr."""
        self.process.stdin.close()
        code = self.process.wait(timeout)
        return code, self.process.stderr.read().decode()


@contextmanager
def child(program: str, *args: object, **environment: str) -> Iterator[Child]:
    """Run a program, killed at the end of the block even if it was stopped by SIGSTOP."""
    it = Child(program, *args, **environment)
    try:
        yield it
    finally:
        if it.process.poll() is None:
            it.process.send_signal(signal.SIGKILL)
        it.process.wait(10)
        for stream in (it.process.stdin, it.process.stdout, it.process.stderr):
            stream.close()


def run(
    program: str, *args: object, timeout: float = 60.0, covered: bool = True, **environment: str
) -> str:
    """Run a program, which must exit with 0; return its output. Measure coverage as here."""
    environ = {**os.environ, **environment}
    if not covered:
        environ.pop("COVERAGE_PROCESS_START", None)
    command = f"import sys; sys.path[:] = {sys.path!r}\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", command, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environ,
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr}"
    return done.stdout
