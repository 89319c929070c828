# SPDX-License-Identifier: Apache-2.0
"""Lab 3, order: a mailbox between two sides, with memory accesses that only fences order.

The mailbox is an array of 64-bit words in the consumer's memory: a flag or a sequence number, and
the payload. A posted write arrives later. Writes arrive in any order, even writes
to the same word. A fenced write starts when all earlier writes have arrived. Later writes start
after it and may arrive before it, as with the flag DG_FENCE of dgkit's queues. A load may return an
old value: any value that the word has had since a certain moment. The consumer's fence advances
that moment to the newest moment from which any load has returned a value.

The graded tests draw no order: what no fence orders takes place in each of the orders that find a
missing fence, and what a consumer does not fence stays as old as it may for ever.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..dma import Device, FaultRule
from ..memory import empty
from . import concepts, submission, verdict
from .verdict import expect

FLAG = 0
_LIMIT = 1 << 64
_POSTS = 1000
_SHOWN = 26
_PAYLOAD = 4
_LOOKS = 2
_DELAY_US = 40_000.0
_TRIES = 3
_TIMEOUT_S = 10.0
_PROGRAM_MAX = 64  # writes of a program that `replay` runs

Function = Callable[..., Any]
Program = Sequence[Sequence[Any]]  # a sequence of writes: word, value, whether it is fenced


class Words(NamedTuple):
    """Numbers of the words, which differ between students: see `variants`."""

    flag_word: int = FLAG
    first_word: int = 1

    def place(self, word: Any, payload: int) -> int:
        """Return the place of a word: 0 is the flag, then the payload.

        Raises:
            IndexError: There is no such word.
        """
        first = self.first_word
        if type(word) is int and word == self.flag_word:
            return FLAG
        if type(word) is int and first <= word < first + payload:
            return 1 + word - first
        raise IndexError(
            f"word {word!r:.20}: the mailbox has the words {self.flag_word} and {first} to "
            f"{first + payload - 1}"
        )

    def number(self, place: int) -> int:
        """Return the number of the word at a place."""
        return self.first_word + place - 1 if place else self.flag_word


DEFAULT = Words()


@dataclass(slots=True)
class Write:
    """A write that was posted and has not arrived.

    Attributes:
        number: Its position in the order of posting.
        word: The word.
        value: The value.
        fenced: Whether it starts only when all earlier writes have arrived.
    """

    number: int
    word: int
    value: int
    fenced: bool = False


Order = Callable[[Write], Any]


class Mailbox:
    """Words in the consumer's memory, posted writes that have not arrived, and a log of both sides.

    Args:
        payload: Number of words after word 0.
        rng: Random numbers that decide when each write arrives and which value a load returns. If
            None, each write arrives at once and each load returns the newest value.
        watch: Called after each arrival.
        numbers: The numbers of the words for both sides. Here they are 0, and the payload from 1.
        order: If given, writes arrive only in settle(): of those that may be next, the least first.
    """

    def __init__(
        self,
        payload: int,
        rng: random.Random | None = None,
        watch: Callable[[Mailbox], None] = lambda _: None,
        numbers: Words = DEFAULT,
        order: Order | None = None,
    ) -> None:
        self._numbers, self._order = numbers, order
        self.size, self.rng, self._watch = payload + 1, rng, watch
        self._rate = rng.choice((0.2, 0.4, 0.6)) if rng else 1.0  # probability of an arrival
        self.history: list[list[tuple[int, int]]] = [[(0, 0)] for _ in range(self.size)]
        self.now = 0  # number of arrivals so far, which serves as the time
        self.posted = self.fences = 0
        self._pending: list[Write] = []
        self._log: list[tuple[str, str]] = []

    @property
    def words(self) -> list[int]:
        """The current values of the words."""
        return [each[-1][1] for each in self.history]

    def checked(self, word: Any) -> int:
        """Return a word's place; raise IndexError if there is no such word."""
        return self._numbers.place(word, self.size - 1)

    def post(self, word: Any, value: Any, *, fenced: bool) -> None:
        """Post a write."""
        if type(value) is not int or not 0 <= value < _LIMIT:
            raise ValueError(f"{value!r} is not a number from 0 to 2**64 - 1: a word has 64 bits")
        if self.posted == _POSTS:
            raise ValueError(f"more than {_POSTS} writes")
        place = self.checked(word)
        self._pending.append(Write(self.posted, place, value, fenced))
        self.posted += 1
        self.fences += fenced
        self.note("posts", f"{self.name(place)} <- {value:#x}{', fenced' if fenced else ''}")
        self.drift()

    def script(self, writes: Iterable[tuple[int, int]]) -> None:
        """Post writes that will arrive in this order."""
        for word, value in writes:
            self._pending.append(Write(self.posted, word, value, fenced=True))
            self.posted += 1

    @property
    def pending(self) -> tuple[Write, ...]:
        """The posted writes that have not arrived."""
        return tuple(self._pending)

    def _free(self) -> list[Write]:
        """Return the posted writes that may arrive next, considering fences."""
        free: list[Write] = []
        for write in self._pending:
            if write.fenced and write is not self._pending[0]:
                break
            free.append(write)
        return free

    def drift(self) -> None:
        """Make some writes arrive."""
        while (
            self._pending and not self._order and (not self.rng or self.rng.random() < self._rate)
        ):
            self._arrive(self._next())

    def settle(self, most: int = _POSTS) -> None:
        """Make all writes arrive, or at most some, in an order that the fences allow."""
        while self._pending and most:
            self._arrive(self._next())
            most -= 1

    def _next(self) -> Write:
        free = self._free()
        if self._order:
            return min(free, key=self._order)
        return self.rng.choice(free) if self.rng else free[0]

    def _arrive(self, write: Write) -> None:
        self._pending.remove(write)
        self.now += 1
        self.history[write.word].append((self.now, write.value))
        self.note("arrives", f"{self.name(write.word)} = {write.value:#x}")
        self._watch(self)

    def number(self, place: int) -> int:
        """Return the number of the word at a place, as both sides have it."""
        return self._numbers.number(place)

    def name(self, place: int) -> str:
        """Return the word at a place, as both sides number it."""
        return f"word {self.number(place)}"

    def note(self, column: str, text: str) -> None:
        """Add a line to the log."""
        self._log.append((column, text))

    def story(self) -> str:
        """Return the last events in three columns."""
        columns = ("posts", "arrives", "consumer")
        lines = [f"event  {'producer posts':<32}{'arrives':<26}consumer"]
        start = max(0, len(self._log) - _SHOWN)
        for number, (column, text) in enumerate(self._log[start:], start + 1):
            cells = [text if column == each else "" for each in columns]
            lines.append(f"{number:5}  {cells[0]:<32}{cells[1]:<26}{cells[2]}".rstrip())
        return "\n".join(lines)


