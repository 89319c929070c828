# SPDX-License-Identifier: Apache-2.0
"""Lab 5, when the other side dies: a log in the owner's memory, whose writers are killed.

The log is an array of 64-bit words in the owner's memory, which writers load and store by DMA: the
number of committed records; the lease, with an epoch and a holder of 16 bits each and the second at
which it expires, of 32 bits; and the records, each an ident and three values. Where they are, and
where the fields of the lease are, is a matter of the student's variant. Each writer has an access
of its own, which the owner can revoke.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..dma import Device
from ..errors import AccessDenied, DgkitError
from ..memory import empty
from ..unique import Closable
from . import concepts, submission, verdict
from .verdict import expect

RECORD = 4
_LIMIT = 1 << 64
_SHOWN = 26
_COLUMN = 44  # characters of a writer's column in a story
_TIMEOUT_S = 10.0
_SCHEDULES = 20
_KILLED = object()

Function = Callable[..., Any]
Record = list[int]  # ident and values


class Words(NamedTuple):
    """Numbers of words and bits, which differ between students: see `variants`."""

    count_word: int = 0
    lease_word: int = 1
    first_record: int = 2
    epoch_bit: int = 48
    holder_bit: int = 32
    expiry_bit: int = 0

    def lease(self, epoch: int, holder: int, expires: int) -> int:
        """Return the word of a lease."""
        return epoch << self.epoch_bit | holder << self.holder_bit | expires << self.expiry_bit

    def fields(self, lease: int) -> tuple[int, int, int]:
        """Return epoch, holder and expiry of the word of a lease."""
        epoch, holder = lease >> self.epoch_bit & 0xFFFF, lease >> self.holder_bit & 0xFFFF
        return epoch, holder, lease >> self.expiry_bit & 0xFFFFFFFF


DEFAULT = Words()


class Log(Closable):
    """The owner's memory, with a log of what each writer does to it.

    Args:
        capacity: Largest number of records.
        records: Records that are already committed.
        lease: Initial epoch, holder and expiry of the lease.
        numbers: Numbers of words and bits.
    """

    def __init__(
        self,
        capacity: int = 8,
        records: Sequence[Record] = (),
        lease: tuple[int, int, int] = (0, 0, 0),
        numbers: Words = DEFAULT,
    ) -> None:
        self.capacity, self.numbers = capacity, numbers
        self.size = max(numbers.first_record + RECORD * capacity, 1 + max(numbers[:2]))
        self.events: list[tuple[str, str]] = []
        self.watch: Callable[[], None] = lambda: None
        self._accesses: list[Access] = []
        self._closing = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self.device = stack.enter_context(Device("soft"))
            self.memory = stack.enter_context(empty(self.size, dtype="u8"))
            self.memory.array[:] = 0
            self.memory.array[numbers.count_word] = len(records)
            self.memory.array[numbers.lease_word] = numbers.lease(*lease)
            for number, record in enumerate(records):
                start = numbers.first_record + RECORD * number
                self.memory.array[start : start + RECORD] = record
            self._closing = stack.pop_all()

    def access(self, name: str) -> Access:
        """Grant a writer access by exporting the memory for it."""
        made = Access(self, name)
        self._closing.callback(made.close)
        self._accesses.append(made)
        return made

    def revoke_others(self, access: Access) -> None:
        """Revoke every access but one; afterwards no other importer can move a byte."""
        for other in self._accesses:
            if other is not access:
                other.exported.close()

    @property
    def count(self) -> int:
        """The number of committed records."""
        return int(self.memory.array[self.numbers.count_word])

    @property
    def lease(self) -> tuple[int, int, int]:
        """Epoch, holder and expiry of the lease."""
        return self.numbers.fields(int(self.memory.array[self.numbers.lease_word]))

    @property
    def records(self) -> list[Record]:
        """The committed records."""
        return [self.record(number) for number in range(min(self.count, self.capacity))]

    def record(self, number: int) -> Record:
        """Return the words of a record."""
        start = self.numbers.first_record + RECORD * number
        return [int(word) for word in self.memory.array[start : start + RECORD]]

    def name(self, word: int) -> str:
        """Return the name of a word."""
        if word in self.numbers[:2]:
            return ("count", "lease")[self.numbers[:2].index(word)]
        number, place = divmod(word - self.numbers.first_record, RECORD)
        return f"record {number} {('ident', 'a', 'b', 'c')[place]}" if number >= 0 else "nothing"

    def shown(self, word: int, value: int) -> str:
        """Return a value for a story: that of the lease as epoch/holder/expiry."""
        is_lease = word == self.numbers.lease_word
        return "/".join(map(str, self.numbers.fields(value))) if is_lease else f"{value:#x}"

    def note(self, name: str, text: str) -> None:
        """Add a line to the story."""
        self.events.append((name, text))

    def story(self) -> str:
        """Return the last events, with a column for each writer, and the current log."""
        names = list(dict.fromkeys(name for name, _ in self.events)) or ["nobody"]
        lines = ["event  " + "".join(f"{name:<{_COLUMN}}" for name in names)]
        start = max(0, len(self.events) - _SHOWN)
        for number, (name, text) in enumerate(self.events[start:], start + 1):
            lines.append(f"{number:5}  {' ' * (_COLUMN * names.index(name))}{text}")
        count, lease = self.count, "/".join(map(str, self.lease))
        lines.append(f"the log: {count} committed; lease (epoch/holder/expiry): {lease}")
        for number in range(min(count + 1, self.capacity)):
            ident, *values = self.record(number)
            shown = " ".join(f"{value:#x}" for value in values)
            kind = "record" if number < count else "beyond"
            lines.append(f"  {kind} {number}: ident {ident}, values {shown}")
        return "\n".join(line.rstrip() for line in lines)

    def close(self) -> None:
        """Release the memory. Idempotent."""
        self._closing.close()


class Access(submission.Served):
    """A writer's access to a log, by DMA.

    Args:
        name: The writer's name in stories.
    """

    methods = ("load", "store", "cas", "capacity", "revoke_others")

    def __init__(self, log: Log, name: str) -> None:
        self._log, self.name, self.requests = log, name, 0
        with contextlib.ExitStack() as stack:
            self._array = stack.enter_context(empty(1, dtype="u8"))
            self._local = log.device.register(self._array, access="rw")
            stack.callback(self._local.close)
            self.exported = log.device.register(log.memory, access="rw")
            stack.callback(self.exported.close)
            self._remote = log.device.import_region(self.exported.export())
            stack.callback(self._remote.close)
            self._queue = stack.enter_context(log.device.queue(depth=4))
            self._closing = stack.pop_all()

    def load(self, word: int) -> int:
        """Read a word by DMA.

        Raises:
            AccessDenied: The access is revoked.
        """
        offset = self._checked(f"load word {word!r:.20}", word)
        read = self._queue.read(self._local, self._remote, size=8, remote_offset=offset)
        read.wait(timeout=_TIMEOUT_S)
        value = int(self._array.array[0])
        self._note(f"load  {self._log.name(word)} -> {self._log.shown(word, value)}")
        return value

    def store(self, word: int, value: int) -> None:
        """Write a word by DMA; the value is in the memory when this returns.

        Raises:
            AccessDenied: The access is revoked.
        """
        if type(value) is not int or not 0 <= value < _LIMIT:
            raise ValueError(f"{value!r} is not a number from 0 to 2**64 - 1: a word has 64 bits")
        what = f"store {self._log.name(word)} <- {self._log.shown(word, value)}"
        offset = self._checked(what, word)
        self._array.array[0] = value
        write = self._queue.write(self._local, self._remote, size=8, remote_offset=offset)
        write.wait(timeout=_TIMEOUT_S)
        self._note(what)
        self._log.watch()

    def cas(self, word: int, old: int, new: int) -> int:
        """Compare and swap: atomically set a word to `new` if it is `old`; return its old value.

        The owner does it, since plain DMA has no such operation.

        Raises:
            AccessDenied: The access is revoked.
        """
        if type(new) is not int or not 0 <= new < _LIMIT:
            raise ValueError(f"{new!r} is not a number from 0 to 2**64 - 1: a word has 64 bits")
        self._checked(f"cas   word {word!r:.20}", word)
        found = int(self._log.memory.array[word])
        if found == old:
            self._log.memory.array[word] = new
        done = "set" if found == old else "not set"
        self._note(f"cas   {self._log.name(word)} <- {self._log.shown(word, new)}: {done}")
        self._log.watch()
        return found

    def capacity(self) -> int:
        """Return the largest number of records of the log."""
        self.requests += 1
        return self._log.capacity

    def revoke_others(self, epoch: int) -> None:
        """Make the owner revoke every other access, if `epoch` is the epoch of the lease.

        Raises:
            AccessDenied: The lease has another epoch, or this access is revoked.
        """
        self._checked(f"revoke_others({epoch!r:.20})", self._log.numbers.lease_word)
        if (right := self._log.lease[0]) != epoch:
            raise AccessDenied(f"the lease has epoch {right}, not {epoch!r:.20}")
        self._log.revoke_others(self)
        self._note(f"revoke_others({epoch})")

    def _checked(self, what: str, word: Any) -> int:
        """Return the offset of a word, or raise IndexError or AccessDenied."""
        self.requests += 1
        if type(word) is not int or not 0 <= word < self._log.size:
            raise IndexError(f"word {word!r}: the log has words 0 to {self._log.size - 1}")
        if self.exported.closed:
            self._note(f"{what}: REVOKED")
            raise AccessDenied("the owner of the log revoked this access")
        return 8 * word

    def _note(self, text: str) -> None:
        self._log.note(self.name, text)

    def close(self) -> None:
        """Release the access. Idempotent."""
        self._closing.close()


def example(**words: int) -> Log:
    """Return the log of the lab's story: two records."""
    return Log(4, [[17, 1, 2, 3], [18, 4, 5, 6]], numbers=Words(**words))


