"""All help pages, compared with an approved file.

`python -m pytest tests/unit/test_messages.py --approve` writes it again: review the diff.
"""

from collections.abc import Callable, Iterator

import click
import pytest

from dgkit.cli import main
from dgkit.cli.app import Dgkit

Approved = Callable[[str, str], None]


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of a command and of all its subcommands."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _commands(child, (*path, name))


def test_each_help_page_is_the_approved_one(
    approved: Approved, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    pages = []
    for path in _commands(Dgkit()):
        assert main([*path, "--help"]) == 0
        pages.append(f"$ {' '.join(['dgkit', *path, '--help'])}\n{capsys.readouterr().out}")
    approved("help.txt", "\n".join(pages))