class Outbox(submission.Served):
    """The producer's side of a mailbox."""

    methods = ("write", "write_fenced")

    def __init__(self, box: Mailbox) -> None:
        self._box = box

    def write(self, word: int, value: int) -> None:
        """Post a write; it arrives later, before or after others."""
        self._box.post(word, value, fenced=False)

    def write_fenced(self, word: int, value: int) -> None:
        """Post a write that starts when all earlier writes have arrived."""
        self._box.post(word, value, fenced=True)


class Inbox(submission.Served):
    """The consumer's side of a mailbox.

    Args:
        fresh: If given, the words whose loads return the newest value; the others stay as old as
            fences allow.
    """

    methods = ("load", "fence")

    def __init__(self, box: Mailbox, fresh: Collection[int] | None = None) -> None:
        self._box = box
        self.fresh = None if fresh is None else {box.checked(word) for word in fresh}
        self._oldest = box.now  # the oldest moment from which a load may return a value
        self._seen = [0] * box.size  # for each word, the moment of the value loaded last

    def load(self, word: int) -> int:
        """Return the newest value of a word, or an older one that no fence excludes."""
        box = self._box
        word = box.checked(word)
        box.drift()
        low, at = max(self._oldest, self._seen[word]), box.now
        if self.fresh is not None:
            at = box.now if word in self.fresh else low
        elif box.rng:
            at = box.rng.choice((box.now, box.now, low, box.rng.randint(low, box.now)))
        self._seen[word] = at
        value = next(value for time, value in reversed(box.history[word]) if time <= at)
        old = "" if value == box.history[word][-1][1] else " (an older value)"
        box.note("consumer", f"load {box.name(word)} -> {value:#x}{old}")
        return value

    def fence(self) -> None:
        """Make later loads return nothing older than the newest value loaded so far."""
        self._oldest = max(self._oldest, *self._seen)
        self._box.note("consumer", "fence")


