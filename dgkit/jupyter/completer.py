"""Tab completion of %dma: commands, options and their values, regions, variables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from IPython.core import completer

from . import arguments
from .grammar import COMMANDS, Command, tokenize

Completions = list[tuple[str, str]]  # (text, IPython's type of a completion)

_LINE = re.compile(r"\s*(?:[^%'\"#=]+=\s*)?%?dma\s+(?P<rest>.*)", re.DOTALL)
_CELL = re.compile(r"\s*%%dma\b")
_PLAIN = re.compile(r"[^\s\"'()\[\]{}#=;-][^\s\"'()\[\]{}=;]*")  # a name that needs no quotes
_ID = "dgkit.dma"


def add(shell: Any) -> None:
    """Add the matcher to the shell's completer if it supports matchers (IPython 8.6 or later)."""
    matchers = getattr(shell.Completer, "custom_matchers", None)
    if matchers is None:
        return

    def match(context: Any) -> Any:
        typed, found, exclusive = complete(_before_cursor(context), shell.user_ns)
        items = [completer.SimpleCompletion(text=text, type=kind) for text, kind in found]
        return {
            "completions": items, "matched_fragment": typed, "suppress": exclusive,
            "ordered": True,
        }  # fmt: skip

    matchers.append(completer.context_matcher(identifier=_ID)(match))


def remove(shell: Any) -> None:
    """Remove the matcher."""
    matchers = getattr(shell.Completer, "custom_matchers", [])
    matchers[:] = [match for match in matchers if getattr(match, "matcher_identifier", "") != _ID]


def _before_cursor(context: Any) -> str:
    """Return the text before the cursor; its column counts from the start of the cursor's line."""
    lines = context.full_text.split("\n")
    above = lines[: context.cursor_line]
    rest = "\n".join(lines[context.cursor_line :])
    return "\n".join([*above, rest[: context.cursor_position]])


def complete(before: str, namespace: dict[str, Any]) -> tuple[str, Completions, bool]:
    """Complete the last token of a line.

    Args:
        before: The text of the cell before the cursor.
        namespace: The notebook's variables.

    Returns:
        The typed part of the token, its completions, and whether other matchers are suppressed.
    """
    line = before.rpartition("\n")[2]
    found = _LINE.fullmatch(line)
    if found is None and not ("\n" in before and _CELL.match(before)):
        return "", [], False
    rest = found["rest"] if found else line.lstrip()
    words = [token.text for token in tokenize(rest)]
    if tokenize(rest + "x") == tokenize(rest):  # in a comment
        return "", [], False
    typed = words.pop() if words and rest.endswith(words[-1]) else ""
    if not words:
        return typed, _starting_with(typed, COMMANDS, "keyword"), True
    if words[0] not in COMMANDS:
        return typed, [], False
    return _complete_command(COMMANDS[words[0]], words[1:], typed, namespace)


def _complete_command(
    command: Command, words: list[str], typed: str, namespace: dict[str, Any]
) -> tuple[str, Completions, bool]:
    """Complete the last token of a command after these words."""
    name, equals, value = typed.partition("=")
    if equals and name in command.options:
        return value, _values(command, name, value, namespace), True
    position, given, option = 0, set(), ""
    for word in words:
        if option:
            option = ""
        elif (name := word.partition("=")[0]) in command.options:
            given.add(command.options[name].dest)
            option = "" if "=" in word else name
        else:
            position += 1
    if option:
        return typed, _values(command, option, typed, namespace), True
    if typed.startswith("-"):
        return typed, _options(command, given, typed), True
    names = command.positional
    wanted = names[position] if position < len(names) else ""
    if wanted == "region":
        return typed, _regions(typed, namespace), True
    if wanted == "command":
        return typed, _starting_with(typed, COMMANDS, "keyword"), True
    if wanted == "data" and typed:  # a Python expression: IPython may add completions
        return typed, _starting_with(typed, _variables(namespace), "instance"), False
    return typed, [] if typed else _options(command, given, typed), not wanted


def _starting_with(typed: str, names: Iterable[str], kind: str) -> Completions:
    return [(name, kind) for name in names if name.startswith(typed)]


def _options(command: Command, given: set[str], typed: str) -> Completions:
    names = [name for name, action in command.options.items() if action.dest not in given]
    return _starting_with(typed, names, "param")


def _values(command: Command, name: str, typed: str, namespace: dict[str, Any]) -> Completions:
    action = command.options[name]
    if action.choices is not None:
        return _starting_with(typed, map(str, action.choices), "keyword")
    if action.dest == "out":
        return _starting_with(typed, _variables(namespace), "instance") if typed else []
    integers = [name for name in _variables(namespace) if type(namespace[name]) is int]
    return _starting_with(typed, integers, "instance")


def _variables(namespace: dict[str, Any]) -> list[str]:
    """Return the notebook's variables, without IPython's."""
    return sorted(name for name in namespace if not name.startswith("_"))


def _regions(typed: str, namespace: dict[str, Any]) -> Completions:
    """Return variables, then names, in quotes if a name needs them or a quote was typed."""
    held = arguments.region_variables(namespace)
    variables = {name for name, region in held.items() if not region.closed}
    found = _starting_with(typed, sorted(variables), "instance")
    quote, bare = (typed[0], typed[1:]) if typed[:1] in ("'", '"') else ("", typed)
    for name in dict.fromkeys(region.name for region in arguments.live_regions()):
        if name.startswith(bare) and name not in variables:
            plain = not quote and _PLAIN.fullmatch(name)
            found.append((name if plain else _quoted(name, quote or '"'), "instance"))
    return found


def _quoted(name: str, quote: str) -> str:
    text = name.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{text}{quote}"
