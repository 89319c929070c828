# SPDX-License-Identifier: Apache-2.0
"""Replay the calls of a trace against softdoca, in a process of its own.

Calls are replayed in the order in which they ended, in one thread. Of doca_pe_progress, which a
program calls until something happens, only those calls are replayed in which a callback was called,
and as often as it takes; of calls that return AGAIN, only those that returned something else. A
callback that comes is looked for among those that were recorded, and the program's calls in it are
replayed in it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

from ..child import end_with_starter
from .causal_order import Gate, Requirement
from .functions import Function, Functions, Parameter, load
from .replay_network import OF_FRAMES, Network, is_of_frames
from .replay_peers import Peers
from .trace_file import Call, Callback, Trace, number_of, read_trace
from .trace_values import CannotReplayError, Values, event_key, is_subject

PARTS = ("common", "dma", "comch", "rdma", "verbs", "gpunetio", "eth", "flow")
_WAIT_S, _LEAST_WAIT_S = 5.0, 0.1  # for a callback: less with each that did not come
_IDLE_S = 0.05  # then other engines make progress, too: they may have to send what is waited for
_REPORTED_CALLS = 1000  # between two reports of progress
_DRAIN = 1000  # calls of doca_pe_progress at the end
_MOST_ADDRESS_SPACE = 16 << 30
_SUCCESS, _AGAIN = 0, 5
_PASSING = (1, 3)  # DOCA_CTX_STATE_STARTING, _STOPPING
_NOT_COMPARED = {  # identities, and a time
    *("vhca_id", "sf_index", "error_margin_nsecs", "mkey", "umem_id", "id", "wait_on_time_value"),
    *("doca_verbs_qp_get_qpn", "doca_verbs_cq_get_cqn"),
}
_OF_KERNELS = "kernels are not replayed, and a callback before it may wait for one"
_OF_FRAMES = "a callback before it tells of a frame that no rule of the replay brought"
_BATCH = "doca_eth_txq_task_batch_send_allocate"
_DATA_PATH = ("doca_pe_progress", "doca_task_submit", "doca_task_submit_ex")
_PROGRESS, _GET_STATE = "doca_pe_progress", "doca_ctx_get_state"


class Replay:
    """Replays one trace.

    Args:
        functions: What is known of the functions.
        plan: With what it is replayed at the same time: comparison.py.
    """

    def __init__(self, trace: Trace, functions: Functions, plan: dict[str, Any]) -> None:
        self._trace, self._plan, self._doca = trace, plan, ctypes.CDLL(None)
        self._peers = Peers(Path(plan["counts"]).parent, plan["index"], plan["verbs"])
        self._network = Network(trace) if trace.has_network else None
        self._values = Values(trace, functions.callbacks, self._deliver, self._peers, self._network)
        self._batches: dict[int, tuple[int, int]] = {}  # arrays of frames to send, and their sizes
        self._of_frames = 0  # callbacks for received frames that are being replayed
        self._expected: dict[tuple[str, int, Any], deque[Callback]] = defaultdict(deque)
        self._order: dict[tuple[str, Any], deque[Callback]] = defaultdict(deque)
        recorded = (callback for call in trace.every_call() for callback in call.callbacks)
        for callback in sorted(recorded, key=lambda callback: callback.number):
            self._expected[event_key(callback)].append(callback)
            self._order[_caller_of(callback)].append(callback)
        self._states = [call for call in trace.every_call() if call.name == _GET_STATE]
        self._missing = 0  # callbacks
        self._ended = ""  # why nothing more is replayed
        self._current: Call | None = None
        self._failure: BaseException | None = None
        self._engines: list[Any] = []

    def run(self) -> None:
        """Replay all calls, then whatever is left to be completed."""
        plan = self._plan
        waits = [Requirement(**wait) for wait in plan["waits"]]
        gate = Gate(Path(plan["counts"]), plan["index"], waits, self._progress_all)
        count = len(self._trace.calls)
        for index, call in enumerate(self._trace.calls):
            gate.wait(index)
            self._replay(call)
            gate.done(index + 1)
            if index % _REPORTED_CALLS == 0:
                _report(count + index, 2 * count)
        for _ in range(_DRAIN):
            if not self._progress_all():
                break
        self._check_failure()
        for queue in self._expected.values():
            for callback in queue:
                assert callback.parent is not None
                self._miss(callback.parent, callback)

    def _stop_replaying(self, why: str) -> None:
        """Stop replaying, since the next calls may need one that is not replayed."""
        self._ended = why
        self._peers.put("ended", b"")

    def _report_difference(
        self, kind: str, call: Call | None, recorded: str, replayed: str
    ) -> None:
        """Report a difference, unless a kernel that is not replayed may have caused it."""
        is_of_data = call is None or call.name in _DATA_PATH
        if self._plan["kernels"] and (is_of_data or self._peers.get("ended") is not None):
            self._stop_replaying(_OF_KERNELS)
        elif self._ended != _OF_FRAMES:
            _write_difference(kind, call, recorded, replayed)

    # ---- calls ----

    def _replay(self, call: Call) -> None:
        if call.is_idle:
            return
        outer, self._current = self._current, call
        try:
            self._call(call)
        except CannotReplayError as reason:
            _write_note("skipped", call, str(reason))
        finally:
            self._current = outer
        self._check_failure()

    def _call(self, call: Call) -> None:
        function = call.function
        if function is None:
            raise CannotReplayError("this dgkit does not know the function")
        if why := self._ended or function.why_not_replayed:
            raise CannotReplayError(why)
        arguments = self._values.arguments(call, function)
        _write({"at": call.number, "f": call.name})
        call.is_replayed = True
        if call.name == "doca_task_batch_submit":
            self._fill_batch(call, arguments[0])
        if call.name == _PROGRESS:
            self._progress(call, arguments[0])
        else:
            if call.name == "doca_pe_destroy":
                self._engines = [e for e in self._engines if e.value != arguments[0].value]
            self._compare(
                call, function, self._call_until_final(call, function, arguments), arguments
            )
        self._note_missing(call)

    def _fill_batch(self, call: Call, batch: Any) -> None:
        """Write the frames of a batch, as the program did."""
        array, size = self._batches.get(batch.value, (0, 0))
        if not self._doca.doca_task_batch_get_ctx(batch):  # it was freed, and its array with it
            return
        if len(call.entries) > size:
            raise CannotReplayError("the trace has more frames than its batch")
        self._values.fill_list(array, call.entries)

    def _call_until_final(self, call: Call, function: Function, arguments: list[Any]) -> int:
        """Call a function until its result is final or the time is up; return the last result."""
        deadline = time.monotonic() + _WAIT_S
        result = self._invoke(function, arguments)
        while function.result.kind == "r" and time.monotonic() < deadline:
            if result != _AGAIN and not _is_passing(call, arguments):
                break
            self._progress_all()
            result = self._invoke(function, arguments)
        return result

    def _invoke(self, function: Function, arguments: list[Any]) -> int:
        entry = getattr(self._doca, function.name)
        entry.restype = None if function.result.kind == "v" else ctypes.c_uint64
        result: int = entry(*arguments) or 0
        if function.result.kind in "ri":
            result &= (1 << function.result.bits) - 1
        return result

    def _progress(self, call: Call, engine: Any) -> None:
        """Make progress until the recorded callbacks were called."""
        patience = max(_WAIT_S / (1 + self._missing), _LEAST_WAIT_S)
        if self._plan["kernels"]:
            patience = _LEAST_WAIT_S
        if self._network:
            self._network.send(call.callbacks)
        start = time.monotonic()
        self._doca.doca_pe_progress(engine)
        while not all(callback.is_done for callback in call.callbacks):
            waited = time.monotonic() - start
            if self._failure is not None or waited > patience:
                break
            if not self._doca.doca_pe_progress(engine) & 0xFF:
                time.sleep(0.0001)
                if waited > _IDLE_S:
                    self._progress_all()

    def _progress_all(self) -> bool:
        """Call doca_pe_progress once for each engine; return whether anything happened."""
        outer, self._current = self._current, None
        count = sum(self._doca.doca_pe_progress(engine) & 0xFF for engine in self._engines)
        self._current = outer
        return bool(count)

    def _note_missing(self, call: Call) -> None:
        for callback in call.callbacks:
            if not callback.is_done and call.name == _PROGRESS:
                callback.is_done = True
                self._missing += 1
                self._expected[event_key(callback)].remove(callback)
                self._miss(call, callback)

    def _miss(self, call: Call, callback: Callback) -> None:
        """Report a recorded callback that was not called."""
        if is_of_frames(callback):
            self._stop_replaying(_OF_FRAMES)
        self._report_difference("missing callback", call, _describe(callback), "no callback")

    # ---- results ----

    def _compare(self, call: Call, function: Function, result: int, arguments: list[Any]) -> None:
        kind = function.result.kind
        if kind in "ri":
            recorded = call.result & ((1 << function.result.bits) - 1)
            self._values.note_number(call, result)
            is_of_frame = kind == "i" and self._of_frames
            if recorded != result and not is_of_frame and function.name not in _NOT_COMPARED:
                as_text = _code_text if kind == "r" else str
                self._report_difference("result", call, as_text(recorded), as_text(result))
        elif kind != "v":
            self._compare_value(call, function.result, result, call.result, is_new=False)
        if call.result != _SUCCESS or result != _SUCCESS or kind != "r":
            return
        self._compare_outputs(call, function, arguments)
        if function.name == "doca_pe_create":
            self._engines.append(ctypes.c_void_p(self._values.handles[call.outputs[0]]))

    def _compare_outputs(self, call: Call, function: Function, arguments: list[Any]) -> None:
        given = [i for i in function.outputs if call.arguments[i] is not None]
        numbers = self._trace.returned.get(call.number, ())
        for index, recorded in zip(given, call.outputs, strict=False):
            parameter = function.parameters[index]
            found = int.from_bytes(bytes(arguments[index])[: _size(parameter)], "little")
            if parameter.kind == "B":
                size = int.from_bytes(bytes(arguments[index + 1])[:8], "little")
                self._values.put_blob(recorded, ctypes.string_at(found, size))
            elif parameter.kind == "F":
                self._values.files[recorded] = found
            elif parameter.kind == "L":
                if call.entries:
                    count = int.from_bytes(bytes(arguments[index + 1])[:4], "little")
                    self._take_list(call.entries, found, count)
                self._values.take_handle(recorded, found)
                if call.name == _BATCH:
                    batch = int.from_bytes(bytes(arguments[-1])[:8], "little")
                    self._batches[batch] = found, call.arguments[1] & 0xFFFF
            elif parameter.kind == "A" and number_of(recorded) in numbers:
                self._values.take_memory(number_of(recorded), found, call.arguments[1])
            elif parameter.kind != "N" and not self._is_early(call, found):
                self._compare_value(call, parameter, found, recorded, is_new=function.makes)
        if function.name == "doca_mmap_create_from_export" and numbers:
            self._values.import_memory(self._values.handles[call.outputs[0]], numbers[0])

    def _is_early(self, call: Call, state: int) -> bool:
        """Return whether a context is in a state already that was recorded a little later."""
        return bool(call.name == _GET_STATE and call.outputs[0] in _PASSING) and any(
            later.number > call.number
            and later.arguments == call.arguments
            and later.outputs == [state]
            for later in self._states
        )

    def _compare_value(
        self, call: Call, parameter: Parameter, found: int, recorded: Any, *, is_new: bool
    ) -> None:
        kind, name = parameter.kind, parameter.name
        value: Any = found
        if kind in "hHl":
            value = self._values.name_of_handle(found, recorded, is_new=is_new)
        elif kind in "dD":
            value = f"data:{found}"
        elif kind in "aA":
            value = self._values.name_of_address(found, recorded)
        elif kind in "spx":
            value = True if found else None
        elif name in _NOT_COMPARED:
            return
        if value != recorded and not (self._of_frames and kind in "i1248aA"):
            what = "state" if "doca_ctx_states" in parameter.type else "value"
            label = f"{name} = " if name else ""
            self._report_difference(
                what, call, f"{label}{_value_text(recorded)}", f"{label}{_value_text(value)}"
            )

    def _take_list(self, names: list[Any], address: int, count: int) -> None:
        found = (ctypes.c_uint64 * count).from_address(address)
        for name, entry in zip(names, found, strict=False):
            self._values.take_handle(name, entry)

    # ---- callbacks ----

    def _deliver(self, function: Function, slot: int, given: list[int]) -> int:
        """Handle a callback: find the recorded one, compare it, and replay the calls in it."""
        try:
            if self._failure is None:
                return self._handle_callback(function, slot, given)
        except BaseException as error:  # ctypes would print and forget it
            self._failure = error
        return 0

    def _handle_callback(self, function: Function, slot: int, given: list[int]) -> int:
        callback = self._match(function, slot, given)
        if callback is None and function.name.startswith(OF_FRAMES):
            return 0  # a frame more than was recorded
        if callback is None:
            what = f"{function.name} cb:{slot}"
            self._report_difference("additional callback", self._current, "no callback", what)
            return 0
        callback.is_done = True
        of_frames = is_of_frames(callback)
        self._of_frames += of_frames
        self._note_order(callback)
        for parameter, value, recorded in zip(
            function.parameters, given, callback.arguments, strict=True
        ):
            self._compare_argument(callback, parameter, value, recorded)
            if parameter.kind == "l" and value and callback.entries:
                _, count, *_ = given  # of a callback with a list: its events, a uint16_t
                self._take_list(callback.entries, value, count & 0xFFFF)
        for call in callback.calls:
            self._replay(call)
        self._of_frames -= of_frames
        return callback.result

    def _match(self, function: Function, slot: int, given: list[int]) -> Callback | None:
        """Return the first recorded callback for this object, or for one not replayed yet.

        Callbacks wait by their function, the number of their slot and the name of the object.
        """
        address = next(
            (v for p, v in zip(function.parameters, given, strict=True) if is_subject(p)), None
        )
        name = None if address is None else self._values.names.get(address)
        queue = self._expected.get((function.name, slot, name))
        if not queue or not self._is_due(queue[0]):
            queue = next(
                (
                    other
                    for (type_, number, subject), other in self._expected.items()
                    if other and (type_, number) == (function.name, slot)
                    and self._is_due(other[0])
                    and subject not in self._values.handles
                ),
                None,
            )  # fmt: skip
        return queue.popleft() if queue else None

    @staticmethod
    def _is_due(callback: Callback) -> bool:
        """Return whether the trace allows a callback now."""
        assert callback.parent is not None
        return callback.parent.is_replayed or callback.parent.name == _PROGRESS

    def _note_order(self, callback: Callback) -> None:
        """Report a difference if a callback came earlier than in the trace."""
        parent, current = callback.parent, self._current
        assert parent is not None
        if current is not None and current.name != parent.name:
            self._report_difference(
                "order", parent, f"{_describe(callback)} in {parent.name}", f"in {current.name}"
            )
            return
        waiting = self._order[_caller_of(callback)]
        while waiting and waiting[0].is_done and waiting[0] is not callback:
            waiting.popleft()
        if waiting and waiting[0] is not callback:
            self._report_difference(
                "order", parent, f"{_describe(waiting[0])}, then {_describe(callback)}", "reversed"
            )

    def _compare_argument(
        self, callback: Callback, parameter: Parameter, value: int, recorded: Any
    ) -> None:
        assert callback.parent is not None
        if parameter.kind == "i":
            value &= (1 << parameter.bits) - 1
        is_new = parameter.kind in "hl" and not is_subject(parameter)
        self._compare_value(callback.parent, parameter, value, recorded, is_new=is_new)

    def _check_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def _is_passing(call: Call, arguments: list[Any]) -> bool:
    """Return whether a context is in a transient state other than the recorded one."""
    if call.name != _GET_STATE or not call.outputs:
        return False
    state = bytes(arguments[1])[0]
    return state in _PASSING and state != call.outputs[0]


def _caller_of(callback: Callback) -> tuple[str, Any]:
    """Return the function that called a callback, and its progress engine or context."""
    assert callback.parent is not None
    return callback.parent.name, (callback.parent.arguments or [None])[0]


def _size(parameter: Parameter) -> int:
    return int(parameter.kind) if parameter.kind in "1248" else 4 if parameter.kind == "F" else 8


def _describe(callback: Callback) -> str:
    objects = [value for value in callback.arguments if isinstance(value, str)]
    return f"{callback.function.name}({', '.join(objects)})"


def _code_text(value: int) -> str:
    from ..doca.codes import Code

    return Code(value).name if value in set(Code) else str(value)


def _value_text(value: Any) -> str:
    return "NULL" if value is None else "a pointer" if value is True else str(value)


# ---- what the parent process reads ----


def _write(entry: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(entry) + "\n")
    sys.stdout.flush()


def _write_difference(kind: str, call: Call | None, recorded: str, replayed: str) -> None:
    place = {"call": call.number, "f": call.name} if call else {"call": 0, "f": ""}
    _write({"difference": kind, **place, "recorded": recorded, "replayed": replayed})


def _report(done: int, total: int) -> None:
    _write({"progress": [done, total]})


def _write_note(kind: str, call: Call, reason: str) -> None:
    _write({kind: call.number, "f": call.name, "reason": reason})


def main(fd: int) -> int:
    """Replay a trace by a plan of comparison.py; write what differs, a JSON object a line."""
    # a call of softdoca may wait for ever: then nothing reads the socket's end
    end_with_starter()
    os.dup2(fd, 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # logs of the libraries
    with os.fdopen(fd, "rb") as file:
        plan = json.loads(file.readline())
    try:
        _replay(Path(plan["path"]), plan)
    except Exception as error:
        _write({"failed": f"{type(error).__name__}: {error}"})
        return 1
    _write({"done": True})
    return 0


def _replay(path: Path, plan: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_ADDRESS_SPACE, _MOST_ADDRESS_SPACE))
    folder = Path(os.environ["SOFTDOCA_LIB"])
    for name in ("ibverbs/libibverbs.so.1", *(f"libdoca_{part}.so.3" for part in PARTS)):
        ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
    functions = load()
    trace = read_trace(path, functions, lambda done, total: _report(done, 2 * total))
    Replay(trace, functions, plan).run()