def _values(rng: random.Random, count: int = _PAYLOAD) -> list[int]:
    return [rng.randrange(1, 1 << 32) for _ in range(count)]


Calls = list[tuple[str, tuple[Write, ...]]]  # of a producer: in words, and what it posted


def _record(
    function: submission.RemoteFunction, calls: Iterable[Sequence[Any]], numbers: Words
) -> Calls:
    """Call a producer; return what it posts. It does not learn what arrives, so one run is enough.

    Args:
        function: The producer.
        calls: The arguments of each call, besides the mailbox.
    """
    box = Mailbox(_PAYLOAD, numbers=numbers, order=_posted)
    outbox, made = Outbox(box), []
    for args in calls:
        start = box.posted
        function(outbox, *args)
        shown = ", ".join("..." if isinstance(arg, list) else str(arg) for arg in args)
        made.append((f"{function.name}(out, {shown}):", box.pending[start:]))
    return made


def _posted(write: Write) -> int:
    return write.number


def _orders(calls: Calls, *, single: bool = True) -> Iterator[Order]:
    """Yield orders of arrival that together find each missing fence.

    The newest writes first, the writes to one word (also the flag) first, or last, and, if
    `single`, one write as late as fences allow, as in part 3.
    """
    yield _posted
    yield lambda write: -write.number
    for word in range(1 + _PAYLOAD):
        yield lambda write, word=word: (write.word != word, write.number)  # type: ignore[misc]
        yield lambda write, word=word: (write.word == word, write.number)  # type: ignore[misc]
    count = sum(len(writes) for _, writes in calls) if single else 0
    for late in range(count if count <= _PROGRAM_MAX else 0):
        yield lambda write, late=late: (write.number == late, write.number)  # type: ignore[misc]


def _replay(calls: Calls, box: Mailbox, *, apart: bool = False) -> None:
    """Post recorded writes into a mailbox; if `apart`, they arrive before the next call's."""
    for title, writes in calls:
        box.note("posts", title)
        for write in writes:
            box.post(box.number(write.word), write.value, fenced=write.fenced)
        if apart:
            box.settle()


def test_send(send: Function, **words: int) -> None:
    """Test send: the flag never arrives before the payload."""
    rng, report = verdict.seeded("send"), verdict.Report(concepts.LAB3)
    numbers, values = Words(**words), _values(rng)

    def check(order: Order) -> None:
        def watch(box: Mailbox) -> None:
            if box.words[FLAG]:
                _expect_payload(box, values, "the flag is there and")

        box = Mailbox(_PAYLOAD, watch=watch, numbers=numbers, order=order)
        _replay(calls, box)
        box.settle()
        expect(box.words[FLAG] == 1, f"the flag is {box.words[FLAG]}, not 1\n{box.story()}")

    with submission.local(send) as (function,):
        calls: Calls = []
        with report.case("writes that arrive in the order of posting", "protocol", required=True):
            calls = _record(function, [[values]], numbers)
            check(_posted)
        with report.case("writes that arrive in other orders", "tearing"):
            for order in _orders(calls):
                check(order)
    report.finish()