def random_records(rng: random.Random, count: int) -> list[Record]:
    """Return records with growing idents."""
    idents = sorted(rng.sample(range(1, 1 << 20), count))
    return [[ident, *(rng.randrange(1, 1 << 32) for _ in range(3))] for ident in idents]


def append_to(
    function: submission.RemoteFunction, access: Access, *args: Any, kill_after: int | None = None
) -> Any:
    """Call a function; if `kill_after` is given, kill its process after that many requests.

    The last of these requests is executed but not answered.
    """
    call = function.start(access, *args)
    done = 0
    while (request := call.next()) is not None:
        if kill_after is not None and done + 1 >= kill_after:
            if kill_after:
                with contextlib.suppress(DgkitError, ValueError, TypeError, IndexError):
                    getattr(request[0], request[1])(*request[2])
            function.submission.close()
            access._note("kill -9")
            return _KILLED
        call.serve(request)
        done += 1
    return call.value


def _append(
    function: submission.RemoteFunction, log: Log, access: Access, record: Record, **how: int
) -> Any:
    """Append a record; check at each store that all committed records are whole."""
    before = log.records
    allowed = (before, [*before, record])

    def watch() -> None:
        expect(
            log.records in allowed,
            f"the count is {log.count}, and not all records before it are whole\n" + log.story(),
        )

    log.watch = watch
    got = append_to(function, access, record[0], record[1:], **how)
    log.watch = lambda: None
    return got


