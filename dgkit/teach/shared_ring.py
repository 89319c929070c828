# SPDX-License-Identifier: Apache-2.0
"""Lab 2, build a queue: a ring in shared memory between two sides, driven by schedules.

The ring is an array of 32-bit words: the tail, which the producer advances; the head, which the
consumer advances; a flag that the consumer sets before it sleeps; and the slots. Where they are is
a matter of the student's variant. Head and tail wrap only at 2**32. Each load and each store is one
step, and the schedule decides whose step is next.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from . import concepts, submission, verdict
from .verdict import expect

TAIL, HEAD, ARMED, SLOT = 0, 1, 2, 3
_MASK = (1 << 32) - 1
_NAMES = {TAIL: "tail", HEAD: "head", ARMED: "armed"}
_SWITCHES = 2  # of sides in an enumerated schedule, besides those when a side ends or sleeps
_MOST_SCHEDULES = 400  # that are enumerated, those with fewer switches first
_STEPS = 3000
_IDLE_CALLS = 100
_SHOWN = 24

# A script is a generator that yields a function with its arguments and receives the function's
# value. If it yields None and a condition, it waits until that holds.
Script = Generator[tuple["submission.RemoteFunction | None", Sequence[Any]], Any, None]


class Words(NamedTuple):
    """Numbers of the words, which differ between students: see `variants`."""

    tail_word: int = TAIL
    head_word: int = HEAD
    armed_word: int = ARMED
    first_slot: int = SLOT


DEFAULT = Words()


class Ring(submission.Served):
    """Words of shared memory, with a log of all accesses.

    Args:
        slots: Number of slots, a power of two.
        start: Initial value of head and tail.
        numbers: The numbers of the words for both sides. Here they are TAIL, HEAD, ARMED, SLOT ...
    """

    methods = ("load", "store", "slots", "doorbell")

    def __init__(self, slots: int, start: int = 0, numbers: Words = DEFAULT) -> None:
        self._slots = slots
        *control, first = numbers
        places = [*control, *range(first, first + slots)]
        self._words = {number: place for place, number in enumerate(places)}
        self.words = [start, start, 0] + [0xDEAD] * slots
        self.log: list[tuple[str, str]] = []
        self.side = ""
        self.bells = self.armings = 0
        self.bell = False
        self.stores: list[int] = []

    def _checked(self, index: Any) -> int:
        if type(index) is not int or index not in self._words:
            *control, first = list(self._words)[: SLOT + 1]
            known = f"{', '.join(map(str, control))}, and slots from {first}"
            raise IndexError(f"word {index!r:.20}: the ring has the words {known}")
        return self._words[index]

    def load(self, index: int) -> int:
        """Return a word."""
        index = self._checked(index)
        value = self.words[index]
        self._note(f"load  {self._name(index)} -> {value}")
        return value

    def store(self, index: int, value: int) -> None:
        """Set a word."""
        if type(value) is not int or not 0 <= value <= _MASK:
            raise ValueError(f"{value!r} is not a number from 0 to {_MASK}: a word has 32 bits")
        index = self._checked(index)
        if self.side == {HEAD: "producer", ARMED: None}.get(index, "consumer"):
            raise ValueError(f"the {self.side} does not store the {self._name(index)}")
        self.words[index] = value
        self.stores.append(index)
        self.armings += index == ARMED and value != 0
        self._note(f"store {self._name(index)} <- {value}")

    def slots(self) -> int:
        """Return the number of slots."""
        return self._slots

    def doorbell(self) -> None:
        """Wake the consumer, and disarm the ring."""
        self.bells += 1
        self.bell = True
        self.words[ARMED] = 0
        self._note("doorbell")

    def _name(self, index: int) -> str:
        return _NAMES.get(index, f"slot {index - SLOT}")

    def _note(self, text: str) -> None:
        self.log.append((self.side, text))

    def story(self) -> str:
        """Return the last steps in two columns, one for each side."""
        sides = ("producer", "consumer")
        lines = [f"step  {sides[0]:<30}{sides[1]}"]
        start = max(0, len(self.log) - _SHOWN)
        for number, (side, text) in enumerate(self.log[start:], start + 1):
            lines.append(
                f"{number:4}  {text if side == sides[0] else '':<30}"
                + (text if side == sides[1] else "")
            )
        return "\n".join(line.rstrip() for line in lines)


class _Actor:
    """One side of the ring; it executes the calls of a script, one request at a time."""

    def __init__(self, name: str, script: Script, ring: Ring) -> None:
        self.name, self._script, self._ring = name, script, ring
        self._call: submission.Call | None = None
        self._request: submission.Request | None = None
        self.done = False
        self._until: Callable[[], bool] | None = None
        self._advance(None)

    @property
    def ready(self) -> bool:
        """Return whether this side can execute a step."""
        return not self.done and (self._until is None or self._until())

    def _advance(self, value: Any) -> None:
        """Run the script until a call makes a request, or the script ends."""
        for _ in range(_IDLE_CALLS):
            try:
                function, args = self._script.send(value)
            except StopIteration:
                self.done = True
                return
            if function is None:
                (self._until,) = args
                return
            self._call = function.start(*args)
            self._request = self._call.next()
            if self._request:
                return
            value = self._call.value
        raise verdict.WrongAnswer(f"{_IDLE_CALLS} calls without one access of the ring")

    def step(self) -> None:
        """Execute the pending request (or end waiting), and advance to the next one."""
        if self._until:
            self._until = None
            self._advance(None)
            return
        assert self._call
        assert self._request
        self._ring.side = self.name
        self._call.serve(self._request)
        self._request = self._call.next()
        if not self._request:
            self._advance(self._call.value)


# Of the sides that are ready, choose the one whose step is next.
Choice = Callable[[Sequence[_Actor]], _Actor]


def _run(choose: Choice, ring: Ring, producer: Script, consumer: Script) -> None:
    """Interleave two scripts."""
    actors = [_Actor("producer", producer, ring), _Actor("consumer", consumer, ring)]
    for _ in range(_STEPS):
        ready = [actor for actor in actors if actor.ready]
        if all(actor.done for actor in actors):
            return
        stuck = "a lost wake-up: the consumer sleeps" if ring.armings else "both sides wait"
        expect(bool(ready), f"{stuck} forever\n{ring.story()}")
        choose(ready).step()
    raise verdict.WrongAnswer(f"no end after {_STEPS} steps\n{ring.story()}")


def _switching(first: str, switches: Sequence[int], both: list[int]) -> Choice:
    """Return the schedule that switches sides before these steps, and when a side cannot go on.

    Args:
        first: The side that begins.
        switches: Numbers of steps.
        both: Gets the number of each step before which both sides are ready.
    """
    current, step = first, -1

    def choose(ready: Sequence[_Actor]) -> _Actor:
        nonlocal current, step
        step += 1
        if len(ready) > 1:
            both.append(step)
        others = [actor.name for actor in ready if actor.name != current]
        if others and (step in switches or len(others) == len(ready)):
            (current,) = others
        return next(actor for actor in ready if actor.name == current)

    return choose


def _enumerate(run: Callable[[Choice], None], most_switches: int = _SWITCHES) -> None:
    """Run in each schedule with at most this number of switches.

    One switch is enough for each pair of steps of the two sides to take place in either order.
    """
    todo = deque[tuple[str, tuple[int, ...]]]([("producer", ()), ("consumer", ())])
    for _ in range(_MOST_SCHEDULES):
        if not todo:
            return
        first, switches = todo.popleft()
        both: list[int] = []
        run(_switching(first, switches, both))
        if len(switches) < most_switches:
            later = (step for step in both if step > max(switches, default=0))
            todo += [(first, (*switches, step)) for step in later]


def _producer_script(
    function: submission.RemoteFunction, ring: Ring, values: Sequence[int]
) -> Script:
    for value in values:
        while True:
            stores = len(ring.stores)
            accepted = yield function, (ring, value)
            expect(type(accepted) is bool, f"submit returned {accepted!r:.60}; it must be a bool")
            if accepted:
                break
            yield None, (_after(ring, stores),)


def _consumer_script(
    function: submission.RemoteFunction, ring: Ring, values: Sequence[int]
) -> Script:
    for number, value in enumerate(values):
        stores = len(ring.stores)
        while (got := (yield function, (ring,))) is None:
            yield None, (_after(ring, stores),)
            stores = len(ring.stores)
        _expect_value(got, value, number, ring)


def _after(ring: Ring, stores: int) -> Callable[[], bool]:
    """Return a condition that holds after the next store: polling before it finds nothing new."""
    return lambda: len(ring.stores) > stores


def _expect_value(got: Any, value: int, number: int, ring: Ring) -> None:
    expect(
        type(got) is int and got == value,
        f"value {number} that was taken is {got!r:.60}; {value} was submitted\n{ring.story()}",
    )


Function = Callable[..., Any]


@contextlib.contextmanager
def _sides(*functions: Function) -> Iterator[tuple[submission.RemoteFunction, ...]]:
    """Yield functions, each in a process of its own, so that they share only the ring."""
    with submission.local(*functions) as (first, *others), contextlib.ExitStack() as stack:
        twins = [other.twin() for other in others]
        for twin in twins:
            stack.enter_context(twin.submission)
        yield first, *twins


def test_one_side(submit: Function, take: Function, **words: int) -> None:
    """Test submit and take one after another: full ring, empty ring, order, wrap-around."""
    rng, report = verdict.seeded("one side"), verdict.Report(concepts.LAB2)
    starts = {"a ring that begins at 0": 0, "indices that wrap at 2**32": _MASK - 5}
    with _sides(submit, take) as (put, get):
        for title, start in starts.items():
            with report.case(title, "wrap" if start else "ring", required=start == 0):
                _fill_and_drain(rng, Ring(4, start, Words(**words)), put, get)
    report.finish()


def _fill_and_drain(
    rng: random.Random,
    ring: Ring,
    put: submission.RemoteFunction,
    get: submission.RemoteFunction,
) -> None:
    for _ in range(3):
        values = [rng.randrange(1 << 32) for _ in range(4)]
        for number, value in enumerate(values):
            ring.side = "producer"
            expect(put(ring, value) is True, f"submit {number} of 4 is not True\n{ring.story()}")
        expect(put(ring, 1) is False, f"a full ring accepts a value\n{ring.story()}")
        ring.side = "consumer"
        for number, value in enumerate(values):
            _expect_value(get(ring), value, number, ring)
        expect(get(ring) is None, f"an empty ring does not give None\n{ring.story()}")
    for index in (HEAD, TAIL):
        expect(0 <= ring.words[index] <= _MASK, "head and tail are numbers of 32 bits")


def test_schedules(submit: Function, take: Function, **words: int) -> None:
    """Test submit and take in all schedules with a switch of sides, and when they cannot go on."""
    rng, report = verdict.seeded("schedules"), verdict.Report(concepts.LAB2)
    with _sides(submit, take) as (put, get):

        def run(choose: Choice, slots: int, start: int, values: list[int]) -> None:
            ring = Ring(slots, start, Words(**words))
            _run(
                choose,
                ring,
                _producer_script(put, ring, values),
                _consumer_script(get, ring, values),
            )

        values = [rng.randrange(1 << 32) for _ in range(3)]
        title = "a ring of one slot, in all schedules with a switch of sides"
        with report.case(title, "publication", required=True):
            _enumerate(partial(run, slots=1, start=0, values=values), 1)
        title = "indices that wrap at 2**32, in all schedules with a switch of sides"
        with report.case(title, "wrap"):
            _enumerate(partial(run, slots=2, start=_MASK - 1, values=values), 1)
    report.finish()


def test_batch(submit_many: Function, take: Function, **words: int) -> None:
    """Test submit_many: it returns the number accepted, and publishes a batch once."""
    rng, report, numbers = verdict.seeded("batch"), verdict.Report(concepts.LAB2), Words(**words)
    with _sides(submit_many, take) as (put, get):
        with report.case("a batch that fits", "ring", required=True):
            _check_batch(rng, Ring(8, 0, numbers), put, get, 5)
        with report.case("a batch over the end of the indices", "wrap"):
            _check_batch(rng, Ring(8, _MASK - 2, numbers), put, get, 5)
        with report.case("a batch that does not fit: its beginning is accepted", "batch"):
            _check_batch(rng, Ring(8, 0, numbers), put, get, 11)
        with report.case("an empty batch publishes nothing", "batch"):
            ring = Ring(4, 0, numbers)
            expect(put(ring, []) == 0, "it must return 0")
            expect(not ring.stores, f"it stores\n{ring.story()}")
        values = [rng.randrange(1 << 32) for _ in range(3)]

        def run(choose: Choice) -> None:
            ring = Ring(4, 0, numbers)
            _run(
                choose, ring, _produce_batch(put, ring, values), _consumer_script(get, ring, values)
            )

        title = "a batch is visible only when it is whole, in all schedules with a switch of sides"
        with report.case(title, "publication"):
            _enumerate(run, 1)
    report.finish()


def _check_batch(
    rng: random.Random,
    ring: Ring,
    put: submission.RemoteFunction,
    get: submission.RemoteFunction,
    count: int,
) -> None:
    values = [rng.randrange(1 << 32) for _ in range(count)]
    fits = min(count, ring.slots())
    ring.side = "producer"
    accepted = put(ring, values)
    expect(accepted == fits, f"it returned {accepted!r:.60}; {fits} fit")
    moved = ring.stores.count(TAIL)
    expect(moved == 1, f"the tail was stored {moved} times; once is enough\n{ring.story()}")
    ring.side = "consumer"
    for number, value in enumerate(values[:fits]):
        _expect_value(get(ring), value, number, ring)


def _produce_batch(
    function: submission.RemoteFunction, ring: Ring, values: Sequence[int]
) -> Script:
    accepted = yield function, (ring, list(values))
    expect(accepted == len(values), f"it accepted {accepted!r:.60} of {len(values)}")


def test_doorbell(
    submit: Function, take: Function, prepare_to_sleep: Function, **words: int
) -> None:
    """Test the doorbell: no wake-up is lost, and it does not ring while the consumer is awake."""
    rng, report, numbers = verdict.seeded("doorbell"), verdict.Report(concepts.LAB2), Words(**words)
    with _sides(submit, take, prepare_to_sleep) as (put, get, sleep):
        with report.case("an empty ring: the consumer sleeps", "wake-up", required=True):
            ring = Ring(4, 0, numbers)
            ring.side = "consumer"
            expect(get(ring) is None, f"an empty ring does not give None\n{ring.story()}")
            _expect_sleep(sleep(ring), ring)
            expect(ring.words[ARMED] != 0, f"it sleeps and is not armed\n{ring.story()}")
        spurious = ""  # the story of a run with more doorbells than armings

        def run(choose: Choice, slots: int, values: list[int]) -> None:
            nonlocal spurious
            ring = Ring(slots, 0, numbers)
            asleep = _consume_asleep(get, sleep, ring, values)
            _run(choose, ring, _producer_script(put, ring, values), asleep)
            if ring.bells > ring.armings and not spurious:
                spurious = (
                    f"{ring.bells} doorbells; the consumer was armed {ring.armings} times\n"
                    + ring.story()
                )

        title = "all schedules at the last value, with two switches of sides"
        with report.case(title, "wake-up", required=True):
            values = [rng.randrange(1 << 32) for _ in range(2)]
            _enumerate(partial(run, slots=4, values=values[:1]))
            _enumerate(partial(run, slots=2, values=values), 1)
        with report.case("no doorbell while the consumer is awake", "doorbells"):
            expect(not spurious, spurious)
            ring = Ring(4, 0, numbers)
            for _ in range(2):
                ring.side = "producer"
                expect(put(ring, 1) is True, "submit did not return True")
                expect(not ring.bells, f"nothing was armed\n{ring.story()}")
                ring.side = "consumer"
                expect(sleep(ring) is False, f"it sleeps beside a value\n{ring.story()}")
                expect(not ring.words[ARMED], f"it does not sleep and is armed\n{ring.story()}")
    report.finish()


def _consume_asleep(
    take: submission.RemoteFunction,
    prepare: submission.RemoteFunction,
    ring: Ring,
    values: Sequence[int],
) -> Script:
    for number, value in enumerate(values):
        while (got := (yield take, (ring,))) is None:
            may_sleep = yield prepare, (ring,)
            if ring.words[TAIL] == ring.words[HEAD]:
                _expect_sleep(may_sleep, ring)
            expect(
                type(may_sleep) is bool,
                f"prepare_to_sleep returned {may_sleep!r:.60}; it must be a bool",
            )
            if may_sleep:
                yield None, (lambda: ring.bell,)
                ring.bell = False
        _expect_value(got, value, number, ring)


def _expect_sleep(may_sleep: Any, ring: Ring) -> None:
    expect(
        may_sleep is True,
        f"prepare_to_sleep returned {may_sleep!r:.60} with an empty ring\n{ring.story()}",
    )


def test_few_accesses(submit_many: Function, **words: int) -> None:
    """Test the bonus: a batch of 64 values with few accesses to the shared memory.

    The ratio is four accesses for each value, divided by the accesses made.
    """
    rng, report = verdict.seeded("few accesses"), verdict.Report(concepts.LAB2)
    ring, count = Ring(64, 0, Words(**words)), 64
    values = [rng.randrange(1 << 32) for _ in range(count)]
    title = "a batch of 64 values"
    with submission.local(submit_many) as (put,), report.case(title, "ring", required=True):
        expect(put(ring, values) == count, "it must return 64")
        expect(ring.words[SLOT:] == values, "the slots do not have the values")
        expect(ring.words[TAIL] == count, f"the tail is {ring.words[TAIL]}, not {count}")
    report.bonus(4 * count / max(1, len(ring.log)))
    report.finish()