def _expect_payload(box: Mailbox, values: Sequence[int], when: str) -> None:
    for word, (found, right) in enumerate(zip(box.words[1:], values, strict=True), 1):
        expect(
            found == right,
            f"{when} {box.name(word)} is {found:#x}; the message has {right:#x}\n{box.story()}",
        )


def test_poll(poll: Function, **words: int) -> None:
    """Test poll: it returns None or the whole message."""
    rng, report = verdict.seeded("poll"), verdict.Report(concepts.LAB3)
    numbers = Words(**words)
    with submission.local(poll) as (function,):
        with report.case("no message, then a message", "protocol", required=True):
            box, values = Mailbox(_PAYLOAD, numbers=numbers), _values(rng)
            _expect_message(_look(function, Inbox(box), box), [None], box)
            _deliver(box, [*enumerate(values, 1), (FLAG, 1)])
            _expect_message(_look(function, Inbox(box), box), [values], box)
        with report.case("loads that see older values", "tearing"):
            values = _values(rng)
            payload = list(enumerate(values, 1))
            rng.shuffle(payload)
            _check_looks(function, numbers, [], [*payload, (FLAG, 1)], [values])
    report.finish()


def _check_looks(
    function: submission.RemoteFunction,
    numbers: Words,
    before: Sequence[tuple[int, int]],
    writes: Sequence[tuple[int, int]],
    messages: Sequence[list[int]],
) -> None:
    """Look at a mailbox after each of some writes, with each set of words seen fresh.

    Args:
        function: The consumer.
        before: Writes that have arrived before the consumer begins: nothing older is seen.
        messages: Messages that may be returned, of which the last one is there in the end.
    """
    allowed: list[list[int] | None] = [None, *messages]
    for arrived in range(1, len(writes) + 1):
        for choice in itertools.product((True, False), repeat=1 + _PAYLOAD):
            box = Mailbox(_PAYLOAD, numbers=numbers)
            _deliver(box, before)
            fresh = [box.number(place) for place, each in enumerate(choice) if each]
            inbox = Inbox(box, fresh)
            _deliver(box, writes[:arrived])
            if arrived < len(writes):
                _expect_message(_look(function, inbox, box), allowed, box)
                continue
            _expect_newer(function, inbox, box, allowed)
            _end(function, inbox, box, messages[-1])


def _look(function: submission.RemoteFunction, inbox: Inbox, box: Mailbox) -> Any:
    """Call a consumer, and note where the call begins and ends."""
    box.note("consumer", f"{function.name}(box, {_PAYLOAD}):")
    got = function(inbox, _PAYLOAD)
    box.note("consumer", "  returns None" if got is None else "  returns a value")
    return got


def _expect_newer(
    function: submission.RemoteFunction,
    inbox: Inbox,
    box: Mailbox,
    allowed: Sequence[list[int] | None],
) -> None:
    """Expect allowed messages of some looks, none older than one before."""
    newest = 0
    for _ in range(_LOOKS):
        place = _expect_message(_look(function, inbox, box), allowed, box)
        expect(
            not place or place >= newest,
            f"it returned message {place} after message {newest}\n{box.story()}",
        )
        newest = max(newest, place)


def _deliver(box: Mailbox, writes: Iterable[tuple[int, int]]) -> None:
    box.script(writes)
    box.settle()


def _end(
    function: submission.RemoteFunction, inbox: Inbox, box: Mailbox, values: list[int]
) -> None:
    """Expect the last message once all writes have arrived and loads return the newest values."""
    box.settle()
    inbox.fresh = None
    _expect_message(_look(function, inbox, box), [values], box)


