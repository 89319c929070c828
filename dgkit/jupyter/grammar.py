"""Parser of a line of %dma: commands, options and help. It does not access the notebook."""

from __future__ import annotations

import argparse
import ast
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..report import GPU_INITIATED
from ..units import parse_size

_CLOSERS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token as typed; `closed` if its quotes and brackets are closed."""

    text: str
    closed: bool = True


def tokenize(line: str) -> list[Token]:
    """Return the tokens of a line, up to a `#` at the start of a token.

    `b"a b"`, `f(1, 2)` and `"de ad"` are one token each and keep their quotes.
    """
    tokens: list[Token] = []
    at = 0
    while True:
        while at < len(line) and line[at].isspace():
            at += 1
        if at == len(line) or line[at] == "#":
            return tokens
        end, closed = _end(line, at)
        tokens.append(Token(line[at:end], closed))
        at = end


def _end(line: str, at: int) -> tuple[int, bool]:
    """Return the end of the token that starts at `at`, and whether it is closed."""
    expected: list[str] = []  # the closing characters expected, innermost last
    while at < len(line):
        char, quoted = line[at], bool(expected) and expected[-1] in "'\""
        if expected and char == expected[-1]:
            expected.pop()
        elif quoted:
            at += char == "\\"
        elif char in "'\"":
            expected.append(char)
        elif char in _CLOSERS:
            expected.append(_CLOSERS[char])
        elif char.isspace() and not expected:
            break
        at += 1
    return min(at, len(line)), not expected


def unquote(text: str) -> str:
    """Return the value of a token that is a Python string literal, or any other token unchanged."""
    if text[:1] in ("'", '"'):
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            return text
        if isinstance(value, str):
            return value
    return text


class LineError(ValueError):
    """An invalid line of %dma; its message is one line and says what is valid."""


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed line: command, arguments, and `quiet` if it ended in a semicolon."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    quiet: bool = False


class Command(argparse.ArgumentParser):
    """The parser of one command.

    Attributes:
        line: The usage.
        options: The options by each of their names.
        positional: The names of the positional arguments.
    """

    def __init__(self, name: str, usage: str, about: str) -> None:
        self.line = f"%dma {name}{usage}"
        self.options: dict[str, argparse.Action] = {}
        self.positional: list[str] = []
        super().__init__(
            usage=self.line.replace("%", "%%"), description=about, add_help=False,
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip

    def option(self, *names: str, **more: Any) -> None:
        """Add an option that takes a value."""
        action = self.add_argument(*names, **more)
        self.options.update(dict.fromkeys(action.option_strings, action))

    def argument(self, name: str, **more: Any) -> None:
        """Add a positional argument."""
        self.positional.append(name)
        self.add_argument(name, metavar=name.upper(), **more)

    def error(self, message: str) -> NoReturn:
        """Raise LineError, where argparse would end the process."""
        raise LineError(f"{message}. Usage: {self.line}")


def _bytes_or_expression(text: str, least: int) -> int | str:
    """Return a number of bytes, or an expression that is evaluated when the line runs."""
    try:
        number = parse_size(text, least=0)
    except ValueError as exc:
        return _expression(text, str(exc))
    if number < least:
        raise argparse.ArgumentTypeError(f"{text} is too small: it must be {least} or more")
    return number


def _offset(text: str) -> int | str:
    return _bytes_or_expression(text, 0)


def _size(text: str) -> int | str:
    return _bytes_or_expression(text, 1)


def _count(text: str) -> int | str:
    return int(text) if text.isdecimal() else _expression(text, f"{text!r} is not a whole number")


def _expression(text: str, message: str = "") -> str:
    """Return the text of a Python expression.

    Raises:
        ArgumentTypeError: The text is not valid Python; with `message`, or with Python's message.
    """
    try:
        compile(text, "%dma", "eval")
    except (SyntaxError, ValueError) as exc:
        wrong = message or f"`{text}` is not a Python expression: {exc}"
        raise argparse.ArgumentTypeError(wrong) from None
    return text


def _hex(text: str) -> bytes:
    try:
        data = bytes.fromhex(text.replace("0x", " ").replace(":", " ").replace(",", " "))
    except ValueError:
        wrong = f"{text!r} is not hex: write it as 'de ad be ef'"
        raise argparse.ArgumentTypeError(wrong) from None
    if not data:
        raise argparse.ArgumentTypeError("it has no bytes: write it as 'de ad be ef'")
    return data


def _variable(text: str) -> str:
    if not text.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not a variable name")
    return text


_REGION = "a variable that holds a region, or the name of a live region"


def _command(name: str, usage: str, about: str, *, region: bool = True, out: str = "") -> Command:
    command = Command(name, usage, about)
    if region:
        command.argument("region", help=_REGION)
    if out:
        help_ = f"store {out} in this variable and show nothing"
        command.option("-o", "--out", metavar="VAR", type=_variable, help=help_)
    return command


def _read() -> Command:
    usage = " REGION [--offset N] [--size N] [-o VAR]"
    read = _command(
        "read", usage, "Read bytes of a region by DMA: the DPU reads them.", out="the bytes"
    )
    read.option(
        "--offset",
        metavar="N",
        type=_offset,
        default=0,
        help="offset of the first byte (default: 0)",
    )
    read.option(
        "--size",
        metavar="N",
        type=_size,
        help="number of bytes (default: to the end of the region)",
    )
    return read


def _write() -> Command:
    usage = " REGION DATA [--offset N] [--hex DIGITS] [-o VAR]"
    write = _command(
        "write", usage, "Write bytes to a region by DMA: the DPU writes them.", out="the report"
    )
    help_ = "a Python expression: bytes, text (as UTF-8) or an array"
    write.argument("data", nargs="?", type=_expression, help=help_)
    write.option(
        "--offset",
        metavar="N",
        type=_offset,
        default=0,
        help="offset of the first byte (default: 0)",
    )
    write.option(
        "--hex",
        metavar="DIGITS",
        type=_hex,
        help='bytes as hex digits instead of DATA: "de ad be ef"',
    )
    return write


def _latency() -> Command:
    usage = " REGION [--size N] [--op OP] [--count N] [--path PATH] [-o VAR]"
    about = (
        "Measure the latency of single transfers, timed in C at the DPU; of those that are\n"
        f"{GPU_INITIATED}, by the clock of the kernel of the host that starts them."
    )
    latency = _command("latency", usage, about, out="the report")
    latency.option(
        "--size",
        metavar="N",
        type=_size,
        help="bytes per transfer (default: 64, or less for a smaller region)",
    )
    latency.option(
        "--op",
        choices=("read", "write"),
        default="write",
        help="direction, as seen from the DPU (default: write)",
    )
    latency.option(
        "--count",
        metavar="N",
        type=_count,
        default=10_000,
        help="number of transfers, without a unit (default: 10000)",
    )
    latency.option(
        "--path",
        choices=("auto", "inline", "worker", GPU_INITIATED),
        default="auto",
        help="path of the transfers (default: auto)",
    )
    return latency


def _help() -> Command:
    command = _command("help", " [COMMAND]", "List the commands, or explain one.", region=False)
    command.argument("command", nargs="?", help="the command to explain")
    return command


COMMANDS: dict[str, Command] = {
    "read": _read(),
    "write": _write(),
    "latency": _latency(),
    "info": _command("info", "", "List the open sessions and their live regions.", region=False),
    "help": _help(),
}


def parse(line: str) -> Call:
    """Parse a line.

    Raises:
        LineError: The line is invalid.
    """
    bare = line.rstrip()
    quiet = bare.endswith(";")
    tokens = tokenize(bare.rstrip("; ") if quiet else bare)
    for token in tokens:
        if not token.closed:
            raise LineError(f"a quote or a bracket is not closed in `{token.text}`")
    name = tokens[0].text if tokens else "help"
    if name not in COMMANDS:
        raise _unknown_command(name)
    if any(token.text in ("-h", "--help") for token in tokens):
        return Call("help", {"command": name}, quiet)
    command = COMMANDS[name]
    args = vars(command.parse_args(_to_argv(command, tokens[1:])))
    return Call(name, _checked(command, args), quiet)


def _unknown_command(name: str) -> LineError:
    return LineError(f"there is no command `%dma {name}`; commands: {', '.join(COMMANDS)}")


def _to_argv(command: Command, tokens: list[Token]) -> list[str]:
    """Return arguments for argparse: options first, as name=value, and DATA joined to one item."""
    options, positional, texts = [], [], iter([token.text for token in tokens])
    for text in texts:
        name, equals, value = text.partition("=")
        action = command.options.get(name)
        if action is not None:
            given = value if equals else next(texts, None)
            if given is None:
                command.error(f"{name} needs a value")
            options.append(f"{action.option_strings[-1]}={unquote(given)}")
        elif text.startswith("--") and text[2:3].isalpha():
            known = ", ".join(command.options) or "none"
            command.error(f"there is no option {name}; options: {known}")
        else:
            positional.append(text)
    if "data" in command.positional and len(positional) > 2:
        positional[1:] = [" ".join(positional[1:])]
    return [*options, *(["--"] if positional else []), *positional]


def _checked(command: Command, args: dict[str, Any]) -> dict[str, Any]:
    if "data" in args and (args["data"] is None) is (args["hex"] is None):
        command.error("give either DATA or --hex")
    if args.get("command") not in (None, *COMMANDS):
        raise _unknown_command(args["command"])
    return args


_ABOUT = """\
%dma moves bytes by DMA. A cell that starts with %%dma has one command per line; # starts a comment.

{usages}

REGION is {region}.
DATA is a Python expression: bytes, text (as UTF-8) or an array.
N is a number of bytes: 4096, 4K, 1MiB, 0x100, or a Python expression.
%dma help COMMAND explains one command."""


def help_text(name: str | None) -> str:
    """Return the help of all commands, or of one."""
    if name is not None:
        return COMMANDS[name].format_help().removeprefix("usage: ").rstrip()
    usages = "\n".join(f"  {command.line}" for command in COMMANDS.values())
    return _ABOUT.format(usages=usages, region=_REGION)