def expect_log(log: Log, right: Sequence[Record]) -> None:
    """Expect these records in the log, and no others."""
    found = log.records
    if found == list(right) and log.count == len(right):
        return
    idents = [record[0] for record in found]
    twice = next((ident for ident in idents if idents.count(ident) > 1), None)
    if twice is not None:
        why = f"ident {twice} is in the log {idents.count(twice)} times"
    elif missing := [record[0] for record in right if record[0] not in idents]:
        why = f"ident {missing[0]} is not in the log"
    else:
        why = "the log has other records than were appended"
    raise verdict.WrongAnswer(f"{why}\n{log.story()}")


def expect_true(got: Any, log: Log, what: str = "append") -> None:
    """Expect that a function returned True."""
    expect(got is True, f"{what} returned {got!r:.60}; it must be True\n{log.story()}")


def test_append(append: Function, **words: int) -> None:
    """Test append when no process dies: order, whole records, retries, a full log."""
    rng, report, numbers = verdict.seeded("append"), verdict.Report(concepts.LAB5), Words(**words)
    with submission.local(append) as (function,):
        with (
            report.case("records one after another", "log", required=True),
            Log(numbers=numbers) as log,
        ):
            records, access = random_records(rng, 4), log.access("writer")
            for number, record in enumerate(records, 1):
                expect_true(append_to(function, access, record[0], record[1:]), log)
                expect_log(log, records[:number])
        with report.case("no moment at which the count covers half a record", "half records"):
            for _ in range(3):
                records = random_records(rng, 4)
                with Log(8, records[:3], numbers=numbers) as log:
                    _append(function, log, log.access("writer"), records[3])
        with report.case("the same record again: it is in the log once", "duplicates"):
            records = random_records(rng, 3)
            with Log(8, records, numbers=numbers) as log:
                got = append_to(function, log.access("writer"), records[2][0], records[2][1:])
                expect_true(got, log)
                expect_log(log, records)
        with report.case("a full log: False, and nothing changes", "log"):
            records = random_records(rng, 4)
            with Log(3, records[:3], numbers=numbers) as log:
                got = append_to(function, log.access("writer"), records[3][0], records[3][1:])
                expect(got is False, f"it returned {got!r:.60}; it must be False\n{log.story()}")
                expect_log(log, records[:3])
    report.finish()


