"""Which region, which number and which bytes of the notebook a line means."""

from __future__ import annotations

from typing import Any

from ..session import Session, SessionRegion
from ..session.lifecycle import open_sessions
from .grammar import Misuse
from .tokenizer import unquoted

__all__ = ["amount", "data", "find", "held", "named", "sessions"]

_LISTED = 8


def sessions() -> list[Session]:
    """The open ones of this process, in an order that stays."""
    found = [session for session in list(open_sessions) if not session.closed]
    return sorted(found, key=lambda session: (session.agent.pid, id(session)))


def named() -> list[SessionRegion]:
    """The live regions of all sessions."""
    return [region for session in sessions() for region in session.regions]


def held(space: dict[str, Any]) -> dict[str, SessionRegion]:
    """The variables of the notebook that hold a region; not IPython's own, as `_` and `_3`."""
    found = {name: value for name, value in list(space.items()) if type(value) is SessionRegion}
    return {name: region for name, region in found.items() if not name.startswith("_")}


def find(shell: Any, text: str) -> SessionRegion:
    """The region that `text` means: a variable, a live region's name, or an expression."""
    value = shell.user_ns.get(text)
    if isinstance(value, SessionRegion):
        return value
    name = unquoted(text)
    found = [region for region in named() if region.name == name]
    if len(found) > 1:
        raise Misuse(f"{len(found)} live regions are called {name!r}: use a variable of the one")
    if found:
        return found[0]
    if not text.isidentifier() and name == text:
        value = _evaluated(shell, text, otherwise=value)
    if isinstance(value, SessionRegion):
        return value
    instead = "" if value is None else f", it is {_a(value)}"
    raise Misuse(f"`{text}` is no region{instead}. {_known(shell.user_ns)}")


def _a(value: object) -> str:
    kind = type(value).__name__
    return f"an {kind}" if kind[0] in "aeiouAEIOU" else f"a {kind}"


def _known(space: dict[str, Any]) -> str:
    variables = [name for name, region in held(space).items() if not region.closed]
    names = list(dict.fromkeys([*variables, *(repr(region.name) for region in named())]))
    if not names:
        return "Make one: region = dgkit.connect().empty(4096)"
    more = ", ..." if len(names) > _LISTED else ""
    return f"There is: {', '.join(names[:_LISTED])}{more}"


def _evaluated(shell: Any, text: str, **otherwise: Any) -> Any:
    """What Python says `text` is. Misuse: it knows no such name; `otherwise`: that in its place."""
    try:
        return shell.ev(text)
    except (NameError, SyntaxError) as exc:
        if otherwise:
            return otherwise["otherwise"]
        raise Misuse(f"`{text}`: {exc}") from None


def amount(shell: Any, value: int | str, what: str, *, least: int = 1) -> int:
    """A number that stands in the line, or the one that its expression comes to."""
    if isinstance(value, int):
        return value
    number = _evaluated(shell, value)
    if not hasattr(number, "__index__"):
        raise Misuse(f"{what} is {_a(number)}; it must be a whole number")
    if number < least:
        raise Misuse(f"{what} is {number}; it must be {least} or more")
    return int(number.__index__())


def data(shell: Any, text: str) -> Any:
    """The bytes that an expression comes to: text as UTF-8, all else as it is, if it has bytes."""
    value = _evaluated(shell, text)
    if isinstance(value, str):
        value = value.encode()
    if not hasattr(value, "__cuda_array_interface__"):
        try:
            memoryview(value).release()
        except TypeError:
            raise Misuse(f"DATA is {_a(value)}; it must be bytes, text or an array") from None
        except ValueError:  # a NumPy dtype that has no format, as datetime64: the session says so
            pass
    return value