def _expect_message(got: Any, allowed: Sequence[list[int] | None], box: Mailbox) -> int:
    """Expect one of the allowed messages; return its index."""
    for place, message in enumerate(allowed):
        if got == message and type(got) is type(message):
            return place
    expect(
        got is None or (isinstance(got, list) and len(got) == box.size - 1),
        f"it returned {got!r:.80}; it must return None or a list of {box.size - 1} numbers",
    )
    if got is None:
        raise verdict.WrongAnswer(f"it returned None; a message is there\n{box.story()}")
    raise verdict.WrongAnswer(f"{_torn(got, allowed, box)}\n{box.story()}")


def _torn(got: list[Any], allowed: Sequence[list[int] | None], box: Mailbox) -> str:
    """Return a text that states for each word the message that it belongs to."""
    messages = [message for message in allowed if message]
    lines = ["it returned parts of messages:"]
    for word, value in enumerate(got, 1):
        places = [n for n, each in enumerate(messages, 1) if each[word - 1] == value]
        whose = f"of message {places[0]}" if places else "of no message that it may return"
        shown = f"{value:#x}" if type(value) is int else f"{value!r:.40}"
        lines.append(f"  {box.name(word)}: {shown:<20} {whose}")
    return "\n".join(lines)


def test_publish(publish: Function, **words: int) -> None:
    """Test publish: the sequence number is odd while the payload changes."""
    rng, report = verdict.seeded("publish"), verdict.Report(concepts.LAB3)
    numbers = Words(**words)
    with submission.local(publish) as (function,):
        calls: Calls = []
        messages = [_values(rng) for _ in range(4)]
        with report.case("writes that arrive in the order of posting", "protocol", required=True):
            calls = _record(function, enumerate(messages, 1), numbers)
            _check_publish(calls, _posted, messages, numbers)
        with report.case("writes that arrive in other orders before the next message", "tearing"):
            for order in _orders(calls):
                _check_publish(calls, order, messages, numbers, apart=True)
        with report.case("messages close behind each other", "tearing"):
            for order in _orders(calls):
                _check_publish(calls, order, messages, numbers)
    report.finish()


def _check_publish(
    calls: Calls, order: Order, messages: list[list[int]], numbers: Words, *, apart: bool = False
) -> None:
    def watch(box: Mailbox) -> None:
        sequence = box.words[FLAG]
        if sequence % 2 == 0 and sequence:
            number = sequence // 2
            expect(
                number <= len(messages),
                f"the sequence number is {sequence} with {len(messages)} messages\n{box.story()}",
            )
            when = f"the sequence number is {sequence}, so message {number} is whole, and"
            _expect_payload(box, messages[number - 1], when)
        elif not sequence:
            expect(not any(box.words), f"a payload changes with sequence number 0\n{box.story()}")

    box = Mailbox(_PAYLOAD, watch=watch, numbers=numbers, order=order)
    _replay(calls, box, apart=apart)
    box.settle()
    last, found = 2 * len(messages), box.words[FLAG]
    expect(found == last, f"the sequence number is {found} at the end, not {last}\n{box.story()}")


def test_snapshot(snapshot: Function, **words: int) -> None:
    """Test snapshot: it returns the newest whole message or None, not a torn or older message."""
    rng, report = verdict.seeded("snapshot"), verdict.Report(concepts.LAB3)
    numbers = Words(**words)
    with submission.local(snapshot) as (function,):
        with report.case("no message, then one", "protocol", required=True):
            box, values = Mailbox(_PAYLOAD, numbers=numbers), _values(rng)
            _expect_message(_look(function, Inbox(box), box), [None], box)
            _deliver(box, _message(rng, 1, values))
            _expect_message(_look(function, Inbox(box), box), [values], box)
        first, second = _values(rng), _values(rng)
        before, writes = _message(rng, 1, first), _message(rng, 2, second)
        with report.case("a producer that stopped in the middle of a message", "tearing"):
            for arrived in range(1, len(writes)):
                box = Mailbox(_PAYLOAD, numbers=numbers)
                _deliver(box, [*before, *writes[:arrived]])
                got = _look(function, Inbox(box), box)
                expect(got is None, f"it returned {got!r:.80}; no message is whole\n{box.story()}")
        with report.case("loads that see older values", "tearing"):
            _check_looks(function, numbers, before, writes, [first, second])
    report.finish()