def test_kill(append: Function, **words: int) -> None:
    """Test append under kill -9: after a retry of the client, each record is in the log once."""
    rng, report, numbers = verdict.seeded("kill"), verdict.Report(concepts.LAB5), Words(**words)
    with submission.local(append) as (function,):
        requests = 0
        with report.case("killed before its first access", "log", required=True):
            requests = count_requests(rng, function, numbers)
            _check_kills(rng, function, [0], numbers)
        with report.case("killed after its last access, before it returns", "duplicates"):
            _expect_requests(requests)
            _check_kills(rng, function, [requests], numbers)
        inner = range(1, max(2, requests))
        with report.case("killed at other moments", "duplicates"):
            _expect_requests(requests)
            for moment in rng.sample(inner, min(3, len(inner))):
                _check_kills(rng, function, [moment], numbers)
        with report.case("killed twice at one record", "duplicates"):
            _expect_requests(requests)
            _check_kills(rng, function, [rng.choice(inner), requests], numbers)
    report.finish()


def _expect_requests(requests: int) -> None:
    expect(requests > 0, "not tested: append does not work without a death")


def count_requests(
    rng: random.Random, function: submission.RemoteFunction, numbers: Words = DEFAULT
) -> int:
    """Return the number of requests that an undisturbed append makes."""
    records = random_records(rng, 3)
    with Log(8, records[:2], numbers=numbers) as log:
        access = log.access("writer")
        expect_true(_append(function, log, access, records[2]), log)
        expect_log(log, records)
        return access.requests


def _check_kills(
    rng: random.Random,
    function: submission.RemoteFunction,
    moments: Sequence[int],
    numbers: Words,
) -> None:
    """Kill an append at each of the moments, retry until it returns, and append the next record."""
    records = random_records(rng, 4)
    with Log(8, records[:2], numbers=numbers) as log:
        for number, moment in enumerate(moments, 1):
            access = log.access(f"process {number}")
            got = _append(function, log, access, records[2], kill_after=moment)
            if got is not _KILLED:
                expect_true(got, log)
        last = log.access(f"process {len(moments) + 1}")
        expect_true(_append(function, log, last, records[2]), log)
        expect_log(log, records[:3])
        expect_true(_append(function, log, last, records[3]), log)
        expect_log(log, records)


