"""The only way to the machine: files, commands, and a few questions to the system.

A key names one look: `text /proc/version`, `run nvidia-smi -q`. A live reader looks; a recorded one
has the answers. So what a check sees can be stored, and judged elsewhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from .reading import Reading

__all__ = ["KINDS", "Reader"]

# text: a file's text. raw: its first 4,096 bytes. names: of a folder. link: a symbolic link's
# target, resolved to an absolute path. run: a command, in the C locale. ask: the system (ASKED in
# live.py says what). probe: a question that needs a library, in a process of its own (probes.py),
# `core`: whether dgkit's C core loads, or `info`: what `dgkit info` says.
KINDS = ("text", "raw", "names", "link", "run", "ask", "probe")


class Reader:
    """Never raises for what is on the machine: the Reading says what went wrong."""

    def read(self, key: str) -> Reading:
        """What a look gives. The same key gives the same Reading as long as this lives."""
        raise NotImplementedError

    def text(self, path: str) -> Reading:
        """A file's text, at most 1 MiB of it; bytes that are no UTF-8 are replaced."""
        return self.read(f"text {path}")

    def raw(self, path: str) -> Reading:
        """The first 4,096 bytes of a file."""
        return self.read(f"raw {path}")

    def names(self, path: str) -> Reading:
        """The names in a folder, sorted."""
        return self.read(f"names {path}")

    def link(self, path: str) -> Reading:
        """Where a symbolic link leads, resolved, in `text`."""
        return self.read(f"link {path}")

    def run(self, *command: str) -> Reading:
        """What a command printed, in the C locale; it has 5 s and no input."""
        return self.read(f"run {shlex.join(command)}")

    def ask(self, what: str) -> Reading:
        """What the system answers, in `data`; live.ASKED lists what may be asked."""
        return self.read(f"ask {what}")

    def probe(self, *question: str) -> Reading:
        """What a library answers, in `data`; probes.py lists what may be asked."""
        return self.read(f"probe {shlex.join(question)}")

    def together(self, keys: Sequence[str]) -> list[Reading]:
        """Several looks at once; a recorded reader has them all already."""
        return [self.read(key) for key in keys]

    def close(self) -> None:
        """Ends what it has begun on the machine; nothing for a recorded one."""