def _message(rng: random.Random, number: int, values: list[int]) -> list[tuple[int, int]]:
    """Return the writes of a correctly published message, in the order of arrival."""
    payload = list(enumerate(values, 1))
    rng.shuffle(payload)
    return [(FLAG, 2 * number - 1), *payload, (FLAG, 2 * number)]


@dataclass(frozen=True, slots=True)
class Replay:
    """A program that ran on the provider `fault`, with one write delayed.

    Attributes:
        numbers: The numbers of the words in the program.
        arrived: The positions of the writes in the order of their arrival.
        seen: The words at the moment when the flag arrived.
        final: The words at the end.
        right: The words of the whole message.
    """

    numbers: Words
    arrived: tuple[int, ...]
    seen: tuple[int, ...]
    final: tuple[int, ...]
    right: tuple[int, ...]

    @property
    def wrong(self) -> bool:
        """True if the consumer reads a wrong message, or the words are wrong at the end."""
        return self.seen != self.right or self.final != self.right

    def story(self, program: Program, delayed: int) -> str:
        """Return a text with one line for each arrival and for what the consumer reads."""
        lines = [f"write {delayed} is delayed by the provider 'fault'; in the order of arrival:"]
        for position in self.arrived:
            word, value, fenced = program[position]
            lines.append(
                f"  write {position}  word {word} = {value:#x}"
                + (", fenced" if fenced else "")
                + ("   <- the flag: now the consumer reads" if self._is_flag(word) else "")
            )
        for word, (right, seen, final) in enumerate(
            zip(self.right, self.seen, self.final, strict=True)
        ):
            note = "" if seen == final == right else "   <- wrong"
            number = self.numbers.number(word)
            lines.append(f"  word {number}: {seen:#x}, later {final:#x}; meant {right:#x}{note}")
        return "\n".join(lines)

    def _is_flag(self, word: int) -> bool:
        return word == self.numbers.flag_word


def replay(program: Program, delayed: int, **words: int) -> Replay:
    """Run a program's writes on the provider `fault`, which delays one of them.

    Args:
        program: Word, value and fence of each write, in the order of posting. One of them writes
            the flag.
        delayed: Position of the write that is delayed.
        words: The numbers of the words, if they are not those of the repository.

    Raises:
        ValueError: The program cannot run: nothing was written.
    """
    numbers = Words(**words)
    _check_program(program, delayed, numbers)
    size = 1 + max(numbers.place(word, _PROGRAM_MAX) for word, _, _ in program)
    rule = FaultRule("delay", ops="w", skip=delayed, count=1, delay_us=_DELAY_US)
    with contextlib.ExitStack() as stack:
        device = stack.enter_context(Device("fault", rules=[rule]))
        source = stack.enter_context(empty(len(program), dtype="u8"))
        memory = stack.enter_context(empty(size, dtype="u8"))
        source.array[:] = [value for _, value, _ in program]
        memory.array[:] = 0
        local, exported = device.register(source), device.register(memory, access="rw")
        stack.callback(local.close)
        stack.callback(exported.close)
        remote = stack.enter_context(device.import_region(exported.export()))
        queue = stack.enter_context(device.queue(depth=_PROGRAM_MAX))
        transfers = [
            queue.write(
                local, remote, size=8, local_offset=8 * position, fence=bool(fenced),
                remote_offset=8 * numbers.place(word, size),
            )
            for position, (word, _, fenced) in enumerate(program)
        ]  # fmt: skip
        stamps = [transfer.wait(timeout=_TIMEOUT_S).complete_ns for transfer in transfers]
        final = tuple(int(value) for value in memory.array)
    arrived = sorted(range(len(program)), key=lambda position: (stamps[position], position))
    flag = next(n for n, at in enumerate(arrived) if program[at][0] == numbers.flag_word)
    return Replay(
        numbers,
        tuple(arrived),
        seen=_words(program, arrived[: flag + 1], size, numbers),
        final=final,
        right=_words(program, range(len(program)), size, numbers),
    )


