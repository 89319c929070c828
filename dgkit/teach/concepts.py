# SPDX-License-Identifier: Apache-2.0
"""Concepts of each lab: what each case of a test is about, its weight, and the cap of its part.

The points of a test are shared by the weights of the concepts that occur in it, and those of a
concept equally by its cases in that test. If a case of a concept with a cap is wrong, all tests of
the same part (those that call the same functions) get at most that share of their points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CAP = 0.3  # of a part whose answer can be torn, doubled, or owned by two


@dataclass(frozen=True, slots=True)
class Concept:
    """A concept, which cases of tests are about.

    Attributes:
        shows: What a right answer shows.
        weight: Its share of the points of a test, relative to the others that occur there. 0 for
            what is only required, because a function that always does the same satisfies it.
        cap: Largest share of the points of the part if a case is wrong.
    """

    shows: str
    weight: float
    cap: float = 1.0


Table = Mapping[str, Concept]

LAB1: Table = {
    "format": Concept("each field is read where it is, in its byte order", 2),
    "deleted": Concept("deleted nodes are passed over", 1),
    "accepts": Concept("undamaged memory is accepted", 0),
    "damage": Concept("damaged memory is refused with ValueError", 2),
    "named": Concept("the error names what is damaged: magic, CRC, the offset of a node", 1),
}
LAB2: Table = {
    "ring": Concept("a full and an empty ring, and the order of values", 2),
    "wrap": Concept("indices wrap at 2**32", 1),
    "publication": Concept("no value is visible before it is whole", 3, CAP),
    "batch": Concept("what does not fit is not accepted, and nothing publishes nothing", 1),
    "wake-up": Concept("no wake-up is lost", 7),
    "doorbells": Concept("a consumer that is awake is not armed, and gets no doorbell", 3),
}
LAB3: Table = {
    "protocol": Concept("what a message is, if writes arrive in the order of posting", 3),
    "tearing": Concept("no half message, in whatever order writes and loads take effect", 7, CAP),
    "sound": Concept("a program that is right is accepted", 2),
    "overtaking": Concept("a flag that overtakes its message is found", 2),
    "two writes": Concept("two writes to one word that change places are found", 1),
}
LAB4: Table = {
    "median": Concept("the median is that of many warm transfers", 2),
    "floor": Concept("what a measurement itself takes", 1),
    "tail": Concept("the 99th percentile is that of enough transfers", 1),
    "one at a time": Concept("the latency of one transfer predicts its rate", 2),
    "busy engine": Concept("the rate ends where the engine is always busy", 3),
    "depth": Concept("the smallest depth by Little's law", 1),
}
LAB5: Table = {
    "log": Concept("whole records in order, and an end", 2),
    "half records": Concept("the count never covers half a record", 3, CAP),
    "duplicates": Concept("each record is in the log once, also after kill -9", 4, CAP),
    "lease": Concept("a lease is free, held, expired", 3),
    "two holders": Concept("never two holders of a lease", 5, CAP),
    "killed holder": Concept("the lease of a holder that was killed expires", 2),
    "expiry": Concept("a lease that has not expired is left alone", 0),
    "old holder": Concept("a holder that was paused can do no harm", 5, CAP),
    "dead successor": Concept("a successor that dies with the lease is followed by another", 2),
}
LAB6: Table = {
    "feeding": Concept("one batch is trained from its own bytes", 0),
    "training": Concept("each batch is trained when it is there", 2),
    "overwriting": Concept("no slot is overwritten, or signalled early", 3, CAP),
    "overlap": Concept("a batch is copied while another one is trained", 1),
    "own bytes": Concept("with overlap, too, each batch is trained from its own bytes", 0, CAP),
    "CPU share": Concept("the CPU time of a process, of its wall time", 1),
    "all jobs": Concept("all jobs end, and no later than with naive sharing", 1),
    "completion": Concept("jobs end soon", 2),
    "hours": Concept("accelerators are busy for few hours", 2),
}
LAB7: Table = {
    "bytes": Concept("all bytes arrive, of all threads and blocks", 2),
    "status": Concept("a status says which operation failed", 1),
    "signals": Concept("no signal arrives before its numbers", 3, CAP),
    "entries": Concept("an entry has its fields where the adapter reads them", 2),
    "laps": Concept("the owner bit tells a completion from that of an earlier lap", 2),
    "announcement": Concept("an entry is announced after it was written", 4, CAP),
    "error entries": Concept("an error completion says why, and what follows is flushed", 2),
    "right keys": Concept("a request with right keys is a success", 0),
    "keys": Concept("which wrong key, or which order, leads to which error", 1),
}
LABS: Mapping[str, Table] = {
    f"lab{n}": table for n, table in enumerate((LAB1, LAB2, LAB3, LAB4, LAB5, LAB6, LAB7), 1)
}
