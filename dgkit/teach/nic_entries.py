# SPDX-License-Identifier: Apache-2.0
"""Lab 7, part 4: work queue entries, keys, doorbells and completions of the software NIC.

The grader owns the NIC, both memories and the rings, and makes the stores that the submission asks
for. The formats are those of mlx5 adapters: providers/mlx5/mlx5dv.h of rdma-core.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..dma import Device
from ..gpu_initiated.mlx5 import CQE_SIZE, WQE_SIZE, decode_cqe, decode_wqe
from ..memory import empty
from ..unique import Closable
from . import concepts, submission, verdict
from .find_bytes import hexdump
from .verdict import expect

SLOTS = 8
_ROOM = 256  # bytes of each memory
_RECORD = 4  # bytes of a doorbell record
_BELL = 8  # bytes of a doorbell
_ERROR_BITS = 0x100  # what breaks a key: no key of this NIC differs in these bits alone
_TIMEOUT_S = 20.0
_MOST_REQUESTS = 4
OK, LOCAL_PROTECTION, FLUSHED, REMOTE_ACCESS = 0x00, 0x04, 0x05, 0x13

FIELDS = ("size", "local", "lkey", "remote", "rkey")
_BITS = dict(zip(FIELDS, (31, 64, 32, 64, 32), strict=True))

# Two entries of the software NIC, each with the last 16 bytes of its completion.
_RECORDED = bytes.fromhex("""
    00000008000401030000000800000000 00007fc37d1ba0650000100100000000
    000000120000100100007fc37d1bb026 000000000000001308000401000000d0
    00000108000401030000000800000000 00007fc37d1ba0340000110100000000
    000000090000100100007fc37d1bb09e 000000000000000508000401000100d0
