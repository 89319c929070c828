# SPDX-License-Identifier: Apache-2.0
"""All help pages: they fit a terminal, explain each option, and their examples can be typed."""

import itertools
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from dgkit.cli import main
from dgkit.cli.app import Dgkit

Path = tuple[str, ...]


def _commands(command: click.Command, path: Path = ()) -> Iterator[tuple[Path, click.Command]]:
    """Yield a command and all its subcommands, each with its path."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _commands(child, (*path, name))


COMMANDS = dict(_commands(Dgkit()))


def _page(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*path, "--help"]) == 0
    return capsys.readouterr().out


def _invocations(line: str) -> Iterator[list[str]]:
    """Yield the arguments of each `dgkit` of a shell's line."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    for ends, group in itertools.groupby(words, lambda word: set(word) <= set("|&;<>()")):
        command = list(group)
        if not ends and command[0] == "dgkit":
            yield command[1:]
        for word in command:
            if word.startswith("$("):
                yield from _invocations(word[2:-1])


def _parse(command: click.Command, arguments: list[str]) -> None:
    """Find the commands and the options of a line; its values may stand for others."""
    context = click.Context(command)
    _, rest, _ = command.make_parser(context).parse_args(list(arguments))
    if isinstance(command, click.Group) and rest:
        _, child, rest = command.resolve_command(context, rest)
        assert child is not None
        _parse(child, rest)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_help_page_fits_and_explains_each_option(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    page = _page(path, capsys)
    assert max(map(len, page.splitlines())) <= 100
    for option in COMMANDS[path].params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, option.name
            assert option.opts[-1] in page
    if isinstance(COMMANDS[path], click.Group):
        assert all(re.search(rf"^  {name} +\w", page, re.M) for name in COMMANDS[path].commands)


def test_each_example_of_a_help_page_is_a_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for path in filter(None, COMMANDS):  # the first page has `dgkit COMMAND --help`
        examples = re.split(r"\bExamples?\b.*:\n", _page(path, capsys))[-1].partition("\n\n")[0]
        lines = (line.strip().partition("  ")[0] for line in examples.splitlines())
        found = [arguments for line in lines for arguments in _invocations(line)]
        assert found, path
        for arguments in found:
            _parse(COMMANDS[()], arguments)
