"""What a line of %dma may say. It is read here; nothing of the notebook is looked at yet."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..units import parse_size
from .tokenizer import Word, split, unquoted

__all__ = ["COMMANDS", "Call", "Command", "Misuse", "help_text", "parse"]


class Misuse(ValueError):
    """A line says what cannot be done: one line, with the way out."""


@dataclass(frozen=True, slots=True)
class Call:
    """A line that was read. `args` are the command's; `quiet`: it ended in a semicolon."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    quiet: bool = False


class Command(argparse.ArgumentParser):
    """One command: `line` is how it is written, `options` has each by every way to write it, and
    `plain` is what is given by its place."""

    def __init__(self, name: str, usage: str, about: str) -> None:
        self.line = f"%dma {name}{usage}"
        self.options: dict[str, argparse.Action] = {}
        self.plain: list[str] = []
        super().__init__(
            usage=self.line.replace("%", "%%"), description=about, add_help=False,
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip

    def option(self, *names: str, **more: Any) -> None:
        """Adds an option, which takes a value."""
        action = self.add_argument(*names, **more)
        self.options.update(dict.fromkeys(action.option_strings, action))

    def argument(self, name: str, **more: Any) -> None:
        """Adds what is given by its place."""
        self.plain.append(name)
        self.add_argument(name, metavar=name.upper(), **more)

    def error(self, message: str) -> NoReturn:
        """Misuse, where argparse would end the process."""
        raise Misuse(f"{message}. It is written: {self.line}")


def _amount(text: str, least: int) -> int | str:
    """Bytes, or the notebook's expression for them, which is worked out when the line runs."""
    try:
        found = parse_size(text, least=0)
    except ValueError as exc:
        return _expression(text, str(exc))
    if found < least:
        raise argparse.ArgumentTypeError(f"{text} is too small: {least} or more")
    return found


def _offset(text: str) -> int | str:
    return _amount(text, 0)


def _size(text: str) -> int | str:
    return _amount(text, 1)


def _count(text: str) -> int | str:
    return int(text) if text.isdecimal() else _expression(text, f"{text!r} is no whole number")


def _expression(text: str, wrong: str = "") -> str:
    """Text that Python can read. ArgumentTypeError says `wrong`, or what Python says."""
    try:
        compile(text, "%dma", "eval")
    except (SyntaxError, ValueError) as exc:
        raise argparse.ArgumentTypeError(wrong or f"`{text}` is no Python: {exc}") from None
    return text


def _hex(text: str) -> bytes:
    try:
        data = bytes.fromhex(text.replace("0x", " ").replace(":", " ").replace(",", " "))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no hex: write it as 'de ad be ef'") from None
    if not data:
        raise argparse.ArgumentTypeError("there is not one byte in it")
    return data


def _variable(text: str) -> str:
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a variable")
    return text


_REGION = "a variable that holds a region, or the name of a live one"


def _command(name: str, usage: str, about: str, *, region: bool = True, out: str = "") -> Command:
    command = Command(name, usage, about)
    if region:
        command.argument("region", help=_REGION)
    if out:
        help_ = f"put {out} into this variable, and show nothing"
        command.option("-o", "--out", metavar="VAR", type=_variable, help=help_)
    return command


def _read() -> Command:
    usage = " REGION [--offset N] [--size N] [-o VAR]"
    read = _command("read", usage, "The DPU reads bytes of a region by DMA.", out="the bytes")
    read.option("--offset", metavar="N", type=_offset, default=0, help="from there (default 0)")
    read.option("--size", metavar="N", type=_size, help="so many bytes (default: to the end)")
    return read


def _write() -> Command:
    usage = " REGION DATA [--offset N] [--hex DIGITS] [-o VAR]"
    write = _command("write", usage, "The DPU writes bytes into a region by DMA.", out="the report")
    help_ = "Python of the notebook: bytes, text (as UTF-8), an array"
    write.argument("data", nargs="?", type=_expression, help=help_)
    write.option("--offset", metavar="N", type=_offset, default=0, help="to there (default 0)")
    write.option("--hex", metavar="DIGITS", type=_hex, help='in place of DATA: "de ad be ef"')
    return write


def _latency() -> Command:
    usage = " REGION [--size N] [--op OP] [--count N] [--path PATH] [-o VAR]"
    about = "Times transfers one by one: in C, at the DPU."
    latency = _command("latency", usage, about, out="the report")
    latency.option("--size", metavar="N", type=_size, help="bytes of each (default 64)")
    latency.option("--op", choices=("read", "write"), default="write", help="default: write")
    latency.option("--count", metavar="N", type=_count, default=10_000, help="default: 10000")
    latency.option(
        "--path", choices=("auto", "inline", "worker"), default="auto", help="default: auto"
    )
    return latency


def _help() -> Command:
    command = _command("help", " [COMMAND]", "Says what there is.", region=False)
    command.argument("command", nargs="?", help="what to explain")
    return command


COMMANDS: dict[str, Command] = {
    "read": _read(),
    "write": _write(),
    "latency": _latency(),
    "info": _command("info", "", "The open sessions and their live regions.", region=False),
    "help": _help(),
}


def parse(line: str) -> Call:
    """Reads a line. Misuse: it cannot be understood."""
    bare = line.rstrip()
    quiet = bare.endswith(";")
    words = split(bare.rstrip("; ") if quiet else bare)
    for word in words:
        if not word.closed:
            raise Misuse(f"a quote or a bracket is not closed in `{word.text}`")
    name = words[0].text if words else "help"
    if name not in COMMANDS:
        raise Misuse(f"there is no `%dma {name}`. There is: {', '.join(COMMANDS)}")
    if any(word.text in ("-h", "--help") for word in words):
        return Call("help", {"command": name}, quiet)
    command = COMMANDS[name]
    args = vars(command.parse_args(_arranged(command, words[1:])))
    return Call(name, _checked(command, args), quiet)


def _arranged(command: Command, words: list[Word]) -> list[str]:
    """Options first, each joined to its value; what is left of a line of `write` is the DATA."""
    options, plain, texts = [], [], iter([word.text for word in words])
    for text in texts:
        name, joined, value = text.partition("=")
        action = command.options.get(name)
        if action is not None:
            found = value if joined else next(texts, None)
            if found is None:
                command.error(f"{name} needs a value")
            options.append(f"{action.option_strings[-1]}={unquoted(found)}")
        elif text.startswith("--") and text[2:3].isalpha():
            known = ", ".join(command.options) or "it has none"
            command.error(f"there is no option {name} (there is: {known})")
        else:
            plain.append(text)
    if "data" in command.plain and len(plain) > 2:
        plain[1:] = [" ".join(plain[1:])]
    return [*options, *(["--"] if plain else []), *plain]


def _checked(command: Command, args: dict[str, Any]) -> dict[str, Any]:
    if "data" in args and (args["data"] is None) is (args["hex"] is None):
        command.error("it needs DATA or --hex, one of them")
    if args.get("command") not in (None, *COMMANDS):
        raise Misuse(f"there is no `%dma {args['command']}`. There is: {', '.join(COMMANDS)}")
    return args


_ABOUT = """\
%dma moves bytes by DMA; %%dma does several such lines, which may have comments (#).

{usages}

REGION is {region}.
DATA is Python of the notebook: bytes, text (as UTF-8), an array.
N is bytes: 4096, 4K, 1MiB, 0x100, or Python of the notebook. %dma help COMMAND says more."""


def help_text(name: str | None) -> str:
    """What there is, or what one command takes."""
    if name is not None:
        return COMMANDS[name].format_help().removeprefix("usage: ").rstrip()
    usages = "\n".join(f"  {command.line}" for command in COMMANDS.values())
    return _ABOUT.format(usages=usages, region=_REGION)
