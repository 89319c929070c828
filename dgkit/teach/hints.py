# SPDX-License-Identifier: Apache-2.0
"""Hints of `dgkit teach check --hint`: three for each concept, each says more than the one before.

The file `hints.json` beside a notebook has the number of hints that its student has seen for each
concept; it is submitted with the notebook.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from ..files import read_limited, replace_file
from ..json_input import read_json
from . import concepts

FILE = "hints.json"
_MAX_BYTES = 1 << 16
LEVELS = 3

HINTS: Mapping[str, tuple[str, str, str]] = {
    # Lab 1
    "format": (
        "Write down offset and size of each field before you decode one.",
        (
            "struct has a letter for each size, and a sign for the byte order, which also "
            "removes padding."
        ),
        "The format is little-endian: a format text for struct starts with '<'.",
    ),
    "deleted": (
        "Does each node in the chain belong into the result?",
        "The field `kind` says whether a node is live.",
        "Follow the chain through a deleted node, but do not append it to the result.",
    ),
    "accepts": (
        "Run your check on memory that is not damaged.",
        "Which bytes does the CRC cover? Not itself.",
        "A chain may be empty, and a payload may have no bytes: neither is damage.",
    ),
    "damage": (
        "List what could be wrong with each number that you read before you use it.",
        "An offset can be beyond the memory, come back to a node that was there, or end too early.",
        (
            "Remember the offsets that you have visited, compare each with the length, and "
            "the end with the count."
        ),
    ),
    "named": (
        "What would you want to read in the message of an error, at three in the morning?",
        "Which of magic and CRC is wrong, and at which offset is the node?",
        "A BoundsError that becomes a ValueError still needs the node's offset in its text.",
    ),
    # Lab 2
    "ring": (
        "When is a ring with n slots full, and when is it empty, in terms of head and tail?",
        "Head and tail count values; the slot is the count modulo the number of slots.",
        "It is full when tail - head is the number of slots, and empty when they are equal.",
    ),
    "wrap": (
        "What is the number after the largest number of 32 bits?",
        "Differences of indices wrap as well: head can be larger than tail.",
        "Take each new index, and each difference, modulo 2**32.",
    ),
    "publication": (
        "At which of your steps can the other side see the value?",
        "The other side may run between any two of your steps.",
        "Store the slots first and the tail last; take the slot's value before you store the head.",
    ),
    "batch": (
        "How many values fit, and what do you do with an empty batch?",
        "The batch is published by one store of the tail.",
        "Cut the batch to the free slots, store these, and store the tail only if there is one.",
    ),
    "wake-up": (
        (
            "Find a schedule in which the producer submits after the consumer looked, before "
            "it sleeps."
        ),
        (
            "The consumer says that it will sleep, and the producer looks at that. Who does "
            "what first?"
        ),
        "Arm first, then look at the ring again; sleep only if it is still empty.",
    ),
    "doorbells": (
        "Who needs a doorbell?",
        "Only a consumer that has armed itself.",
        "Look at the armed word after you stored the tail, and ring only if it is set.",
    ),
    # Lab 3
    "protocol": (
        "What has the word of the flag before, during and after a message?",
        (
            "For one message the flag goes from 0 to 1; for many, the sequence number is odd "
            "while it changes."
        ),
        "Message n: store 2n - 1, the payload, then 2n. The reader takes even numbers above 0.",
    ),
    "tearing": (
        "Draw one arrow from each write that must come first to the one that must come later.",
        (
            "A producer's fence orders writes, a consumer's fence orders loads: you need both "
            "sides' own."
        ),
        (
            "Fence before the flag is written, and between the load of the flag and of the "
            "payload; for a sequence number, also around the payload's other end."
        ),
    ),
    "sound": (
        "Delay each write of the program in your head. Is the result ever wrong?",
        "A fenced write waits for all writes before it.",
        "A program whose flag is fenced, and which writes each word once, is right.",
    ),
    "overtaking": (
        "Which write must the flag not overtake?",
        "Only fences at or before the flag, and after the payload's write, protect that write.",
        "Return a write before the flag that has no fence between itself and the flag.",
    ),
    "two writes": (
        "What if one word is written twice?",
        "The flag's fence waits for both writes. Which of the two then stays?",
        "Return the earlier write of the word if no fence is between the two.",
    ),
    # Lab 4
    "median": (
        "Sort the times before you choose one.",
        "The first transfers are slower: why?",
        "Discard the first transfers, and take the middle of many.",
    ),
    "floor": (
        "What does a measurement of nothing take?",
        "It is a property of the clock and the call, not of the size.",
        "Take the median of `device.nothing`.",
    ),
    "tail": (
        "Of how many transfers is the 99th percentile one?",
        "With 100 transfers, one outlier decides.",
        "Take thousands of transfers, and the time at 99 % of the sorted list.",
    ),
    "one at a time": (
        "What does one transfer take, in terms of its size?",
        "A base, and a time for each byte: two sizes give both.",
        "Rate at depth 1 is 1e9 / (base + byte * size), in transfers a second.",
    ),
    "busy engine": (
        "Can the rate grow with the depth for ever?",
        (
            "The engine does one transfer after another: each takes a gap or its bytes, "
            "whichever is longer."
        ),
        "The rate is the smaller of depth / latency and 1 / max(gap, byte * size).",
    ),
    "depth": (
        "Little's law: in flight = rate * latency.",
        "You want a share of the highest rate: which rate is that for this size?",
        "Depth is share * latency / max(gap, byte * size), rounded up.",
    ),
    # Lab 5
    "log": (
        "In which words is record n, and how many fit?",
        "Ask `log.capacity()`, and compare it with the count.",
        "Record n starts at first_record + 4 * n; return False if the count is the capacity.",
    ),
    "half records": (
        "A process can die between any two steps: what does the reader see then?",
        "What is beyond the count does not exist.",
        "Store the record's four words first, and the count last.",
    ),
    "duplicates": (
        (
            "After a death, the client asks again with the same ident. How can you tell that "
            "it is there?"
        ),
        "Nothing but the log survives your process, and only the last record can be in doubt.",
        (
            "Before you append, compare the ident of record count - 1, and return True if it "
            "is the same."
        ),
    ),
    "lease": (
        "Which three numbers does the word have, and when may you take it?",
        "It is free when its expiry has passed.",
        "New word: epoch + 1, me, now + length; only if the old one's expiry is not after now.",
    ),
    "two holders": (
        "Two processes load the same word. What if both store?",
        "You need one step that stores only if nobody was faster.",
        "`log.cas(1, old, new)` returns `old` only if it was you.",
    ),
    "killed holder": (
        "Who gives a lease back whose holder is dead?",
        "Nobody: time does.",
        "Compare with the expiry alone, not with the holder.",
    ),
    "expiry": (
        "What does take_over do while the lease holds?",
        "It must change nothing.",
        "Call take_lease first, and return None if it did.",
    ),
    "old holder": (
        "The old holder may be paused and go on later. Which clock could stop it?",
        "None could: its access must end, not its time.",
        "After you took the lease, have the owner revoke all others, with your epoch.",
    ),
    "dead successor": (
        "What if you die between taking the lease and revoking?",
        "Then the next one must be able to do both.",
        "Each successor revokes after each lease that it takes; nothing is remembered elsewhere.",
    ),
    # Lab 6
    "feeding": (
        "Which steps does one batch need before it is trained?",
        "It is ready, copied, signalled, in this order, and you wait for each.",
        (
            "Loop over wait() until ready(batch), then copy, then wait until copied(number), "
            "then signal."
        ),
    ),
    "training": (
        "When has your function to return?",
        "When the losses of all batches are there.",
        "Wait until losses() has as many as batches().",
    ),
    "overwriting": (
        "When may a slot be filled again?",
        "Not when its batch was signalled: it is read until it is trained.",
        "Start the copy of batch n only when n - len(losses()) is less than the number of slots.",
    ),
    "overlap": (
        "What does the DMA do while the accelerator trains?",
        "With two slots, batch n + 1 can be copied while batch n is trained.",
        "Do not wait for a loss after each signal: wait only when all slots are in use.",
    ),
    "own bytes": (
        "Does your feed do the same in each job?",
        "A batch that is signalled before its copy is complete is trained from old bytes.",
        "Signal batch n only when copied() of its copy is True, in each job.",
    ),
    "CPU share": (
        "Which of the clocks say what the CPU did, and which how long it took?",
        "User and system time are both of the CPU.",
        "(user + system) / wall, each as a difference.",
    ),
    "all jobs": (
        "Is there a moment at which no job runs although one waits?",
        "Return a job for an accelerator that is free.",
        "Never leave an accelerator empty on which a waiting job can run.",
    ),
    "completion": (
        "Which job should go first if you want a small sum of completion times?",
        "Short ones, on the accelerator on which they are short.",
        "Compare what each job has left on each accelerator, and choose the smallest first.",
    ),
    "hours": (
        "Which jobs waste an accelerator?",
        "Those that run much longer there than on the other.",
        (
            "Weigh a job's time on an accelerator against its time on the other, and move "
            "running jobs, too."
        ),
    ),
    # Lab 7
    "bytes": (
        "Which bytes does each thread move, in terms of its block and its number?",
        (
            "All threads of a block have to be ready before one of them puts, and before the "
            "memory is used again."
        ),
        (
            "A barrier before the put, and one after the wait for it; each thread's piece is "
            "at its number * size."
        ),
    ),
    "status": (
        "Which function tells you whether an operation worked?",
        "A wait returns the status of its ticket.",
        "Store what the wait of this thread's own ticket returned; stop after the first error.",
    ),
    "signals": (
        "Who may signal, and after what?",
        "One thread, when the numbers of all threads are there.",
        "Thread 0 signals behind its put, in the same queue, after a barrier of the block.",
    ),
    "entries": (
        "Write the 48 bytes of one entry by hand, and compare them with what the feedback shows.",
        "All numbers are big-endian; the index and the queue's number are shifted by 8 bits.",
        "struct.pack('>IIIIQIIIIQ', ...) has all ten fields in the order of the table.",
    ),
    "laps": (
        "What is in a place of the ring when it is used the second time?",
        "The completion of an earlier lap looks like a new one, but for one bit.",
        "Completion n is there if bit 0 of byte 63 is the lowest bit of n // 8, and not before.",
    ),
    "announcement": (
        "What does the adapter read if it looks right after each of your stores?",
        "The record and the doorbell both say: what is in the ring is whole.",
        "Store the entry, then the record with index + 1, then the doorbell.",
    ),
    "error entries": (
        "Which bits of byte 63 say that a completion is an error?",
        "The upper four bits are 13 for an error of the send queue; then the syndrome counts.",
        "Return byte 55 if byte 63 >> 4 is 13, and 0 if it is 0.",
    ),
    "right keys": (
        "What must happen to the request if the syndrome is 0?",
        "Nothing.",
        "Return a list with the request as it is.",
    ),
    "keys": (
        "Which side's adapter looks at which of the two keys?",
        "A wrong lkey is found before anything is sent; a wrong rkey is found by the other side.",
        "Flushed is what comes after an error: return a broken request, and a right one behind it.",
    ),
}


def shown(notebook: Path) -> dict[str, int]:
    """Return how many hints of each concept were shown for a notebook."""
    path = notebook.parent / FILE
    try:
        found = read_json(read_limited(path, _MAX_BYTES))
    except (OSError, ValueError):
        return {}
    mine = found.get(notebook.name) if isinstance(found, dict) else None
    if not isinstance(mine, dict):
        return {}
    return {
        name: level
        for name, level in mine.items()
        if name in HINTS and type(level) is int and 0 < level <= LEVELS
    }


def take(notebook: Path, concept: concepts.Concept) -> str:
    """Return the next hint for a concept, at the end the last one again, and record it."""
    name = next(
        name for table in concepts.LABS.values() for name, each in table.items() if each is concept
    )
    levels = shown(notebook)
    levels[name] = min(LEVELS, levels.get(name, 0) + 1)
    replace_file(notebook.parent / FILE, json.dumps({notebook.name: levels}).encode() + b"\n")
    return f"hint {levels[name]} of {LEVELS}: {HINTS[name][levels[name] - 1]}"
