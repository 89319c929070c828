# SPDX-License-Identifier: Apache-2.0
"""Output of commands: results on stdout; messages, and on a terminal progress bars, on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..units import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

JSON_FILE = "dgkit.json_file"  # in a context's `meta`: the FILE of `--json FILE`, or None
Advance = Callable[[int, int], None]


def console() -> Console:
    """Return a console for stdout: with colours on a terminal, plain text in a pipe."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def say(text: str) -> None:
    """Print a line on stderr, with control characters escaped."""
    print(printable(text), file=sys.stderr, flush=True)


def print_json(value: object) -> None:
    """Print one JSON document: to the FILE of `--json FILE`, else on stdout."""
    context = click.get_current_context(silent=True)
    if context is not None and (path := context.meta.get(JSON_FILE)):
        store(path, value)
    else:
        print(json.dumps(value, indent=2), flush=True)


def store(path: Path, document: object) -> None:
    """Write a JSON document to a file.

    A regular file is replaced atomically; a device or a pipe, such as /dev/null, is written to.
    """
    from ..files import named, replace_file

    text = (json.dumps(document, indent=2) + "\n").encode()
    if path.exists() and not path.is_file():
        with named(path):
            path.write_bytes(text)
    else:
        replace_file(path, text)
    say(f"written to {path}")


@contextmanager
def notice_after(text: str, after_s: float = 3.0) -> Iterator[None]:
    """Print `text` on stderr if the block takes longer than `after_s` seconds.

    The block must release the GIL while it waits, as the C core and CUDA's bindings do.
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
def progress_bars() -> Iterator[Progress]:
    """Show progress bars on stderr until the block ends, if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    quiet = not sys.stderr.isatty()
    err = Console(stderr=True, highlight=False)
    with Progress(*columns, console=err, transient=True, disable=quiet) as progress:
        yield progress


@contextmanager
def progress_bar(progress: Progress, text: str, total: int | None = None) -> Iterator[Advance]:
    """Show one bar; yield a function that takes (done, total)."""
    task = progress.add_task(text, total=total, note="")
    try:
        yield lambda done, total: progress.update(task, completed=done, total=total)
    finally:
        progress.remove_task(task)
