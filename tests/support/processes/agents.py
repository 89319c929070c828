# SPDX-License-Identifier: Apache-2.0
"""Agents as processes of their own, for tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from support.processes.waiting import until

_PROGRAM = """
import sys
from dgkit.agent import leave, serve
options = eval(sys.argv[1])
if not serve(ready=lambda where: print(where, flush=True), **options):
    leave(0)
"""


#: Agent over TCP that takes as many seconds as its argument says for each message of a client.
SLOW_AGENT = """
import sys, time
from dgkit.agent import serve, server
delay, hold = float(sys.argv[1]), server.Agent._queue_request
def slow(self, route, router):
    time.sleep(delay if route in self._clients else 0)
    hold(self, route, router)
server.Agent._queue_request = slow
serve("tcp://127.0.0.1:0", ready=lambda where: print(where, flush=True))
"""


def python(source: str, *args: str) -> list[str]:
    """Return a command that runs `source` with this process's sys.path, from any folder."""
    begin = f"import sys; sys.path[:] = {sys.path!r}\n"
    begin += "from support.processes import coverage_lock; coverage_lock.mend()"
    return [sys.executable, "-c", f"{begin}\n{source}", *args]


@dataclass
class Agent:
    """A running agent."""

    address: str
    process: "subprocess.Popen[str]"

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: int) -> None:
        self.process.send_signal(number)


@contextmanager
def agent(**options: Any) -> Iterator[Agent]:
    """Start an agent, wait for its address, end it with SIGTERM. Its clients share its counters."""
    options = {"shared_telemetry": True} | options
    command = python(_PROGRAM, repr(options))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Agent(process.stdout.readline().strip(), process)
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                # CPython 3.11 under coverage's tracer: while a signal is pending that came just
                # before the main thread's wait, another thread does not get past the start of a
                # function (ceval.c, RESUME in DO_TRACING). One during the wait ends that.
                process.terminate()
            until(lambda: process.poll() is not None, "the agent ends at SIGTERM", 10.0)


@contextmanager
def program(source: str, *args: str) -> Iterator["subprocess.Popen[str]"]:
    """Run Python source as a process with pipes; kill it at the end of the block."""
    command = python(source, *args)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        command, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}, **pipes
    ) as process:
        try:
            yield process
        finally:
            process.kill()