""")

Function = Callable[..., Any]
Request = Sequence[int]  # size, local address, lkey, remote address, rkey


class Ring(submission.Served, Closable):
    """Rings of a queue pair of the software NIC: entries, doorbell record, doorbell, completions.

    Args:
        ordered: Whether an entry that is announced too early is a wrong answer at once.
    """

    methods = ("entry", "record", "doorbell", "completion")

    def __init__(self, *, ordered: bool = False) -> None:
        self._ordered = ordered
        self.posted = 0  # completions that the NIC must write
        self._pending: list[tuple[int | str, bytes]] = []
        self._stored: set[int] = set()
        self._announced = 0
        with contextlib.ExitStack() as stack:
            device = stack.enter_context(Device("soft"))
            self._nic = stack.enter_context(device.nic())
            self.near = stack.enter_context(empty(_ROOM, dtype="u1"))
            self.far = stack.enter_context(empty(_ROOM, dtype="u1"))
            self.lkey = self._nic.key(device.register(self.near), "r")
            self.rkey = self._nic.key(device.register(self.far, access="rw"), "w")
            self._queue = stack.enter_context(self._nic.queue_pair(SLOTS, doorbell="record"))
            peer = stack.enter_context(self._nic.queue_pair(SLOTS))
            self._queue.connect(peer)
            peer.connect(self._queue)
            self.far.array[:] = 0
            self._closing = stack.pop_all()

    @property
    def number(self) -> int:
        """Number of the queue pair."""
        return self._queue.number

    def request(self, rng: random.Random) -> list[int]:
        """Return a write of random near bytes; both keys are right."""
        size = rng.randrange(8, 32)
        at, to = rng.randrange(_ROOM - size), rng.randrange(_ROOM - size)
        self.near.array[:] = list(rng.randbytes(_ROOM))
        near, far = self.lkey, self.rkey
        return [size, near.address + at, near.number, far.address + to, far.number]

    def entry(self, slot: int, data: bytes) -> None:
        """Store an entry of up to 64 bytes into a place of the ring."""
        slot = _slot(slot)
        if type(data) is not bytes or not 0 < len(data) <= WQE_SIZE:
            raise ValueError(f"an entry is up to {WQE_SIZE} bytes, not {data!r:.60}")
        self._stored.add(slot)
        self._pending.append((slot, data))

    def record(self, data: bytes) -> None:
        """Store the doorbell record: 4 bytes, big-endian."""
        announced = int.from_bytes(_whole(data, _RECORD, "a doorbell record"), "big")
        if self._ordered:
            expect(
                (announced - 1) % SLOTS in self._stored,
                f"the record announces {announced} entries, and the last is not in its place yet",
            )
        self._announced = announced
        self._pending.append(("record", data))

    def doorbell(self, data: bytes) -> None:
        """Store 8 bytes into the doorbell of the NIC."""
        newest = next((each for place, each in self._pending if isinstance(place, int)), b"")
        right = _whole(data, _BELL, "a doorbell") == newest[:_BELL]
        if self._ordered:
            expect(
                right, f"the doorbell is {data.hex()}, not the first 8 bytes of the newest entry"
            )
            expect(
                self._announced == (self.posted + 1) & 0xFFFF,
                f"the doorbell rings for entry {self.posted} while the record announces "
                f"{self._announced} entries: the NIC may look at once",
            )
        self.posted += 1
        self._stored.clear()
        self._pending.append(("doorbell", data))

    def flush(self) -> None:
        """Make the stores of a post in the right order; the student's order was judged before."""
        order = {"record": 1, "doorbell": 2}
        for place, data in sorted(self._pending, key=lambda each: order.get(str(each[0]), 0)):
            self._queue.store(place, data)
        self._pending.clear()

    def completion(self, slot: int) -> bytes:
        """Return the 64 bytes of a place of the completion ring."""
        return self._queue.completions()[_slot(slot)]

    def post(self, request: Request, post_entry: submission.RemoteFunction, order: str) -> None:
        """Post an entry by a right `post_entry`, and wait until it is complete."""
        index = self.posted
        post_entry(self, index, self.number, *_ordered(request, order))
        self.flush()
        expect(self.posted == index + 1, f"post_entry did not ring the doorbell for entry {index}")
        self.wait()

    def wait(self) -> int:
        """Wait until the NIC has completed what was posted; return the last syndrome, or 0.

        Raises:
            WrongAnswer: It has not: the doorbell or the record does not announce the entry.
        """
        end = time.monotonic() + _TIMEOUT_S
        while (info := self._queue.info()).completions < self.posted and time.monotonic() < end:
            time.sleep(0.0005)
        expect(
            info.completions >= self.posted,
            f"the NIC took {info.taken} entries and wrote {info.completions} completions; "
            f"{self.posted} were announced\n{self._last()}",
        )
        last = decode_cqe(self._queue.completions()[(info.completions - 1) % SLOTS])
        return last.syndrome or OK

    def _last(self) -> str:
        """Return the newest entry as the NIC reads it."""
        return _read(self._queue.entries()[max(0, self.posted - 1) % SLOTS])

    def expect_bytes(self, request: Request) -> None:
        """Expect that a request has moved its bytes, and no other byte has changed."""
        size, local, _, remote, _ = request
        at, to = local - self.lkey.address, remote - self.rkey.address
        right = bytes(to) + bytes(self.near.array[at : at + size])
        found = bytes(self.far.array)
        why = self._queue.info().why
        expect(
            found == right.ljust(_ROOM, b"\0"),
            f"{size} bytes at {to} of the far memory are not the near bytes at {at}"
            f"{f': {why}' if why else ''}\n{self._last()}",
        )
        self.far.array[:] = 0

    def close(self) -> None:
        """Close the queue pairs, the NIC and the memory. Idempotent."""
        self._closing.close()


def _slot(slot: Any) -> int:
    if type(slot) is not int or not 0 <= slot < SLOTS:
        raise IndexError(f"place {slot!r}: the rings have places 0 to {SLOTS - 1}")
    return slot


