# SPDX-License-Identifier: Apache-2.0
"""Values of a trace in the process that replays it: handles, memory, callbacks, descriptors.

A value of a trace is a name, never an address, so what the trace says can reach no memory but the
buffers that are allocated here.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import Any

from .functions import Function, Parameter
from .replay_network import Network
from .replay_peers import GID_BYTES, Peers
from .trace_file import Call, Callback, Trace, class_of, number_of

_MOST_PAYLOAD = 1 << 20
_LEAST_PAYLOAD = 256  # the longest text that DOCA returns
_OTHER_PCI = b"ffff:ff:1f.7"  # no device's
_OWN_ADDRESSES = (b"127.0.0.1", b"::1")  # by enum doca_rdma_addr_type
_GPU_PCI = b"00:00.0"  # of an emulated GPU
_FLOW_MODE = b"vnf"  # the one that softdoca has
_LIMITED = {"doca_gpu_mem_alloc": 1}  # the parameter that is a size
_MOST_ALLOCATED = 256 << 20
_CHECKED = "doca_buf_"  # functions that check addresses against the memory map
_OUT_BYTES = 64  # of a value that is returned through a pointer: more than any
_MASK = (1 << 64) - 1


class _Gid(ctypes.Structure):
    _fields_ = (("raw", ctypes.c_ubyte * GID_BYTES),)


Deliver = Callable[[Function, int, list[int]], int]


class CannotReplayError(Exception):
    """A call is not replayed. The message says why."""


class Values:
    """Maps the values of a trace to those of this process, and back.

    Args:
        types: The types of callbacks.
        deliver: Called with each callback.
        peers: The replays at the same time.
        network: What Ethernet queues and rules need, or None.
    """

    def __init__(
        self,
        trace: Trace,
        types: dict[str, Function],
        deliver: Deliver,
        peers: Peers,
        network: Network | None,
    ) -> None:
        self._trace, self._types, self._deliver, self._peers = trace, types, deliver, peers
        self._network = network
        self.handles: dict[str, int] = {}  # "dma:3": its address
        self.names: dict[int, str] = {}  # the newest of each address
        self.files: dict[str, int] = {}
        self._memory: dict[int, mmap.mmap] = {}
        self._addresses: dict[str, int] = {}  # the start of each "mem:1", and each "addr:2"
        self._callbacks: dict[tuple[str, int], Any] = {}
        self._kept: list[Any] = []

    # ---- arguments ----

    def arguments(self, call: Call, function: Function) -> list[Any]:
        """Return the arguments for ctypes.

        Raises:
            CannotReplayError: One of them cannot be had here.
        """
        given = [
            self._argument(call, index, parameter)
            for index, parameter in enumerate(function.parameters)
        ]
        for index, parameter in enumerate(function.parameters[:-1]):
            if parameter.kind == "b" and call.arguments[index] is not None:
                given[index + 1] = ctypes.c_uint64(len(given[index]) - 1)
        return given

    def _argument(self, call: Call, index: int, parameter: Parameter) -> Any:
        value, kind = call.arguments[index], parameter.kind
        if value is None:
            return ctypes.c_void_p(None)
        if call.name in _LIMITED and index == _LIMITED[call.name] and value > _MOST_ALLOCATED:
            raise CannotReplayError(f"{value} bytes are more than a replay allocates")
        if call.name == "doca_verbs_qp_attr_set_dest_qp_num" and index == 1:
            return ctypes.c_uint64(self._queue_pair(value))
        if kind == "i":
            return ctypes.c_uint64(value & _MASK)
        if kind == "d":
            return ctypes.c_uint64(number_of(value))
        if kind == "e":
            return ctypes.pointer(ctypes.c_uint64(number_of(value)))
        if kind in "hl":
            return ctypes.c_void_p(self._find(self.handles, value))
        if kind == "a":
            return ctypes.c_void_p(self._address(call, index))
        if kind == "b":
            return ctypes.create_string_buffer(self._blob(value))
        if kind == "f":
            return ctypes.c_int(self._find(self.files, value))
        if kind == "g":
            return self._gid()
        if kind == "s":
            return ctypes.create_string_buffer(self._text(call))
        if kind == "p":
            return ctypes.create_string_buffer(_payload_size(call))
        if kind == "c":
            return self._callback(parameter, number_of(value))
        if kind == "x" and "*" not in parameter.type:
            raise CannotReplayError(f"the trace lacks {parameter.name}")
        if kind == "x" and self._network and "struct doca_flow_" in parameter.type:
            if call.result and "const" in parameter.type:
                raise CannotReplayError(f"it failed, and the trace lacks {parameter.name}")
            return self._network.structure(parameter)
        return ctypes.create_string_buffer(_OUT_BYTES)

    def _find(self, table: dict[str, Any], value: str) -> Any:
        verbs_object = self._peers.verbs_object(class_of(value))
        if verbs_object and value not in table:
            self.take_handle(value, verbs_object)
        if value not in table:
            raise CannotReplayError(f"no call that was replayed returned its {class_of(value)}")
        return table[value]

    def put_blob(self, name: str, content: bytes) -> None:
        """Store a descriptor where concurrent replays can read it."""
        self._peers.put(name, content)

    def _blob(self, name: str) -> bytes:
        found = self._peers.get(name)
        if found is None:
            raise CannotReplayError("no call that was replayed exported its descriptor")
        return found

    def note_number(self, call: Call, number: int) -> None:
        """Store the number of a queue pair where concurrent replays can read it."""
        if call.name == "doca_verbs_qp_get_qpn":
            self._peers.put_queue_pair(call.result, number)

    def _queue_pair(self, recorded: int) -> int:
        number = self._peers.queue_pair(recorded)
        if number is None:
            raise CannotReplayError("no call that was replayed returned its queue pair's number")
        return number

    def _gid(self) -> Any:
        found = self._peers.gid()
        if found is None:
            raise CannotReplayError("there is no device of libibverbs")
        return _Gid.from_buffer_copy(found)

    def _text(self, call: Call) -> bytes:
        """Return an address: this machine's, or the device's that was found equal; or a name."""
        if call.name == "doca_rdma_addr_create" and call.result == 0:
            kind = call.arguments[0]
            if kind >= len(_OWN_ADDRESSES):
                raise CannotReplayError("it names the GID of another machine")
            return _OWN_ADDRESSES[kind]
        if call.name == "doca_gpu_create" and call.result == 0:
            return _GPU_PCI
        if call.name == "doca_flow_cfg_set_mode_args" and call.result == 0:
            return _FLOW_MODE
        if not call.name.endswith("_is_equal_pci_addr"):
            return b"trace-server"
        if not call.outputs or call.outputs[0] != 1:
            return _OTHER_PCI
        out = ctypes.create_string_buffer(_LEAST_PAYLOAD)
        getter = call.name.replace("_is_equal_pci_addr", "_get_pci_addr_str")
        getattr(ctypes.CDLL(None), getter)(
            ctypes.c_void_p(self._find(self.handles, call.arguments[0])), out
        )
        return out.value

    def _callback(self, parameter: Parameter, number: int) -> Any:
        name = parameter.type.replace("*", "").strip()
        if (name, number) not in self._callbacks:
            function = self._types[name]
            count = len(function.parameters)
            kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * count)
            self._callbacks[name, number] = kind(
                lambda *given: self._deliver(function, number, list(given))
            )
        return self._callbacks[name, number]

    # ---- memory ----

    def _address(self, call: Call, index: int) -> int:
        value = call.arguments[index]
        if class_of(value) == "addr":
            if value not in self._addresses:
                self._kept.append(ctypes.create_string_buffer(_OUT_BYTES))
                self._addresses[value] = ctypes.addressof(self._kept[-1])
            return self._addresses[value]
        number, offset = number_of(value), int(value.partition("+")[2] or 0)
        size = self._trace.memory.get(number)
        if size is None:
            raise CannotReplayError(f"the trace does not define the memory of {value}")
        needed = 0 if call.name.startswith(_CHECKED) else _bytes_at(call, index)
        if offset + needed > size:
            raise CannotReplayError(f"{value} and {needed} bytes are beyond the memory's {size}")
        return self._start(number, size) + offset

    def _start(self, number: int, size: int) -> int:
        name = f"mem:{number}"
        if name not in self._addresses:
            self._memory[number] = mmap.mmap(-1, max(size, 8))
            start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory[number]))
            self._addresses[name] = start
        return self._addresses[name]

    def import_memory(self, handle: int, number: int) -> None:
        """Assign a number of the trace to the memory of an imported map."""
        address, size = ctypes.c_uint64(), ctypes.c_uint64()
        doca = ctypes.CDLL(None)
        if not doca.doca_mmap_get_memrange(
            ctypes.c_void_p(handle), ctypes.byref(address), ctypes.byref(size)
        ):
            self.take_memory(number, address.value, size.value)

    def take_memory(self, number: int, address: int, size: int) -> None:
        """Assign a number of the trace to memory that a call returned."""
        self._addresses[f"mem:{number}"] = address
        self._trace.memory[number] = size

    def name_of_address(self, address: int, recorded: Any) -> Any:
        """Return the name of an address: the recorded name if it can be this address."""
        if not address:
            return None
        name, _, offset = (recorded or "").partition("+")
        start = self._addresses.get(name)
        if start is not None and start + int(offset or 0) == address:
            return recorded
        is_new = start is None and class_of(recorded) == "addr"
        if is_new and address not in self._addresses.values():
            self._addresses[name] = address
            return recorded
        for number, size in self._trace.memory.items():
            start = self._addresses.get(f"mem:{number}")
            if start is not None and 0 <= address - start <= size:
                return f"mem:{number}+{address - start}"
        return "another address"

    # ---- handles ----

    def fill_list(self, address: int, names: list[str]) -> None:
        """Store the handles of the named objects in softdoca's array at `address`.

        The caller has checked that they fit.
        """
        found = [self._find(self.handles, name) for name in names]
        (ctypes.c_uint64 * len(found)).from_address(address)[:] = found

    def take_handle(self, name: str, address: int) -> None:
        """Assign a name of the trace to an object."""
        self.handles[name] = address
        self.names[address] = name

    def name_of_handle(self, address: int, recorded: Any, *, is_new: bool) -> Any:
        """Return the name of a handle; `recorded` if it is new."""
        if not address:
            return None
        if recorded is None:
            return "an object"
        if is_new or recorded not in self.handles:
            self.take_handle(recorded, address)
            return recorded
        return recorded if self.handles[recorded] == address else "another object"


def _payload_size(call: Call) -> int:
    """Return a buffer size that suffices for a call: its largest number, which may be a size."""
    numbers = [value for value in call.arguments if type(value) is int]
    size = max([_LEAST_PAYLOAD, *numbers])
    if size > _MOST_PAYLOAD:
        raise CannotReplayError(f"{size} bytes are more than the {_MOST_PAYLOAD} of a replay")
    return size


def _bytes_at(call: Call, index: int) -> int:
    """Return the size of the memory at an address: the number that follows in the call, or 8."""
    after = call.arguments[index + 1 : index + 2]
    return after[0] & _MASK if after and type(after[0]) is int else 8


def event_key(callback: Callback) -> tuple[str, int, Any]:
    """Return what identifies a callback: its type, the program's function, the first object."""
    pairs = zip(callback.arguments, callback.function.parameters, strict=True)
    subject = next((value for value, parameter in pairs if is_subject(parameter)), None)
    return callback.function.name, callback.slot, subject


def is_subject(parameter: Parameter) -> bool:
    """Return whether an argument is the object that a callback reports on, not event or frame."""
    name = parameter.name
    return parameter.kind == "h" and not name.startswith("event") and name != "pkt"
