# SPDX-License-Identifier: Apache-2.0
"""Answers of DOCA that no public source states, asked of a real DOCA and of softdoca.

softdoca marks them `guess` in its source. A report with a real DOCA settles each: an answer that is
the same needs no mark any longer, another one is a defect of softdoca. Each question is asked in a
process of its own, as a real DOCA may not survive it.

`python -m dgkit.doca.guesses` prints the answers of both as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from . import _library
from .codes import Code

_SECONDS = 20.0  # of one question; a process that imports dgkit takes seconds on slow cores
_KINDS = ("doca", "softdoca")
_MODULE = "dgkit.doca.guesses"  # also while it runs as a program


class Asked:
    """DOCA, and objects that the questions use. They live as long as the process."""

    def __init__(self, kind: str) -> None:
        _library.use(kind)
        self.library = _library.library()
        self.ffi = self.library.ffi
        self.callback = self.library.completion_callback

    def call(self, name: str, *args: Any) -> int:
        """Call a function that returns a doca_error_t; return it."""
        return int(self.library.function(name)(*args))

    def make(self, kind: str, name: str, *args: Any) -> Any:
        """Call a function that must succeed, and return its output."""
        out = self.ffi.new(f"{kind} *")
        self.library.call(name, *args, out)
        return out[0]

    def dma(self, tasks: int = 0) -> Any:
        """Return a DMA context of the first device that has it, connected, with `tasks` tasks."""
        count = self.ffi.new("uint32_t *")
        infos = self.ffi.new("struct doca_devinfo ***")
        self.library.call("doca_devinfo_create_list", infos, count)
        able = (
            infos[0][at] for at in range(count[0])
            if not self.call("doca_dma_cap_task_memcpy_is_supported", infos[0][at])
        )  # fmt: skip
        dev = self.make("struct doca_dev *", "doca_dev_open", next(able))
        dma = self.make("struct doca_dma *", "doca_dma_create", dev)
        if tasks:
            assert not self.set_conf(dma, tasks)
        engine = self.make("struct doca_pe *", "doca_pe_create")
        self.library.call("doca_pe_connect_ctx", engine, self.ctx(dma))
        return dma

    def ctx(self, dma: Any) -> Any:
        """Return a DMA context as a context."""
        return self.library.function("doca_dma_as_ctx")(dma)

    def set_conf(self, dma: Any, tasks: int, *, callback: bool = True) -> int:
        """Set callbacks and the number of tasks."""
        done = self.callback if callback else self.ffi.NULL
        return self.call("doca_dma_task_memcpy_set_conf", dma, done, self.callback, tasks)

    def started(self, dma: Any) -> Any:
        """Start a DMA context; return it."""
        self.library.call("doca_ctx_start", self.ctx(dma))
        return dma

    def task(self, dma: Any) -> int:
        """Allocate a task without buffers."""
        out = self.ffi.new("struct doca_dma_task_memcpy **")
        null = self.ffi.NULL
        return self.call("doca_dma_task_memcpy_alloc_init", dma, null, null, 0, out)


QUESTIONS: dict[str, Callable[[Asked], int]] = {
    "close no device": lambda ask: ask.call("doca_dev_close", ask.ffi.NULL),
    "0 DMA tasks": lambda ask: ask.set_conf(ask.dma(), 0),
    "4,294,967,295 DMA tasks": lambda ask: ask.set_conf(ask.dma(), (1 << 32) - 1),
    "DMA tasks without a callback": lambda ask: ask.set_conf(ask.dma(), 1, callback=False),
    "DMA tasks set twice": lambda ask: ask.set_conf(ask.dma(1), 2),
    "DMA tasks set after the start": lambda ask: ask.set_conf(ask.started(ask.dma(1)), 2),
    "start DMA without tasks": lambda ask: ask.call("doca_ctx_start", ask.ctx(ask.dma())),
    "a DMA task before the start": lambda ask: ask.task(ask.dma(1)),
    "a DMA task without buffers": lambda ask: ask.task(ask.started(ask.dma(1))),
    "destroy a started DMA": lambda ask: ask.call("doca_dma_destroy", ask.started(ask.dma(1))),
}


def answer(kind: str, question: str) -> str:
    """Return the name of DOCA's answer, asked in another process, or why there is none."""
    command = [sys.executable, "-m", _MODULE, kind, question]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "no answer"
    if ran.returncode < 0:
        return f"ended by signal {-ran.returncode}"
    return ran.stdout.strip() or "not asked"


def answers() -> dict[str, dict[str, str]]:
    """Return the answers by question and kind; {} for a kind that is not installed."""
    usable = [kind for kind in _KINDS if answer(kind, next(iter(QUESTIONS))) != "not asked"]
    return {text: {kind: answer(kind, text) for kind in usable} for text in QUESTIONS}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        code = QUESTIONS[sys.argv[2]](Asked(sys.argv[1]))
        print(next((each.name for each in Code if each == code), code), flush=True)  # noqa: T201 (a program)
        os._exit(0)  # its objects are in states in which they may not be released
    print(json.dumps(answers()))  # noqa: T201
