# SPDX-License-Identifier: Apache-2.0
"""Lab 1, find the bytes: a linked list in another process's memory, read by DMA.

All numbers are little-endian. The header has 32 bytes at offset 0: magic (8 bytes), version (u16),
flags (u16), count of live nodes (u32), offset of the first node (u64, 0 if none), CRC-32 of the
preceding 24 bytes (u32), zero (u32). A node has 16 bytes, followed by a payload: offset of the next
node (u64, 0 at the end), key (u32), size of the payload (u16), kind (u16: 1 live, 2 deleted).
"""

from __future__ import annotations

import contextlib
import random
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any

from ..dma import Device
from ..memory import empty
from ..unique import Closable
from . import concepts, submission, verdict
from .verdict import expect

MAGIC = b"DGKITLST"
HEADER = struct.Struct("<8sHHIQ")  # the CRC and four zero bytes follow
NODE = struct.Struct("<QIHH")
LIVE, DELETED = 1, 2
_HEADER_SIZE = 32
_VERSION = 3
_FIELDS = {"version": (8, 10), "count": (12, 16), "first": (16, 24)}
_TIMEOUT_S = 10.0

Node = tuple[int, int, int, bytes]  # offset, key, kind, payload


class ForeignMemory(submission.Served, Closable):
    """Memory that is registered, exported, imported, and then read by DMA.

    Attributes:
        descriptor: Descriptor that was given to the importer.
        size: Its size in bytes.
        reads: Offset and size of each read.
    """

    methods = ("read", "length")

    def __init__(self, image: bytes) -> None:
        self.size, self.reads = len(image), list[tuple[int, int]]()
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            device = stack.enter_context(Device("soft"))
            memory = stack.enter_context(empty(self.size, dtype="u1"))
            memory.array[:] = list(image)
            exported = device.register(memory, access="r")
            stack.callback(exported.close)
            self.descriptor = exported.export()
            self._remote = device.import_region(self.descriptor)
            stack.callback(self._remote.close)
            self._array = empty(self.size, dtype="u1")
            stack.callback(self._array.close)
            self._local = device.register(self._array, access="rw")
            stack.callback(self._local.close)
            self._queue = stack.enter_context(device.queue(depth=4))
            self._closing = stack.pop_all()

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes by DMA.

        Raises:
            BoundsError: The range exceeds the memory.
        """
        if type(offset) is not int or type(size) is not int:
            raise TypeError(f"read({offset!r}, {size!r}): offset and size must be int")
        if size < 1 or offset < 0:
            raise ValueError(f"read({offset}, {size}): offset must be 0 or more, size 1 or more")
        read = self._queue.read(self._local, self._remote, size=size, remote_offset=offset)
        read.wait(timeout=_TIMEOUT_S)
        self.reads.append((offset, size))
        return bytes(self._array.array[:size])

    def length(self) -> int:
        """Return its size in bytes."""
        return self.size

    def close(self) -> None:
        """Release the memory. Idempotent."""
        self._closing.close()


def hexdump(data: bytes, offset: int = 0, mark: tuple[int, int] = (0, 0)) -> str:
    """Return a hex view of bytes at an offset; the bytes from mark[0] to mark[1] are underlined."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{offset + start:08x}  {row.hex(' '):<47}  {text}")
        at = range(offset + start, offset + start + len(row))
        under = " ".join("^^" if mark[0] <= place < mark[1] else "  " for place in at)
        if under.strip():
            lines.append(f"{'':10}{under}".rstrip())
    return "\n".join(lines)


def example(magic: bytes = MAGIC) -> ForeignMemory:
    """Return the memory of the lab's example: a list of five nodes, one of them deleted."""
    return ForeignMemory(LinkedList(random.Random("story"), 5, deleted=1, magic=magic).image)