def test_lease(take_lease: Function, **words: int) -> None:
    """Test take_lease: one holder at a time, even if two ask at once or a holder is killed."""
    rng, report, numbers = verdict.seeded("lease"), verdict.Report(concepts.LAB5), Words(**words)
    with _two(take_lease) as (first, second):
        with report.case("a lease that is free, held, expired", "lease", required=True):
            _check_lease(rng, first, numbers)
        with report.case(f"two processes at once: {_SCHEDULES} random schedules", "two holders"):
            for _ in range(_SCHEDULES):
                _check_race(rng, first, second, numbers)
        with (
            report.case("a holder that is killed", "killed holder"),
            Log(1, numbers=numbers) as log,
        ):
            now, length = rng.randrange(1, 10**6), rng.randrange(10, 100)
            n_requests = _lease_requests(rng, first, numbers)
            append_to(first, log.access("process 1"), 1, now, length, kill_after=n_requests)
            other = log.access("process 2")
            expect_lease(second(other, 2, now + length - 1, length), None, log)
            expect_lease(second(other, 2, now + length, length), 2, log)
    report.finish()


@contextlib.contextmanager
def _two(function: Function) -> Iterator[tuple[submission.RemoteFunction, ...]]:
    """Yield a function in two processes."""
    with submission.local(function) as (first,):
        second = first.twin()
        with second.submission:
            yield first, second


def _check_lease(rng: random.Random, function: submission.RemoteFunction, numbers: Words) -> None:
    now, length = rng.randrange(1, 10**6), rng.randrange(10, 100)
    with Log(1, numbers=numbers) as log:
        access = log.access("process")
        asks: list[tuple[int, int, int | None]] = [
            (7, now, 1),
            (9, now + length - 1, None),
            (7, now + length - 1, None),
            (9, now + length, 2),
            (7, now + 3 * length, 3),
        ]
        for me, at, right in asks:
            log.note("process", f"take_lease(log, me={me}, now={at}, length={length})")
            expect_lease(function(access, me, at, length), right, log)
            if right is not None:
                _expect_word(log, (right, me, at + length))


def expect_lease(got: Any, right: int | None, log: Log) -> None:
    """Expect what take_lease or take_over must return: an epoch, or None."""
    expect(
        got == right and type(got) is type(right),
        f"it returned {got!r:.60}; it must return {right}\n{log.story()}",
    )


def _expect_word(log: Log, right: tuple[int, int, int]) -> None:
    found = int(log.memory.array[log.numbers.lease_word])
    places = zip(("epoch", "holder", "expiry"), log.numbers[-3:], (16, 16, 32), strict=True)
    for (name, low, bits), is_, should in zip(places, log.lease, right, strict=True):
        expect(
            is_ == should,
            f"the {name} is {is_}, bits {low} to {low + bits - 1} of {found:#018x}; it must be "
            f"{should}\n{log.story()}",
        )


def _lease_requests(rng: random.Random, function: submission.RemoteFunction, numbers: Words) -> int:
    """Return how many requests the function makes to take a free lease."""
    with Log(1, numbers=numbers) as log:
        access = log.access("process")
        expect_lease(function(access, 1, rng.randrange(1, 1000), 10), 1, log)
        return access.requests


def _check_race(
    rng: random.Random,
    first: submission.RemoteFunction,
    second: submission.RemoteFunction,
    numbers: Words,
) -> None:
    now, epoch = rng.randrange(1, 10**6), rng.randrange(1, 1000)
    with Log(1, lease=(epoch, 3, now - 1), numbers=numbers) as log:
        calls: dict[int, submission.Call] = {}
        waiting: dict[int, Any] = {}
        for me, function in enumerate((first, second), 1):
            calls[me] = function.start(log.access(f"process {me}"), me, now, 60)
            waiting[me] = calls[me].next()
        while ready := [me for me, request in waiting.items() if request is not None]:
            me = rng.choice(ready)
            calls[me].serve(waiting[me])
            waiting[me] = calls[me].next()
        got = {me: call.value for me, call in calls.items()}
        winners = [me for me, value in got.items() if value is not None]
        expect(
            len(winners) == 1,
            f"{len(winners)} processes got the lease: they returned {list(got.values())!r:.80}\n"
            + log.story(),
        )
        expect_lease(got[winners[0]], epoch + 1, log)
        _expect_word(log, (epoch + 1, winners[0], now + 60))


