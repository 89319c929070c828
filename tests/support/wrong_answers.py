# SPDX-License-Identifier: Apache-2.0
"""Wrong answers of the labs, one a line, with what each costs by the lab's table of concepts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import teaching


class Wrong(NamedTuple):
    """A wrong answer.

    Attributes:
        lab: The lab.
        title: What is wrong.
        costs: Of each test, the concepts that it gets wrong, and which share of their cases.
        cells: The cells that differ from the solution's.
    """

    lab: str
    title: str
    costs: Mapping[str, Mapping[str, float]]
    cells: Mapping[str, str]


def _wrong(title: str, costs: str, name: str, *replacements: str) -> Wrong:
    """Return a wrong answer: texts of a cell of the solution, replaced, or a whole cell.

    Args:
        title: The lab's number, and what is wrong.
        costs: "test: concept=share, concept; test: all", without "test_".
        name: The cell.
        replacements: Old and new texts in turn, or the cell's whole text alone.
    """
    number, _, title = title.partition(" ")
    lab = f"lab{number}"
    cells = teaching.solution(lab)
    if len(replacements) == 1:
        cells[name] = replacements[0]
    for old, new in zip(replacements[::2], replacements[1::2], strict=False):
        cells = teaching.changed(cells, name, old, new)
    made = {}
    for each in costs.split("; "):
        test, _, concepts = each.partition(": ")
        shares = (concept.partition("=") for concept in concepts.split(", "))
        made[f"test_{test}"] = {concept: float(share or 1) for concept, _, share in shares}
    return Wrong(lab, title, made, {name: cells[name]})


_PUBLISH = "    ring.store(tail_word, (tail + 1) % 2**32)\n"
_FILL = "    ring.store(first_slot + tail % ring.slots(), value)\n"
_ARM = "    ring.store(armed_word, 1)\n"
_HEAD = "    ring.store(head_word, (head + 1) % 2**32)\n"
_VALUE = "    value = ring.load(first_slot + head % ring.slots())\n"
_BATCH = "    if count:\n        ring.store(tail_word, (tail + count) % 2**32)\n"
_SEND = "    out.write_fenced(flag_word, 1)\n"
_POLL = "    if box.load(flag_word) != 1:\n        return None\n    box.fence()\n"
_LOADS = "    for turn in range(300):\n        box.load(first_word + turn % count)\n"
_FIRST = "        return None\n    box.fence()\n    values"
_AGAIN = "    box.fence()\n    return values"
_STORES = (
    "    for turn in range(200):\n        out.write(first_word + turn % 4, values[turn % 4])\n"
)
_ODD = "out.write_fenced(flag_word, 2 * number - 1)"
_WHOLE = "    out.write_fenced(flag_word, 2 * number)\n"
_RATE = "1e6 * ticks_per_us * min(depth / alone, 1 / occupied)"
_CRC = "    if crc != zlib.crc32(data[:24]):\n"
_MAGIC = '    if magic != b"DGKITLST":\n'
_EXCEEDS = 'f"the node at {offset:#x} exceeds the memory of {length} bytes"'
_CHAIN = 'f"the chain comes back to the node at {at:#x}"'
_COUNT = "        for word, value in enumerate([ident, *values], first_record + 4 * count):\n"
_COMMIT = "        log.store(count_word, count + 1)\n"
_CAS = "    return epoch if log.cas(lease_word, old, new) == old else None"
_FED = "batch - len(losses) < slots"
_RECORD = '    ring.record(((index + 1) & 0xFFFF).to_bytes(4, "big"))\n'
_ENTRY = "    ring.entry(index % 8, data)\n"
_BELL = "    ring.doorbell(data[:8])\n"
_WRONG_HEADER = "header: all; header_damage: all"

WRONG = [
    # The costs beside each are those of the lab's page.
    _wrong("1 a header in big-endian order", _WRONG_HEADER, "read_header", '"<8', '">8'),
    _wrong("1 a header with the flags as version", _WRONG_HEADER, "read_header", "version, _flags", "_flags, version"),
    _wrong("1 no CRC", "header_damage: damage=.667, named", "read_header", _CRC, "    if False:\n"),
    _wrong("1 no magic", "header_damage: damage=.333, named", "read_header", _MAGIC, "    if False:\n"),
    _wrong("1 neither", "header_damage: damage, named", "read_header", _CRC, "    if 0:\n", _MAGIC, "    if 0:\n"),
    _wrong("1 a CRC of 28 bytes", _WRONG_HEADER, "read_header", "data[:24])", "data[:28])"),
    _wrong("1 errors without names", "header_damage: named", "read_header", 'f"the magic is {magic!r}"', "", 'f"the CRC is {crc:#x}"', ""),
    _wrong("1 the size as kind", "node: all", "read_node", "key, kind, payload", "key, size, payload"),
    _wrong("1 a payload with its node", "node: all", "read_node", "offset + 16, size", "offset, 16 + size"),
    _wrong("1 deleted nodes are returned", "walk: deleted", "walk", "if kind == 1", "if kind"),
    _wrong("1 the chain ends at a deleted node", "walk: deleted", "walk", "    at = following\n", "    at = following if kind == 1 else 0\n"),
    _wrong("1 no count", "damage: damage=.25", "walk", "len(records) != count", "False"),
    _wrong("1 a cycle ends the walk", "damage: named", "walk", f"raise ValueError({_CHAIN})", "break"),
    _wrong("1 errors without offsets", "damage: named", "walk", _EXCEEDS, '"beyond"', _CHAIN, '"cycle"'),
    _wrong("1 nodes beyond the memory", "damage: damage=.5", "walk", "offset + size > length", "False"),
    _wrong("2 a consumer that looks before it arms", "doorbell: all", "prepare_to_sleep", _ARM, "", "        ring.store(armed_word, 0)\n", "", "    return True\n", f"{_ARM}    return True\n"),
    _wrong("2 armed is read before the value is published", "doorbell: all", "submit", _FILL, f"{_FILL}    armed = ring.load(armed_word)\n", "if ring.load(armed_word):", "if armed:"),
    _wrong("2 a consumer that never sleeps", "doorbell: all", "prepare_to_sleep", "def prepare_to_sleep(ring):\n    return False\n"),
    _wrong("2 armed is not cleared", "doorbell: doorbells", "prepare_to_sleep", "        ring.store(armed_word, 0)\n", ""),
    _wrong("2 a doorbell for each value", "doorbell: doorbells", "submit", "if ring.load(armed_word):", "if True:"),
    _wrong("2 no doorbell", "doorbell: all", "submit", "        ring.doorbell()\n", "        pass\n"),
    _wrong("2 the tail is published before its slot", "schedules: all; doorbell: all", "submit", _FILL, "", _PUBLISH, _PUBLISH + _FILL),
    _wrong("2 the slot is freed before it is read", "schedules: all", "take", _HEAD, "", _VALUE, _HEAD + _VALUE),
    _wrong("2 a tail that does not wrap", "one_side: wrap; schedules: wrap", "submit", "(tail + 1) % 2**32", "tail + 1"),
    _wrong("2 a head that does not wrap", "one_side: wrap; schedules: wrap; batch: wrap", "take", "(head + 1) % 2**32", "head + 1"),
    _wrong("2 a difference that does not wrap", "one_side: wrap; schedules: wrap", "submit", "(tail - ring.load(head_word)) % 2**32", "tail - ring.load(head_word)"),
    _wrong("2 a ring that is full one value early", "one_side: all; schedules: all", "submit", "== ring.slots()", ">= ring.slots() - 1"),
    _wrong("2 a batch that is stored although it does not fit", "batch: batch=.5", "submit_many", "free = slots - (tail - ring.load(head_word)) % 2**32", "free = len(values)"),
    _wrong("2 a batch as a whole or not at all", "batch: batch=.5", "submit_many", "    for number", "    if len(values) > free:\n        return 0\n    for number"),
    _wrong("2 an empty batch that publishes", "batch: batch=.5", "submit_many", "    if count:\n", "    if True:\n"),
    _wrong("2 a batch that is published before it is stored", "batch: publication", "submit_many", _BATCH, "", "    for number", f"    count = min(free, len(values))\n{_BATCH}    for number"),
    _wrong("2 a batch that does not wrap", "batch: wrap", "submit_many", "(tail + count) % 2**32", "tail + count"),
    _wrong("3 a message without a fence", "send: tearing", "send", "write_fenced(flag", "write(flag"),
    _wrong("3 a producer that stores 200 times instead of fencing", "send: tearing", "send", _SEND, f"{_STORES}    out.write(flag_word, 1)\n"),
    _wrong("3 a payload that is cleared first", "send: tearing", "send", "        out.write(", "        out.write(word, 1)\n        out.write("),
    _wrong("3 a mailbox's producer that stores 200 times instead of fencing", "publish: tearing", "publish", _WHOLE, f"{_STORES}    out.write(flag_word, 2 * number)\n"),
    _wrong("3 an odd number that may overtake the message before", "publish: tearing", "publish", _ODD, _ODD.replace("_fenced", "")),
    _wrong("3 a payload that may overtake its odd number", "publish: tearing", "publish", "out.write_fenced(first_word", "out.write(first_word"),
    _wrong("3 a flag without a fence before the loads", "poll: tearing", "poll", "    box.fence()\n", ""),
    _wrong("3 a consumer that loads 300 times instead of fencing", "poll: tearing", "poll", "    box.fence()\n", _LOADS),
    _wrong("3 the payload is loaded before the flag", "poll: tearing", "poll", _POLL, "", "    return [", "    values = [", "count)]\n", f"count)]\n{_POLL}    return values\n"),
    _wrong("3 no fence before the payload", "snapshot: tearing", "snapshot", _FIRST, _FIRST.replace("    box.fence()\n", _LOADS)),
    _wrong("3 no fence after the payload", "snapshot: tearing", "snapshot", _AGAIN, f"{_LOADS}    return values"),
    _wrong("3 a sequence number that is loaded once", "snapshot: tearing", "snapshot", "values if box.load(flag_word) == before else None", "values"),
    _wrong("3 a sequence number that only has to be even again", "snapshot: tearing", "snapshot", "box.load(flag_word) == before", "box.load(flag_word) % 2 == 0"),
    _wrong("3 odd sequence numbers are read", "snapshot: tearing", "snapshot", "before == 0 or before % 2", "before == 0"),
    _wrong("3 late is always None", "late: all; late_hidden: all", "late", "def late(program):\n    return None\n"),
    _wrong("4 cold transfers", "latency: all", "latency", "    device.transfers(size, 200)\n", "", "4000", "80", "times[2000]", "times[40]", "times[3960]", "times[79]"),
    _wrong("4 the 95th percentile as the 99th", "latency: tail", "latency", "times[3960]", "times[3800]"),
    _wrong("4 the smallest time as median", "latency: all", "latency", "times[2000]", "times[0]"),
    _wrong("4 no floor", "latency: floor", "latency", '"floor": floors[250]', '"floor": 0'),
    _wrong("4 a rate that grows with depth for ever", "predict: busy engine=.667", "predict", _RATE, "1e6 * ticks_per_us * depth / alone"),
    _wrong("4 the limit by bytes alone", "predict: busy engine=.333", "predict", 'max(notes["gap"], notes["byte"] * size)', 'notes["byte"] * size'),
    _wrong("4 the limit by the gap alone", "predict: busy engine=.333", "predict", 'max(notes["gap"], notes["byte"] * size)', 'notes["gap"]'),
    _wrong("4 twice the depth", "depth: all", "smallest_depth", "return max(1, int(", "return 2 * max(1, int("),
    _wrong("4 a depth that is no integer", "depth: all", "smallest_depth", "int(", "float("),
    _wrong("5 a client that only repeats", "append: duplicates; kill: duplicates=.667", "append", "if count and log", "if False and log"),
    _wrong("5 the count before the record", "append: half records; kill: all", "append", _COMMIT, "", _COUNT, f"{_COMMIT}{_COUNT}"),
    _wrong("5 a log without an end", "append: log=.5", "append", "if count == log.capacity():", "if False:"),
    _wrong("5 a full log that raises", "append: log=.5", "append", "            return False\n", '            raise ValueError("full")\n'),
    _wrong("5 an append that raises when its access is revoked", "takeover: all; takeover_hidden: old holder, dead successor", "append", "    except dgkit.AccessDenied:\n        return False\n", "    except ZeroDivisionError:\n        return False\n"),
    _wrong("5 a lease that is stored", "lease: two holders", "take_lease", _CAS, "    log.store(lease_word, new)\n    return epoch"),
    _wrong("5 a lease that is taken at any time", "lease: all; takeover: all; takeover_hidden: all", "take_lease", "> now:", "> 2**40:"),
    _wrong("5 a lease that ends one second late", "lease: all", "take_lease", "> now:", ">= now:"),
    _wrong("5 a successor that revokes nothing", "takeover: all; takeover_hidden: old holder, dead successor", "take_over", "        log.revoke_others(epoch)\n", "        pass\n"),
    _wrong("6 slots that are used while a batch is trained", "feed: overwriting=.667; overlap: own bytes", "feed", _FED, "batch - signalled < slots"),
    _wrong("6 slots that are signalled before they are filled", "feed: overwriting; overlap: own bytes", "feed", " and dpu.copied(copies[signalled])", ""),
    _wrong("6 one buffer", "overlap: all", "feed", _FED, "batch - len(losses) < 1"),
    _wrong("6 the user's time alone", "cpu_share: all", "cpu_share", 'spent["user"] + spent["system"]', 'spent["user"]'),
    _wrong("6 everything on the big accelerator", "schedule: completion; changing_work: completion", "schedule", "< 2:", "< 0:"),
    _wrong("6 jobs as they arrive", "schedule: completion=.5, hours; changing_work: completion, hours", "schedule", 'def schedule(jobs):\n    numbers = [job["job"] for job in jobs] + [None]\n    return {"big": numbers[0], "small": numbers[1]}\n'),
    _wrong("7 an entry in little-endian order", "post_entry: all", "post_entry", '">IIII', '"<IIII'),
    _wrong("7 a number that is not masked", "post_entry: laps=.5", "post_entry", "low = index & 0xFFFF", "low = index"),
    _wrong("7 a record that is not masked", "post_entry: laps=.5", "post_entry", "((index + 1) & 0xFFFF)", "(index + 1)"),
    _wrong("7 a record before its entry", "post_entry: announcement", "post_entry", _ENTRY, "", _RECORD, _RECORD + _ENTRY),
    _wrong("7 a doorbell before its record", "post_entry: announcement", "post_entry", _RECORD, "", _BELL, _BELL + _RECORD),
    _wrong("7 completions of an earlier lap", "poll_entry: laps", "poll_entry", " or owner != index // 8 % 2", ""),
    _wrong("7 the kind in the place of the syndrome", "poll_entry: error entries", "poll_entry", "return data[55]", "return kind"),
    _wrong("7 a broken rkey for each error", "break_request: keys=.333", "break_request", '"lkey" if syndrome == 0x04 else "rkey"', '"rkey"'),
    _wrong("7 nothing before the flushed entry", "break_request: keys=.333", "break_request", "0x05: [wrong, request]", "0x05: [request]"),
    _wrong("7 a status that is made up", "put: status", "put_pieces", "status[me] = dg_wait(q, dg_put(q, remote, far_base + at, local, at, size));", "dg_wait(q, dg_put(q, remote, far_base + at, local, at, size));\n    status[me] = 0;"),
    _wrong("7 squares without a barrier after the put", "squares: bytes=.5, signals", "squares", "        __syncthreads(); // all numbers are read\n", ""),
    _wrong("7 no barrier before the chunk is put back", "transform: bytes=.5; transform_hidden: bytes=.5", "transform", "        __syncthreads(); // all of it is changed\n", ""),
    _wrong("7 an error that is not the status", "transform_hidden: status", "transform", "status[0] = result", "status[0] = 0"),
]  # fmt: skip
_USED = _wrong("1", "header: all", "walk", "    header = read(0, 32)\n", "    header = read(0, 32)\n    read_header(memory)\n")  # fmt: skip
WRONG.append(
    WRONG[0]._replace(
        title="a header in big-endian order, which walk uses", cells=WRONG[0].cells | _USED.cells
    )
)
