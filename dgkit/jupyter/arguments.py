"""Regions, numbers and bytes of the notebook that a line refers to."""

from __future__ import annotations

from typing import Any

from ..session import Session, SessionRegion
from ..session.lifecycle import open_sessions
from .grammar import LineError, unquote

_MAX_LISTED = 8


def sessions() -> list[Session]:
    """Return the open sessions of this process, in a stable order."""
    return sorted((s for s in open_sessions if not s.closed), key=lambda s: (s.agent.pid, id(s)))


def live_regions() -> list[SessionRegion]:
    """Return the live regions of all sessions."""
    return [region for session in sessions() for region in session.regions]


def region_variables(namespace: dict[str, Any]) -> dict[str, SessionRegion]:
    """Return the notebook's variables that hold a region, without IPython's, such as `_3`."""
    found = {name: val for name, val in list(namespace.items()) if type(val) is SessionRegion}
    return {name: region for name, region in found.items() if not name.startswith("_")}


def find_region(shell: Any, text: str) -> SessionRegion:
    """Return a region by variable, by name, or by expression, in this order.

    Raises:
        LineError: The text is not a region, or several live regions have this name.
    """
    value = shell.user_ns.get(text)
    if isinstance(value, SessionRegion):
        return value
    name = unquote(text)
    found = [region for region in live_regions() if region.name == name]
    if len(found) > 1:
        raise LineError(f"{len(found)} live regions are named {name!r}: use a variable instead")
    if found:
        return found[0]
    if not text.isidentifier() and name == text:
        value = _evaluate(shell, text, default=value)
    if isinstance(value, SessionRegion):
        return value
    actual = "" if value is None else f", but {_type_with_article(value)}"
    raise LineError(f"`{text}` is not a region{actual}. {_known_regions(shell.user_ns)}")


def _type_with_article(value: object) -> str:
    kind = type(value).__name__
    return f"an {kind}" if kind[0] in "aeiouAEIOU" else f"a {kind}"


def _known_regions(namespace: dict[str, Any]) -> str:
    variables = [name for name, region in region_variables(namespace).items() if not region.closed]
    names = list(dict.fromkeys([*variables, *(repr(region.name) for region in live_regions())]))
    if not names:
        return "Allocate one: region = dgkit.connect().empty(4096)"
    more = ", ..." if len(names) > _MAX_LISTED else ""
    return f"Regions: {', '.join(names[:_MAX_LISTED])}{more}"


def _evaluate(shell: Any, text: str, **default: Any) -> Any:
    """Return the value of an expression in the notebook.

    Args:
        shell: The IPython shell.
        text: The expression.
        **default: `default`, the value if a name is unknown or the syntax invalid.

    Raises:
        LineError: A name is unknown or the syntax invalid, and there is no default.
    """
    try:
        return shell.ev(text)
    except (NameError, SyntaxError) as exc:
        if default:
            return default["default"]
        raise LineError(f"`{text}`: {exc}") from None


def integer(shell: Any, value: int | str, what: str, *, least: int = 1) -> int:
    """Return a number given as such or as an expression of the notebook.

    Args:
        shell: The IPython shell.
        value: The number, or the expression.
        what: The option, for error messages.
        least: The least value.

    Raises:
        LineError: The expression fails, or its value is not a whole number or too small.
    """
    if isinstance(value, int):
        return value
    number = _evaluate(shell, value)
    if not hasattr(number, "__index__"):
        raise LineError(f"{what} is {_type_with_article(number)}; it must be a whole number")
    if number < least:
        raise LineError(f"{what} is {number}; it must be {least} or more")
    return int(number.__index__())


def data(shell: Any, text: str) -> Any:
    """Return the bytes or the array that an expression yields; text is encoded as UTF-8.

    Raises:
        LineError: The expression fails, or its value has no bytes.
    """
    value = _evaluate(shell, text)
    if isinstance(value, str):
        value = value.encode()
    if not hasattr(value, "__cuda_array_interface__"):
        try:
            memoryview(value).release()
        except TypeError:
            raise LineError(
                f"DATA is {_type_with_article(value)}; it must be bytes, text or an array"
            ) from None
        except (
            ValueError
        ):  # a NumPy dtype without a buffer format, such as datetime64: the session reports it
            pass
    return value
