"""A notebook's kernel as a process of its own, and what it says."""

import os
import sys
from contextlib import contextmanager

from jupyter_client.manager import KernelManager


class Kernel:
    """A running kernel. `client` is jupyter_client's."""

    def __init__(self, manager, client):
        self.manager, self.client = manager, client

    def run(self, code, timeout=60):
        """The reply, and all that the cell put out, as (kind, content)."""
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
        """What Tab offers behind `text`: the text with each offer in it."""
        reply = self.client.complete(text, reply=True, timeout=60)["content"]
        return [text[: reply["cursor_start"]] + match for match in reply["matches"]]


@contextmanager
def kernel(home):
    """Starts one that finds what this process finds, with folders of its own under `home`."""
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