def _whole(data: Any, size: int, what: str) -> bytes:
    if type(data) is not bytes or len(data) != size:
        raise ValueError(f"{what} has {size} bytes; this is {data!r:.40}")
    return data


def _broken(request: Request, key: int) -> list[int]:
    """Return a request with a key that does not exist: 2 is the lkey, 4 the rkey."""
    return [each ^ _ERROR_BITS if place == key else each for place, each in enumerate(request)]


def _read(entry: bytes) -> str:
    return f"the NIC reads {decode_wqe(entry)}\n{hexdump(entry[:48], 0)}"


def example() -> Iterator[str]:
    """Yield what the NIC did with a broken rkey, and with the entry after it: a recording."""
    for number, start in enumerate(range(0, len(_RECORDED), 64)):
        entry, end = _RECORDED[start : start + 48], _RECORDED[start + 48 : start + 64]
        completion = decode_cqe(end.rjust(CQE_SIZE, b"\0"))
        yield f"{_read(entry.ljust(WQE_SIZE, bytes(1)))}\ncompletion {number}: {completion}"
        yield hexdump(end, CQE_SIZE - 16)


def test_post_entry(post_entry: Function, order: str) -> None:
    """Test post_entry: an entry, the doorbell record and the doorbell, in this order."""
    rng, report = verdict.seeded("post entry"), verdict.Report(concepts.LAB7)
    with submission.local(post_entry) as (function,):
        with report.case("one entry", "entries", required=True), Ring() as ring:
            _check_post(rng, function, ring, order)
        with report.case(f"{3 * SLOTS} entries: three laps", "laps"), Ring() as ring:
            for _ in range(3 * SLOTS):
                _check_post(rng, function, ring, order)
        with report.case("entries 65,535 and 65,536: numbers of 16 bits", "laps"):
            for index in (0xFFFF, 0x10000):
                _check_numbers(rng, function, index, order)
        with (
            report.case("a NIC that looks at any moment", "announcement"),
            Ring(ordered=True) as ring,
        ):
            for _ in range(SLOTS + 2):
                _check_post(rng, function, ring, order)
    report.finish()


def _check_numbers(
    rng: random.Random, function: submission.RemoteFunction, index: int, order: str
) -> None:
    """Expect numbers of 16 bits in what a post stores; no NIC here has counted so far."""
    with Ring() as ring:
        function(ring, index, ring.number, *_ordered(ring.request(rng), order))
        stored = dict(ring._pending)
    number, count = index & 0xFFFF, index + 1 & 0xFFFF
    begin, record = stored.get(index % SLOTS, b"")[:4], stored.get("record", b"")
    expect(
        (begin, record) == ((number << 8 | 8).to_bytes(4, "big"), count.to_bytes(4, "big")),
        f"entry {index} begins with {begin.hex()}, and the record is {record.hex()}",
    )


def _check_post(
    rng: random.Random, function: submission.RemoteFunction, ring: Ring, order: str
) -> None:
    request, index = ring.request(rng), ring.posted
    function(ring, index, ring.number, *_ordered(request, order))
    ring.flush()
    expect(
        ring.posted == index + 1,
        f"the doorbell was rung {ring.posted - index} times for entry {index}; once is right",
    )
    ring.wait()
    ring.expect_bytes(request)