def _check_program(program: Program, delayed: int, numbers: Words) -> None:
    """Raise ValueError if a program is not a list of writes of which one writes the flag."""
    if not 0 < len(program) <= _PROGRAM_MAX:
        raise ValueError(f"the program has {len(program)} writes; it needs 1 to {_PROGRAM_MAX}")
    for position, write in enumerate(program):
        word, value = write[:2] if len(write) == 3 else (None, None)
        first, flag = numbers.first_word, numbers.flag_word
        known = word == flag or _is_index(word, first + _PROGRAM_MAX, first)
        if not (_is_index(word, _LIMIT) and known and _is_index(value, _LIMIT)):
            raise ValueError(
                f"write {position} is {write!r}; it must be [word, value, fenced], with a word "
                f"{flag} or from {first} to {first + _PROGRAM_MAX - 1}, and a value of 64 bits"
            )
    if not any(word == numbers.flag_word for word, _, _ in program):
        raise ValueError(
            f"no write of the program is to word {numbers.flag_word}, the flag, so the consumer "
            f"never reads: append [{numbers.flag_word}, 1, True], or look at Mailbox, which needs "
            "no flag"
        )
    if not _is_index(delayed, len(program)):
        raise ValueError(f"delayed is {delayed!r}; the writes are 0 to {len(program) - 1}")


def _is_index(value: Any, end: int, start: int = 0) -> bool:
    return type(value) is int and start <= value < end


def _words(
    program: Program, positions: Iterable[int], size: int, numbers: Words
) -> tuple[int, ...]:
    """Return the words after the writes at these positions, applied in this order."""
    words = [0] * size
    for position in positions:
        words[numbers.place(program[position][0], size)] = program[position][1]
    return tuple(words)


