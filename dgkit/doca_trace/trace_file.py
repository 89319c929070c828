# SPDX-License-Identifier: Apache-2.0
"""Traces of the calls of DOCA: files that strangers send, so each value is checked when it is read.

A trace has a JSON object a line: the header, then the calls, callbacks and ranges of memory that
the recorder (native/softdoca/record/recorder.c) wrote. Nothing in it is an address: handles,
memory, user data and callbacks are numbers, which a replay maps to its own.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import DgkitError
from ..files import read_limited
from ..json_input import read_json
from .functions import Function, Functions

MOST_BYTES, MOST_LINE = 256 << 20, 16 << 10
_REPORTED_BYTES = 1 << 20  # between two reports of progress
_MOST_MEMORY = 1 << 30  # of all ranges: a replay allocates them
_VALUE = re.compile(r"([a-z_0-9]{1,64}):([0-9]{1,18})(?:\+([0-9]{1,20}))?|blob:[0-9a-f]{16}")
_RULES = re.compile(r"[a-z0-9_=; ]{0,2048}", re.ASCII)
_FUNCTIONS = re.compile(r"side=[a-z]+( caps=[a-z,]+)?(; side=[a-z]+( caps=[a-z,]+)?)*", re.ASCII)
_FOR_KERNELS = ("doca_ctx_set_datapath_on_gpu", "doca_gpu_verbs_export_qp")
_AGAIN = 5
_MOST_VALUES = 128  # of a list
_SIDES = ("both", "host", "dpu")
# Calls whose result, or argument, is a name for the other side.
_NAMED: dict[str, dict[str, tuple[str, int | None]]] = {
    "B": {
        "doca_rdma_start_listen_to_port": ("port", 1),
        "doca_verbs_qp_get_qpn": ("qpn", None),
    },
    "b": {
        "doca_rdma_addr_create": ("port", 2),
        "doca_verbs_qp_attr_set_dest_qp_num": ("qpn", 1),
    },
}


class TraceError(DgkitError, ValueError):
    """A file is not a trace. The message names the file, the line and what is wrong with it."""


@dataclass(slots=True)
class Call:
    """A call: its arguments as the recorder wrote them, and the callbacks within it."""

    number: int
    function: Function | None  # None: a function that this dgkit does not know
    name: str
    thread: int
    start_ns: int
    took_ns: int
    arguments: list[Any]
    result: Any
    outputs: list[Any]
    entries: list[Any]  # of a list of handles that was returned, or of a batch that was submitted
    callbacks: list[Callback] = field(default_factory=list)
    is_replayed: bool = False

    @property
    def is_idle(self) -> bool:
        """True if nothing had happened yet, which made the program call again."""
        if self.function is not None and self.function.result.kind == "r":
            return bool(self.result == _AGAIN)
        return self.name == "doca_pe_progress" and not self.callbacks and not self.result

    def values_of(self, kind: str) -> list[Any]:
        """Return descriptors that the call took (kind "b") or returned (kind "B").

        A port that it listens to, and the number of a queue pair, count as descriptors.
        """
        if self.function is None:
            return []
        if self.name in _NAMED[kind]:
            class_, place = _NAMED[kind][self.name]
            return [f"{class_}:{self.result if place is None else self.arguments[place]}"]
        parameters = self.function.parameters
        if kind == "b":
            return [
                v for v, p in zip(self.arguments, parameters, strict=True) if p.kind == kind and v
            ]
        given = [i for i in self.function.outputs if self.arguments[i] is not None]
        pairs = zip(given, self.outputs, strict=False)
        return [value for i, value in pairs if parameters[i].kind == kind and value]


@dataclass(slots=True, eq=False)
class Callback:
    """A callback, and the calls that the program made in it."""

    number: int
    function: Function
    slot: int  # the number of the program's function
    arguments: list[Any]
    calls: list[Call] = field(default_factory=list)
    parent: Call | None = None
    is_done: bool = False
    result: int = 0  # an error code, where the type has a result
    entries: list[Any] = field(default_factory=list)  # of a list of handles that it was given


@dataclass(slots=True)
class Trace:
    """A trace: its calls in the order in which they ended, those within callbacks with these."""

    path: Path
    header: dict[str, Any]
    calls: list[Call] = field(default_factory=list)
    memory: dict[int, int] = field(default_factory=dict)  # sizes of ranges
    returned: dict[int, list[int]] = field(default_factory=dict)  # ranges that a call returned
    is_complete: bool = False

    @property
    def side(self) -> str:
        """The side, host or dpu, that the program ran on; both if unknown."""
        machine = self.header.get("machine")
        side = machine.get("side") if isinstance(machine, dict) else None
        return side if side in _SIDES else "both"

    @property
    def faults(self) -> str:
        """The rules of SOFTDOCA_FAULTS that a trace of softdoca was recorded with."""
        return self._setting("faults", _RULES)

    @property
    def functions(self) -> list[str]:
        """Side and capabilities of each function that a trace of softdoca was recorded with."""
        return self._setting("functions", _FUNCTIONS).split("; ")

    def _setting(self, name: str, pattern: re.Pattern[str]) -> str:
        value = self.header.get(name) if self.header.get("softdoca") is True else None
        return value if isinstance(value, str) and pattern.fullmatch(value) else ""

    @property
    def start_ns(self) -> int:
        """Begin of the recording in ns, by the clock of its machine."""
        start = self.header.get("start_ns")
        return start if type(start) is int else 0

    @property
    def has_verbs(self) -> bool:
        """True if the trace has calls of doca_verbs.h; its queue pairs connect by gid and qpn."""
        return any(call.name.startswith("doca_verbs_") for call in self.every_call())

    @property
    def has_network(self) -> bool:
        """True if the trace has calls of Ethernet queues or of flow rules."""
        return any(call.function and call.function.needs_network for call in self.every_call())

    @property
    def has_kernels(self) -> bool:
        """True if kernels had queues: what they did is in no trace."""
        return any(call.name in _FOR_KERNELS and call.result == 0 for call in self.every_call())

    def every_call(self) -> Iterator[Call]:
        """Iterate over the calls, also those made in callbacks."""
        waiting = list(reversed(self.calls))
        while waiting:
            call = waiting.pop()
            yield call
            for callback in call.callbacks:
                waiting += callback.calls


def read_trace(
    path: Path, functions: Functions, progress: Callable[[int, int], object] = lambda *_: None
) -> Trace:
    """Read and check a trace.

    Args:
        path: The file.
        functions: What is known of DOCA's functions.
        progress: Called with the bytes that were read, and those of the file.

    Raises:
        TraceError: It is not a trace.
        OSError: It cannot be read.
    """
    try:
        content = read_limited(path, MOST_BYTES)
    except ValueError as exc:
        raise TraceError(f"{exc}: record fewer calls") from None
    reader, done, reported = _Reader(path, functions), 0, 0
    for number, line in enumerate(io.BytesIO(content), 1):
        try:
            if line != b"\n":
                reader.take(line.removesuffix(b"\n"))
        except (ValueError, KeyError, TypeError) as error:
            if not line.endswith(b"\n") and number > 1:  # cut by the end of its process
                break
            reason = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise TraceError(
                f"{path}, line {number}: {reason}; record the program again with "
                "`dgkit softdoca record`"
            ) from error
        done += len(line)
        if done - reported >= _REPORTED_BYTES:
            reported = done
            progress(done, len(content))
    if not reader.trace.header:
        raise TraceError(f"{path} is empty: record a program with `dgkit softdoca record`")
    progress(len(content), len(content))
    return reader.trace


class _Reader:
    """Builds a trace from its lines."""

    def __init__(self, path: Path, functions: Functions) -> None:
        self.trace, self._functions = Trace(path, {}), functions
        self._waiting: dict[int, list[Callback]] = {}  # by the call that they are in
        self._callbacks: dict[int, Callback] = {}
        self._seen: set[int] = set()
        self._memory = 0  # bytes of all ranges

    def take(self, line: bytes) -> None:
        """Add a line. Raises ValueError, KeyError or TypeError if it is not a line of a trace."""
        if len(line) > MOST_LINE:
            raise ValueError(f"the line has more than {MOST_LINE} bytes")
        entry = read_json(line)
        if not isinstance(entry, dict):
            raise ValueError("this is no JSON object")
        if not self.trace.header:
            self._take_header(entry)
        elif "call" in entry:
            self._take_call(entry)
        elif "callback" in entry:
            self._take_callback(entry)
        elif "memory" in entry:
            self._take_memory(entry)
        elif "returned" in entry:
            self._callbacks[_count(entry["returned"])].result = _count(entry["result"]) & 0xFF
        elif "end" in entry:
            self.trace.is_complete = True
        elif "repeated" not in entry:
            raise ValueError("this is neither a call nor a callback")

    def _take_header(self, entry: dict[str, Any]) -> None:
        if entry.get("trace") != 1:
            raise ValueError('this is no trace: it does not begin with {"trace": 1')
        self.trace.header = entry

    def _take_memory(self, entry: dict[str, Any]) -> None:
        number, size, call = (_count(entry[key]) for key in ("memory", "size", "import"))
        if call:
            self.trace.returned.setdefault(call, []).append(number)
            return
        self._memory += size - self.trace.memory.get(number, 0)
        self.trace.memory[number] = size
        if self._memory > _MOST_MEMORY:
            raise ValueError(
                f"the program's memory has more than {_MOST_MEMORY >> 20} MiB, which a replay "
                "would allocate: record it with smaller buffers"
            )

    def _take_call(self, entry: dict[str, Any]) -> None:
        name = entry["f"]
        if not isinstance(name, str) or not re.fullmatch(r"doca_\w{1,100}", name, re.ASCII):
            raise ValueError("f is no name of a function of DOCA")
        function, number = self._functions.functions.get(name), self._number(entry["call"])
        thread, at_ns, took_ns = (_count(entry[key]) for key in ("thread", "at_ns", "took_ns"))
        given, out, entries = (_values(entry.get(key, [])) for key in ("args", "out", "list"))
        result = _values([entry["result"]])[0]
        call = Call(
            number, function, name, thread, at_ns, took_ns, given, result, out, entries,
            self._waiting.pop(number, []),
        )  # fmt: skip
        if function is not None:
            _check_call(call, function)
        for callback in call.callbacks:
            callback.parent = call
        if outer := _count(entry["in"]):
            self._callbacks[outer].calls.append(call)
        else:
            self.trace.calls.append(call)

    def _take_callback(self, entry: dict[str, Any]) -> None:
        function = self._functions.callbacks.get(entry["f"])
        number = self._number(entry["callback"])
        if function is None:
            raise ValueError("f is no type of callback that this dgkit knows")
        callback = Callback(
            number, function, _count(entry["cb"]), _values(entry["args"]),
            entries=_values(entry.get("list", [])),
        )  # fmt: skip
        if len(callback.arguments) != len(function.parameters):
            raise ValueError(f"{function.name} has {len(function.parameters)} arguments")
        _check_arguments(callback.arguments, function)
        self._callbacks[number] = callback
        self._waiting.setdefault(_count(entry["in"]), []).append(callback)

    def _number(self, value: Any) -> int:
        number = _count(value)
        if number in self._seen:
            raise ValueError(f"{number} is the number of another call")
        self._seen.add(number)
        return number


def number_of(value: Any) -> int:
    """Return the number in "dma:3"."""
    match = _VALUE.fullmatch(value) if isinstance(value, str) else None
    return int(match[2]) if match and match[2] else 0


def class_of(value: Any) -> str:
    """Return the class in "dma:3"."""
    return value.partition(":")[0] if isinstance(value, str) else ""


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r:.40} is not a number from 0 to 2**63 - 1")
    return value


def _values(values: Any) -> list[Any]:
    """Check a list of arguments: numbers, names of values, true and null."""
    if not isinstance(values, list) or len(values) > _MOST_VALUES:
        raise ValueError(f"the arguments are no list of at most {_MOST_VALUES} values")
    for value in values:
        if value is None or value is True:
            continue
        if type(value) is int and -(1 << 63) <= value < 1 << 64:
            continue
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise ValueError(f"{value!r:.40} is no value of an argument")
    return values


def _check_call(call: Call, function: Function) -> None:
    if len(call.arguments) != len(function.parameters):
        raise ValueError(f"{function.name} has {len(function.parameters)} arguments")
    _check_arguments(call.arguments, function)
    if function.result.kind == "r" and type(call.result) is not int:
        raise ValueError("the result is no error code")
    given = [i for i in function.outputs if call.arguments[i] is not None]
    if call.outputs and len(call.outputs) != len(given):
        raise ValueError(f"{function.name} returns {len(given)} values through pointers")


_CLASSES = {"d": "data", "e": "data", "b": "blob", "f": "fd", "s": "text", "c": "cb", "g": "gid"}


def _check_arguments(arguments: list[Any], function: Function) -> None:
    """Check that each argument is a value of its parameter's kind."""
    for value, parameter in zip(arguments, function.parameters, strict=True):
        kind, expected = parameter.kind, _CLASSES.get(parameter.kind)
        if kind in "hl":
            expected = parameter.handle
        if kind == "i" and type(value) is not int:
            raise ValueError(f"{parameter.name} of {function.name} is no number")
        if kind == "a" and value is not None and class_of(value) not in ("mem", "addr"):
            raise ValueError(f"{parameter.name} of {function.name} is no address")
        if expected and value is not None and class_of(value) != expected:
            raise ValueError(f"{parameter.name} of {function.name} is no {expected}")
        if kind not in "hlidebfgsca" and value not in (None, True):
            raise ValueError(f"{parameter.name} of {function.name} is neither true nor null")
