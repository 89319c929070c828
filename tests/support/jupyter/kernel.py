# SPDX-License-Identifier: Apache-2.0
"""A notebook kernel in a process of its own, and its messages."""

import os
import sys
from contextlib import contextmanager

from jupyter_client.manager import KernelManager


class Kernel:
    """A running kernel. `client` is jupyter_client's."""

    def __init__(self, manager, client):
        self.manager, self.client = manager, client

    def run(self, code, timeout=60):
        """Run code; return the reply and all outputs of the cell, as (kind, content)."""
        said = []
        reply = self.client.execute_interactive(
            code, timeout=timeout, allow_stdin=False,
            output_hook=lambda message: said.append((message["msg_type"], message["content"])),
        )  # fmt: skip
        return reply["content"], said

    def interrupt_once(self, code, seen, timeout=60):
        """As run(), with Ctrl-C after the first output that `seen` is true of."""
        said = []

        def hear(message):
            said.append((message["msg_type"], message["content"]))
            if seen(*said[-1]) and not any(seen(*before) for before in said[:-1]):
                self.manager.interrupt_kernel()

        reply = self.client.execute_interactive(
            code, timeout=timeout, allow_stdin=False, output_hook=hear
        )
        return reply["content"], said

    def complete(self, text):
        """Return the text after each completion that Tab offers behind `text`."""
        reply = self.client.complete(text, reply=True, timeout=60)["content"]
        return [text[: reply["cursor_start"]] + match for match in reply["matches"]]


@contextmanager
def kernel(home):
    """Start a kernel with this process's import path, and its own folders under `home`."""
    folders = {name: str(home / name) for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR")}
    environment = os.environ | folders | {"PYTHONPATH": os.pathsep.join(sys.path)}
    manager = KernelManager(connection_file=str(home / "kernel.json"))
    manager.start_kernel(env=environment, cwd=str(home))
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
        manager.context.destroy(linger=0)