class LinkedList:
    """A linked list with nodes in random places.

    Args:
        rng: Random numbers.
        count: Number of nodes.
        deleted: Number of these nodes that are deleted.
        packed: Whether the nodes are close together.
        magic: The magic of the header, another one in each course.
    """

    def __init__(
        self,
        rng: random.Random,
        count: int,
        *,
        deleted: int = 0,
        packed: bool = False,
        magic: bytes = MAGIC,
    ) -> None:
        self._rng, self._magic = rng, magic
        dead = set(rng.sample(range(count), deleted))
        payloads = [rng.randbytes(rng.randrange(1, 40)) for _ in range(count)]
        places = self._places([NODE.size + len(payload) for payload in payloads], packed)
        self.nodes: list[Node] = [
            (place, rng.randrange(1 << 32), DELETED if n in dead else LIVE, payload)
            for n, (place, payload) in enumerate(zip(places, payloads, strict=True))
        ]
        self.data = bytearray(rng.randbytes(self._size))
        self.link()

    def _places(self, sizes: list[int], packed: bool) -> list[int]:
        """Choose the offset of each node, in random order and without overlaps."""
        order = list(range(len(sizes)))
        self._rng.shuffle(order)
        places, at = [0] * len(sizes), _HEADER_SIZE + 16
        for number in order:
            at += self._rng.randrange(8) if packed else self._rng.randrange(1, 200)
            places[number] = at
            at += sizes[number]
        self._size = at + self._rng.randrange(1, 64)
        return places

    @property
    def live(self) -> list[list[Any]]:
        """The key and the payload of each live node, in the list's order."""
        return [[key, payload] for _, key, kind, payload in self.nodes if kind == LIVE]

    @property
    def image(self) -> bytes:
        """The memory's bytes."""
        return bytes(self.data)

    def link(self) -> None:
        """Write all nodes and the header."""
        ends = [place for place, *_ in self.nodes[1:]] + [0]
        for (place, key, kind, payload), following in zip(self.nodes, ends, strict=False):
            NODE.pack_into(self.data, place, following, key, len(payload), kind)
            self.data[place + NODE.size : place + NODE.size + len(payload)] = payload
        self.header(len(self.live), self.nodes[0][0] if self.nodes else 0)

    def header(self, count: int, first: int) -> None:
        """Write a header with a correct CRC."""
        flags = self._rng.randrange(1 << 16)
        HEADER.pack_into(self.data, 0, self._magic, _VERSION, flags, count, first)
        crc = zlib.crc32(bytes(self.data[: HEADER.size]))
        struct.pack_into("<II", self.data, HEADER.size, crc, 0)


def damaged(image: bytes, place: int, bit: int = 0, *, new_crc: bool = False) -> bytes:
    """Return a memory with one bit changed.

    Args:
        image: The memory.
        place: The offset of the byte.
        bit: The number of the bit, from 0 to 7.
        new_crc: Whether to update the header's CRC, so that it does not show the damage.
    """
    data = bytearray(image)
    data[place] ^= 1 << bit
    if new_crc:
        struct.pack_into("<I", data, HEADER.size, zlib.crc32(data[: HEADER.size]))
    return bytes(data)


def pointed(image: bytes, place: int, target: int) -> bytes:
    """Return a memory in which the node at an offset points to a target, 0 to end the list."""
    data = bytearray(image)
    struct.pack_into("<Q", data, place, target)
    return bytes(data)


Function = Callable[..., Any]


def called(function: submission.RemoteFunction, memory: ForeignMemory, *args: Any) -> Any:
    """Return what a function returns for a memory and more arguments; close the memory."""
    with memory:
        return function(memory, *args)


def test_header(read_header: Function, magic: bytes) -> None:
    """Test read_header on undamaged headers: each field separately."""
    rng, report = verdict.seeded("header"), verdict.Report(concepts.LAB1)
    shapes = ((3, 0), (7, 2), (0, 0))
    lists = [LinkedList(rng, count, deleted=deleted, magic=magic) for count, deleted in shapes]
    lists[1].header(rng.randrange(1 << 24, 1 << 32), rng.randrange(1 << 40, 1 << 48))
    with submission.local(read_header) as (function,):
        for number, made in enumerate(lists, 1):
            with report.case(f"the header of memory {number}", "format", required=number <= 2):
                check_header(called(function, ForeignMemory(made.image)), made.image)
    report.finish()


def check_header(got: Any, image: bytes) -> None:
    """Expect a dict with the fields of the header of a memory."""
    expect(isinstance(got, dict), f"it returned {got!r:.80}; it must return a dict")
    _, version, _, count, first = HEADER.unpack_from(image)
    right = {"version": version, "count": count, "first": first}
    for name, value in right.items():
        if got.get(name) == value and type(got.get(name)) is int:
            continue
        start, end = _FIELDS[name]
        raise verdict.WrongAnswer(
            f"{name!r} is {got.get(name)!r:.60}; bytes {start} to {end - 1} say {value} "
            f"({value:#x})\n{hexdump(image[:_HEADER_SIZE], 0, (start, end))}"
        )


def check_refused(function: submission.RemoteFunction, image: bytes, mark: tuple[int, int]) -> str:
    """Expect a ValueError raised by the student's code, not one of dgkit; return its text."""
    try:
        got = called(function, ForeignMemory(image))
    except submission.SubmissionFailed as exc:
        kinds = exc.kinds
        expect("ValueError" in kinds and "DgkitError" not in kinds, f"no ValueError: {exc}")
        return str(exc).partition(" (cell ")[0]  # the line of code behind it has names, too
    start = mark[0] & ~15
    raise verdict.WrongAnswer(
        f"it returned {got!r:.60}; it must raise ValueError\n"
        + hexdump(image[start : start + 32], start, mark)
    )


