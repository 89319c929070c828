"""What goes where: results to stdout, progress to stderr and only if a person looks at it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["console", "patience", "print_json", "say", "step", "steps"]

Advance = Callable[[int, int], None]


def console() -> Console:
    """Stdout: with colours on a terminal, plain in a pipe."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def say(text: str) -> None:
    """A line for a person on stderr."""
    print(text, file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    print(json.dumps(value, indent=2), flush=True)


@contextmanager
def patience(text: str, after_s: float = 3.0) -> Iterator[None]:
    """Says `text` if what is inside takes longer than that: a person then knows what it waits for.

    What is inside must let other threads run, as the C core and CUDA's bindings do.
    """
    import threading

    timer = threading.Timer(after_s, say, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def steps() -> Iterator[Progress]:
    """Progress bars on stderr, gone when they are done; nothing at all unless it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
    )
    quiet = not sys.stderr.isatty()
    err = Console(stderr=True, highlight=False)
    with Progress(*columns, console=err, transient=True, disable=quiet) as progress:
        yield progress


@contextmanager
def step(progress: Progress, text: str, total: int | None = None) -> Iterator[Advance]:
    """One bar: call what it yields with (done, total)."""
    task = progress.add_task(text, total=total, note="")
    try:
        yield lambda done, total: progress.update(task, completed=done, total=total)
    finally:
        progress.remove_task(task)