def _program(rng: random.Random, kind: str, count: int, numbers: Words) -> list[list[Any]]:
    """Return a program of a kind: one write to each word of the payload, or two to one of them."""
    first = numbers.first_word
    words = rng.sample(range(first, first + count), count)
    program: list[list[Any]] = [[word, rng.randrange(1, 1 << 32), False] for word in words]
    twice = kind in ("two writes to one word", "two writes to one word, with a fence between")
    if twice:
        word = rng.choice(words[: count // 2])
        program.append([word, rng.randrange(1, 1 << 32), kind.endswith("between")])
    if kind == "a fence too early":
        program[rng.randrange(1, count)][2] = True
    if kind == "fences before each write":
        program = [[word, value, True] for word, value, _ in program]
    flag_fenced = kind not in ("no fence", "a fence too early")
    return [*program, [numbers.flag_word, 1, flag_fenced]]


KINDS = (
    "one fence",
    "no fence",
    "a fence too early",
    "two writes to one word",
    "two writes to one word, with a fence between",
    "fences before each write",
)
_RIGHT = frozenset(KINDS) - {"no fence", "a fence too early", "two writes to one word"}


def example_programs(**words: int) -> list[list[list[Any]]]:
    """Return the programs of the lab's story: one right program and the three wrong programs."""
    rng = random.Random("story")
    return [_program(rng, kind, 3, Words(**words)) for kind in KINDS[:4]]


def test_late(late: Function, **words: int) -> None:
    """Test late on one right program and on one program of each wrong order."""
    test_programs(late, "late", KINDS[:4], (3, 4), **words)


def test_programs(
    late: Function, part: str, kinds: Sequence[str], sizes: tuple[int, int], **words: int
) -> None:
    """Test late on random programs of some kinds, with from sizes[0] to sizes[1] words."""
    rng, report, numbers = verdict.seeded(part), verdict.Report(concepts.LAB3), Words(**words)
    made = [(kind, _program(rng, kind, rng.randint(*sizes), numbers)) for kind in kinds]
    with submission.local(late) as (function,):
        for number, (kind, program) in enumerate(made, 1):
            title = f"program {number}: {len(program)} writes"
            with report.case(title, _about(kind), required=kind in _RIGHT or kind == "no fence"):
                _check_late(function(program), program, kind, words)
    report.finish()


def _about(kind: str) -> str:
    if kind in _RIGHT:
        return "sound"
    return "two writes" if kind.startswith("two writes") else "overtaking"


def _check_late(got: Any, program: Program, kind: str, words: Mapping[str, int]) -> None:
    if got is None:
        if kind in _RIGHT:
            return
        for position in range(len(program)):
            found = replay(program, position, **words)
            if found.wrong:
                raise verdict.WrongAnswer(
                    f"it returned None; it is wrong: {kind}\n{found.story(program, position)}"
                )
    last = len(program) - 1
    expect(
        type(got) is int and 0 <= got <= last,
        f"it returned {got!r:.60}; it must return None or a position from 0 to {last}",
    )
    for _ in range(_TRIES):  # if the machine pauses as long as the delay, the delay has no effect
        found = replay(program, got, **words)
        if found.wrong:
            return
    what = "; the program is right" if kind in _RIGHT else ""
    raise verdict.WrongAnswer(
        f"it returned {got}; the consumer reads the message{what}\n{found.story(program, got)}"
    )


def test_few_fences(publish_fast: Function, snapshot_fast: Function, **words: int) -> None:
    """Test the bonus: messages that are never torn, with few fences of the producer.

    The ratio is three fences for each message, divided by the fences made (at least one).
    """
    rng, report = verdict.seeded("few fences"), verdict.Report(concepts.LAB3)
    numbers, messages = Words(**words), [_values(rng) for _ in range(3)]
    calls: Calls = []
    with (
        submission.local(publish_fast, snapshot_fast) as (put, get),
        get.twin().submission as other,
        report.case("both sides", "tearing", required=True),
    ):
        calls = _record(put, enumerate(messages, 1), numbers)
        for order in _orders(calls, single=False):
            _check_both(calls, order, other.function(get.name), messages, numbers)
    fences = sum(write.fenced for _, writes in calls for write in writes)
    report.bonus(3 * len(messages) / max(1, fences))
    report.finish()


def _check_both(
    calls: Calls,
    order: Order,
    get: submission.RemoteFunction,
    messages: list[list[int]],
    numbers: Words,
) -> None:
    """Look after each arrival, then with one word seen fresh or all but one."""
    allowed: list[list[int] | None] = [None, *messages]
    first, count = len(calls[0][1]), sum(len(writes) for _, writes in calls)
    all_words = [numbers.number(place) for place in range(1 + _PAYLOAD)]
    box = Mailbox(_PAYLOAD, numbers=numbers, order=order)
    _replay(calls, box)
    inbox = Inbox(box, all_words)
    for _ in range(count):
        box.settle(1)
        _expect_message(_look(get, inbox, box), allowed, box)
    _end(get, inbox, box, messages[-1])
    for word in all_words:
        for fresh in ([word], [each for each in all_words if each != word]):
            box = Mailbox(_PAYLOAD, numbers=numbers, order=order)
            _replay(calls, box)
            box.settle(first)
            inbox = Inbox(box, fresh)
            box.settle()
            _expect_newer(get, inbox, box, allowed)