def names_offset(said: str, *offsets: int) -> bool:
    """Return whether a text has one of these numbers, in decimal or hexadecimal notation."""
    words = re.findall(r"\w+", said.lower())
    return any(word in (str(each), f"{each:x}") for each in offsets for word in map(_bare, words))


def _bare(word: str) -> str:
    return word.removeprefix("0x").lstrip("0")


def test_node(read_node: Function) -> None:
    """Test read_node on single nodes: next, key, kind and payload."""
    rng, report = verdict.seeded("node"), verdict.Report(concepts.LAB1)
    made = LinkedList(rng, 4, deleted=1)
    following = [place for place, *_ in made.nodes[1:]] + [0]
    with submission.local(read_node) as (function,):
        for number, ((place, key, kind, payload), after) in enumerate(
            zip(made.nodes, following, strict=True), 1
        ):
            with report.case(f"node {number} of 4", "format", required=number == 1):
                got = called(function, ForeignMemory(made.image), place)
                right = [after, key, kind, payload]
                names = ("next", "key", "kind", "payload")
                expect(
                    isinstance(got, list) and len(got) == 4,
                    f"it returned {got!r:.80}; it must return (next, key, kind, payload)",
                )
                _check_node(got, dict(zip(names, right, strict=True)), made.image, place)
    report.finish()


def _check_node(got: list[Any], right: dict[str, Any], image: bytes, place: int) -> None:
    size = NODE.size + len(right["payload"])
    ranges = {"next": (0, 8), "key": (8, 12), "kind": (14, 16), "payload": (16, size)}
    for (name, value), answer in zip(right.items(), got, strict=True):
        if answer == value and type(answer) is type(value):
            continue
        start, end = (place + each for each in ranges[name])
        raise verdict.WrongAnswer(
            f"{name} is {answer!r:.60}; bytes {start} to {end - 1} say {value!r:.60}\n"
            + hexdump(image[place : place + size], place, (start, end))
        )


def test_walk(walk: Function, magic: bytes) -> None:
    """Test walk on undamaged lists: long, with deleted nodes, empty."""
    rng, report = verdict.seeded("walk"), verdict.Report(concepts.LAB1)
    shapes = {
        "a list of 6 nodes": LinkedList(rng, 6, magic=magic),
        "a list of 40 nodes": LinkedList(rng, 40, magic=magic),
        "a list with deleted nodes": LinkedList(rng, 12, deleted=5, magic=magic),
        "a list whose first node is deleted": _first_deleted(rng, magic),
        "an empty list": LinkedList(rng, 0, magic=magic),
    }
    with submission.local(walk) as (function,):
        for number, (title, made) in enumerate(shapes.items()):
            concept = "deleted" if "deleted" in title else "format"
            with report.case(title, concept, required=number == 0):
                check_walk(called(function, ForeignMemory(made.image)), made)
    report.finish()


def _first_deleted(rng: random.Random, magic: bytes) -> LinkedList:
    made = LinkedList(rng, 3, magic=magic)
    place, key, _, payload = made.nodes[0]
    made.nodes[0] = (place, key, DELETED, payload)
    made.link()
    return made


def check_walk(got: Any, made: LinkedList) -> None:
    """Expect key and payload of each live node."""
    expect(isinstance(got, list), f"it returned {got!r:.60}; it must return a list of pairs")
    live = [node for node in made.nodes if node[2] == LIVE]
    for number, (place, key, _, payload) in enumerate(live):
        answer = got[number] if number < len(got) else "nothing"
        if answer == [key, payload]:
            continue
        end = place + NODE.size + len(payload)
        raise verdict.WrongAnswer(
            f"element {number} is {answer!r:.80}; the live node at {place:#x} has key {key} and "
            f"{len(payload)} bytes\n{hexdump(made.image[place:end], place, (place + 8, end))}"
        )
    expect(len(got) == len(live), f"it has {len(got)} elements; {len(live)} nodes are live")


def test_few_reads(walk: Function, magic: bytes) -> None:
    """Test the bonus: walk with few reads, of at most four times the memory's size in total.

    The ratio is one read for each node, each payload and the header, divided by the reads made.
    """
    rng, report = verdict.seeded("few reads"), verdict.Report(concepts.LAB1)
    made = LinkedList(rng, 60, packed=True, magic=magic)
    memory = ForeignMemory(made.image)
    with (
        submission.local(walk) as (function,),
        report.case("a list of 60 nodes", "format", required=True),
    ):
        check_walk(called(function, memory), made)
        moved = sum(size for _, size in memory.reads)
        expect(moved <= 4 * memory.size, f"{moved} bytes were read; the limit is {4 * memory.size}")
    report.bonus((1 + 2 * len(made.nodes)) / max(1, len(memory.reads)))
    report.finish()
