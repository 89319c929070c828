# SPDX-License-Identifier: Apache-2.0
"""The submission's end: runs the student's cells and answers the grader's calls.

The student controls this process, so the grader does not trust its messages; it only compares them.
"""

from __future__ import annotations

import socket
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from .. import errors
from . import codec

_CELL = "cell:"  # file name of a cell's code


class Proxy:
    """Stand-in for an object of the grader: calling a method sends a request to the grader.

    Args:
        sock: Connection to the grader.
        number: The object's number.
        name: The name of its class.
    """

    def __init__(self, sock: socket.socket, number: int, name: str, methods: list[str]) -> None:
        self._sock, self._number, self._name, self._methods = sock, number, name, methods

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_") or method not in self._methods:
            known = ", ".join(self.__dict__.get("_methods", ()))
            raise AttributeError(f"{self._name} has no method {method!r}: it has {known}")

        def call(*args: Any) -> Any:
            values = [codec.encode(arg) for arg in args]
            codec.send(self._sock, ["ask", self._number, method, values])
            kind, *answer = codec.receive(self._sock)
            if kind == "error":
                raise _exception(answer[0], answer[1])
            return codec.decode(answer[0])

        return call

    def __repr__(self) -> str:
        return f"<{self._name}: {', '.join(self._methods)}>"


def _exception(name: str, text: str) -> Exception:
    """Return an exception, of dgkit or builtin, of the class with this name."""
    if name in errors.__all__:
        error = getattr(errors, name)(text)
        assert isinstance(error, Exception)
        return error
    known = {"ValueError": ValueError, "TypeError": TypeError, "IndexError": IndexError}
    return known.get(name, RuntimeError)(text)


def run_cells(cells: list[list[str]], namespace: dict[str, Any]) -> None:
    """Run cells, given as pairs of name and source, in one namespace."""
    for name, source in cells:
        exec(compile(source, f"{_CELL}{name}", "exec"), namespace)


def _place(error: BaseException) -> list[Any]:
    """Return the innermost cell and line of the student in an exception's traceback."""
    found: list[Any] = ["", 0]
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(_CELL):
            found = [frame.filename.removeprefix(_CELL), frame.lineno]
    if isinstance(error, SyntaxError) and (error.filename or "").startswith(_CELL):
        found = [(error.filename or "").removeprefix(_CELL), error.lineno or 0]
    return found


def _encode_raised(error: BaseException) -> list[Any]:
    kinds = [kind.__name__ for kind in type(error).__mro__]
    try:
        text = str(error)[:500]
    except Exception:
        text = ""
    return ["raised", kinds, text, *_place(error)]


def serve(sock: socket.socket, namespace: Mapping[str, Any]) -> None:
    """Answer calls of functions of a namespace until the grader closes the connection."""

    def proxy(value: dict[str, Any]) -> Proxy:
        return Proxy(sock, value["object"], value["name"], value["methods"])

    while True:
        try:
            _, name, args = codec.receive(sock)
        except EOFError:
            return
        try:
            if name not in namespace:
                raise NameError(f"the solution cells define no {name!r}")
            values = [codec.decode(arg, proxy) for arg in args]
            answer = ["returned", codec.encode(namespace[name](*values))]
        except (Exception, SystemExit) as exc:
            answer = _encode_raised(exc)
        try:
            codec.send(sock, answer)
        except codec.BadMessage as exc:
            codec.send(sock, _encode_raised(exc))


def main(fd: int) -> None:
    """Serve on an inherited socket: the first message has the cells."""
    with socket.socket(fileno=fd) as sock:
        _, cells = codec.receive(sock)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        sys.modules["__main__"].__dict__.update(namespace)
        try:
            run_cells(cells, namespace)
        except (Exception, SystemExit) as exc:
            codec.send(sock, _encode_raised(exc))
            return
        codec.send(sock, ["ready"])
        serve(sock, namespace)
