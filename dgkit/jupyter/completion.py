"""What Tab offers in a line of %dma: commands, options and their values, regions, variables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from IPython.core import completer

from . import arguments
from .grammar import COMMANDS, Command
from .tokenizer import split

__all__ = ["add", "offers", "remove"]

_LINE = re.compile(r"\s*(?:[^%'\"#=]+=\s*)?%?dma\s+(?P<rest>.*)", re.DOTALL)
_CELL = re.compile(r"\s*%%dma\b")
_PLAIN = re.compile(r"[^\s\"'()\[\]{}#=;-][^\s\"'()\[\]{}=;]*")  # a name that needs no quotes
_ID = "dgkit.dma"


def add(shell: Any) -> None:
    """Adds it to the shell's completer, where that takes matchers (IPython 8.6 and later)."""
    found = getattr(shell.Completer, "custom_matchers", None)
    if found is None:
        return

    def match(context: Any) -> Any:
        typed, what, alone = offers(_before(context), shell.user_ns)
        items = [completer.SimpleCompletion(text=text, type=kind) for text, kind in what]
        return {"completions": items, "matched_fragment": typed, "suppress": alone, "ordered": True}

    found.append(completer.context_matcher(identifier=_ID)(match))


def remove(shell: Any) -> None:
    """Takes it away."""
    found = getattr(shell.Completer, "custom_matchers", [])
    found[:] = [match for match in found if getattr(match, "matcher_identifier", "") != _ID]


def _before(context: Any) -> str:
    """The text before the cursor. The column counts from the start of a text of its own, too."""
    lines = context.full_text.split("\n")
    above = lines[: context.cursor_line]
    rest = "\n".join(lines[context.cursor_line :])
    return "\n".join([*above, rest[: context.cursor_position]])


def offers(before: str, space: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bool]:
    """What was typed of a word, what it could become, and whether nothing else could be meant."""
    line = before.rpartition("\n")[2]
    found = _LINE.fullmatch(line)
    if found is None and not ("\n" in before and _CELL.match(before)):
        return "", [], False
    rest = found["rest"] if found else line.lstrip()
    words = [word.text for word in split(rest)]
    if split(rest + "x") == split(rest):  # it is in a comment
        return "", [], False
    typed = words.pop() if words and rest.endswith(words[-1]) else ""
    if not words:
        return typed, _starting(typed, COMMANDS, "keyword"), True
    if words[0] not in COMMANDS:
        return typed, [], False
    return _in(COMMANDS[words[0]], words[1:], typed, space)


def _in(
    command: Command, words: list[str], typed: str, space: dict[str, Any]
) -> tuple[str, list[tuple[str, str]], bool]:
    """Of one command, after these words."""
    name, joined, value = typed.partition("=")
    if joined and name in command.options:
        return value, _values(command, name, value, space), True
    plain, given, last = 0, set(), ""
    for word in words:
        if last:
            last = ""
        elif (name := word.partition("=")[0]) in command.options:
            given.add(command.options[name].dest)
            last = "" if "=" in word else name
        else:
            plain += 1
    if last:
        return typed, _values(command, last, typed, space), True
    if typed.startswith("-"):
        return typed, _options(command, given, typed), True
    wanted = command.plain[plain] if plain < len(command.plain) else ""
    if wanted == "region":
        return typed, _regions(typed, space), True
    if wanted == "command":
        return typed, _starting(typed, COMMANDS, "keyword"), True
    if wanted == "data" and typed:  # Python of the notebook: IPython may know more
        return typed, _starting(typed, _own(space), "instance"), False
    return typed, [] if typed else _options(command, given, typed), not wanted


def _starting(typed: str, names: Iterable[str], kind: str) -> list[tuple[str, str]]:
    return [(name, kind) for name in names if name.startswith(typed)]


def _options(command: Command, given: set[str], typed: str) -> list[tuple[str, str]]:
    names = [name for name, action in command.options.items() if action.dest not in given]
    return _starting(typed, names, "param")


def _values(
    command: Command, name: str, typed: str, space: dict[str, Any]
) -> list[tuple[str, str]]:
    action = command.options[name]
    if action.choices is not None:
        return _starting(typed, map(str, action.choices), "keyword")
    if action.dest == "out":
        return _starting(typed, _own(space), "instance") if typed else []
    whole = [name for name in _own(space) if type(space[name]) is int]
    return _starting(typed, whole, "instance")


def _own(space: dict[str, Any]) -> list[str]:
    """The notebook's variables, without IPython's."""
    return sorted(name for name in space if not name.startswith("_"))


def _regions(typed: str, space: dict[str, Any]) -> list[tuple[str, str]]:
    """Variables first, then names; in quotes where a name needs them or one was typed."""
    variables = {name for name, region in arguments.held(space).items() if not region.closed}
    offered = _starting(typed, sorted(variables), "instance")
    quote, bare = (typed[0], typed[1:]) if typed[:1] in ("'", '"') else ("", typed)
    for name in dict.fromkeys(region.name for region in arguments.named()):
        if name.startswith(bare) and name not in variables:
            plain = not quote and _PLAIN.fullmatch(name)
            offered.append((name if plain else _quoted(name, quote or '"'), "instance"))
    return offered


def _quoted(name: str, quote: str) -> str:
    text = name.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{text}{quote}"