def test_takeover(append: Function, take_over: Function, **words: int) -> None:
    """Test take_over: it works only on an expired lease; a paused holder then does no harm."""
    rng, report = verdict.seeded("takeover"), verdict.Report(concepts.LAB5)
    numbers = Words(**words)
    with submission.local(append, take_over) as (put, take), other_process(put, take) as new:
        with report.case("a lease that has not expired", "expiry", required=True):
            check_no_takeover(rng, put, new, numbers)
        with report.case(
            "a holder that pauses before its first store", "old holder", required=True
        ):
            check_pause(rng, put, new, numbers, pause=None)
    report.finish()


Pair = tuple[submission.RemoteFunction, submission.RemoteFunction]


@contextlib.contextmanager
def other_process(
    put: submission.RemoteFunction, take: submission.RemoteFunction
) -> Iterator[Pair]:
    """Yield both functions in another process."""
    twin = put.twin()
    other = take
    if take.submission is put.submission:
        other = submission.RemoteFunction(twin.submission, take.name)
    with twin.submission:
        yield twin, other


def check_no_takeover(
    rng: random.Random, put: submission.RemoteFunction, new: Pair, numbers: Words = DEFAULT
) -> None:
    """Expect that a lease that has not expired is left to its holder."""
    now, records = rng.randrange(100, 10**6), random_records(rng, 3)
    lease = (5, 1, now + 1)
    with Log(8, records[:2], lease, numbers) as log:
        old, successor = log.access("holder"), log.access("successor")
        expect_lease(new[1](successor, 2, now, 60), None, log)
        _expect_word(log, lease)
        expect_true(append_to(put, old, records[2][0], records[2][1:]), log, "the holder's append")
        expect_log(log, records)


def check_pause(
    rng: random.Random,
    put: submission.RemoteFunction,
    new: Pair,
    numbers: Words = DEFAULT,
    *,
    pause: int | None,
) -> None:
    """Pause the holder at a request, by default its first store, while the successor takes over."""
    now, records = rng.randrange(100, 10**6), random_records(rng, 4)
    with Log(8, records[:2], (5, 1, now - 1), numbers) as log:
        old, successor = log.access("holder"), log.access("successor")
        call = put.start(old, records[2][0], records[2][1:])
        request, done = call.next(), 0
        while request and not (request[1] == "store" if pause is None else done == pause):
            call.serve(request)
            request, done = call.next(), done + 1
        log.note("holder", "pauses")
        before = log.records
        expect_lease(new[1](successor, 2, now, 60), 6, log)
        expect_true(append_to(new[0], successor, records[3][0], records[3][1:]), log)
        log.note("holder", "goes on")
        call.resume()
        while request:
            call.serve(request)
            request = call.next()
        expect_log(log, [*before, records[3]])
        right = len(before) > 2
        expect(
            call.value is right,
            f"the holder's append returned {call.value!r:.60}; its record is "
            f"{'' if right else 'not '}in the log\n{log.story()}",
        )


def test_few_accesses(append: Function, **words: int) -> None:
    """Test the bonus: an append to a log of 64 records with few accesses.

    The ratio is the 64 + 7 accesses of an append that reads each ident, divided by the accesses
    made.
    """
    rng, report = verdict.seeded("few accesses"), verdict.Report(concepts.LAB5)
    records = random_records(rng, 65)
    numbers = Words(**words)
    with submission.local(append) as (function,), Log(80, records[:64], numbers=numbers) as log:
        access = log.access("writer")
        with report.case("a log of 64 records", "log", required=True):
            expect_true(_append(function, log, access, records[64]), log)
            expect_log(log, records)
    report.bonus((64 + 7) / max(1, access.requests))
    report.finish()