def test_poll_entry(poll_entry: Function, post_entry: Function, order: str) -> None:
    """Test poll_entry: None, 0 or a syndrome. The entries are posted by `post_entry`."""
    rng, report = verdict.seeded("poll entry"), verdict.Report(concepts.LAB7)
    with submission.local(poll_entry, post_entry) as (function, remote_post):

        def post(ring: Ring, request: Request) -> None:
            ring.post(request, remote_post, order)

        with report.case("no completion, then one", "entries", required=True), Ring() as ring:
            _check_poll(function, post, ring, ring.request(rng), OK)
        with report.case(f"{3 * SLOTS} completions: three laps", "laps"), Ring() as ring:
            for _ in range(3 * SLOTS):
                _check_poll(function, post, ring, ring.request(rng), OK)
        for name, key, syndrome in (("rkey", 4, REMOTE_ACCESS), ("lkey", 2, LOCAL_PROTECTION)):
            title = f"an {name} that is broken, and an entry behind it"
            with report.case(title, "error entries"), Ring() as ring:
                for _ in range(rng.randrange(SLOTS - 1)):  # both are of the first lap
                    post(ring, ring.request(rng))
                _check_poll(function, post, ring, _broken(ring.request(rng), key), syndrome)
                _check_poll(function, post, ring, ring.request(rng), FLUSHED)
    report.finish()


def _check_poll(
    function: submission.RemoteFunction,
    post: Callable[[Ring, Request], None],
    ring: Ring,
    request: Request,
    right: int,
) -> None:
    index = ring.posted
    _expect_poll(function(ring, index), None, ring, index)
    post(ring, request)
    _expect_poll(function(ring, index), right, ring, index)


def _expect_poll(got: Any, right: int | None, ring: Ring, index: int) -> None:
    data = ring.completion(index % SLOTS)
    shown = hexdump(data[48:], CQE_SIZE - 16)
    expect(
        got == right and type(got) is type(right),
        f"for completion {index} it returned {_hex(got)}; it must be {_hex(right)}: its place has "
        f"{decode_cqe(data)}\n{shown}",
    )


def _hex(value: Any) -> str:
    return f"{value:#04x}" if type(value) is int else f"{value!r:.40}"


def test_break_request(break_request: Function, post_entry: Function, order: str) -> None:
    """Test break_request: the last of its requests ends with the syndrome that was asked for.

    They are posted by `post_entry`.
    """
    rng, report = verdict.seeded("break request"), verdict.Report(concepts.LAB7)
    titles = {
        OK: "success", REMOTE_ACCESS: "remote access error",
        LOCAL_PROTECTION: "local protection error", FLUSHED: "flushed",
    }  # fmt: skip
    with submission.local(break_request, post_entry) as (function, post):
        for syndrome, title in titles.items():
            with _break_case(report, title, syndrome), Ring() as ring:
                request = ring.request(rng)
                got = _requests(function(_ordered(request, order), syndrome), order)
                for each in got:
                    ring.post(each, post, order)
                found = ring.wait()
                expect(
                    found == syndrome,
                    f"the last of {len(got)} requests ended with {_hex(found)}, not "
                    f"{_hex(syndrome)}\n{ring._last()}",
                )
                if syndrome == OK:
                    ring.expect_bytes(request)
                expect(not ring.far.array.any(), "bytes of the far memory have changed")
    report.finish()


def _break_case(
    report: verdict.Report, title: str, syndrome: int
) -> contextlib.AbstractContextManager[None]:
    right = syndrome == OK
    return report.case(title, "right keys" if right else "keys", required=right)


def _ordered(request: Request, order: str) -> list[int]:
    """Return a request in the order of a student's variant."""
    values = dict(zip(FIELDS, request, strict=True))
    return [values[name] for name in order.split(", ")]


def _requests(got: Any, order: str) -> list[list[int]]:
    """Return requests that are in a student's order; expect five numbers in each."""
    names = order.split(", ")
    right = (
        isinstance(got, list)
        and 0 < len(got) <= _MOST_REQUESTS
        and all(isinstance(each, list) and len(each) == 5 for each in got)
        and all(
            type(value) is int and 0 <= value < 1 << _BITS[name]
            for each in got
            for name, value in zip(names, each, strict=True)
        )
    )
    expect(
        right,
        f"it returned {got!r:.80}; it must return a list of 1 to {_MOST_REQUESTS} requests, each "
        "with five numbers",
    )
    return [[each[names.index(name)] for name in FIELDS] for each in got]
