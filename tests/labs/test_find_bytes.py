# SPDX-License-Identifier: Apache-2.0
"""Lab 1: what each kind of submission scores."""

import time

import pytest
from support.teaching import score, skeleton, solution

LAB = "lab1"
FULL = {
    "test_header": 20.0,
    "test_header_damage": 15.0,
    "test_node": 15.0,
    "test_walk": 25.0,
    "test_damage": 15.0,
    "test_few_reads": 0.0,
}
NOTHING = dict.fromkeys(FULL, 0.0)
NAMES = ("read_header", "read_node", "walk")

BIG_ENDIAN = solution(LAB) | {
    "read_header": solution(LAB)["read_header"].replace('"<8sHHIQI"', '">8sHHIQI"'),
    "walk": solution(LAB)["walk"].replace("seen, ", "read_header(memory)\n    seen, "),
}
assert "read_header(memory)" in BIG_ENDIAN["walk"]
TRUSTING = solution(LAB) | {
    "walk": """
import struct

def walk(memory):
    records = []
    at = struct.unpack("<Q", memory.read(16, 8))[0]
    while at:
        at_next, key, size, kind = struct.unpack("<QIHH", memory.read(at, 16))
        records.append((key, memory.read(at + 16, size)))
        at = at_next
    return records
"""
}


def test_the_solution_scores_everything_and_its_bonus_is_a_ratio_of_reads():
    made = score(LAB, solution(LAB, "alice"), student="alice")
    assert made.points == FULL, made.feedback
    assert made.ratios == {"test_few_reads": 121.0}  # one read instead of 1 + 2 * 60


def test_the_neighbours_answer_gets_few_points():
    assert score(LAB, solution(LAB, "bob"), student="alice").total == 15.0  # of `read_node`


def test_the_skeleton_scores_nothing():
    made = score(LAB, skeleton(LAB))
    assert made.points == NOTHING
    assert made.ratios == {}
    assert "NotImplementedError" in made.feedback["test_walk"]


def test_the_wrong_byte_order_costs_the_parts_that_read_the_header_and_says_which_bytes():
    made = score(LAB, BIG_ENDIAN)
    assert made.points == FULL | {"test_header": 0.0, "test_header_damage": 0.0}, "walk uses it"
    assert "ValueError: the CRC is" in made.feedback["test_header"]


def test_a_walk_that_checks_nothing_gets_the_undamaged_lists_and_no_bonus():
    made = score(LAB, TRUSTING, time_s=2.0)
    assert made.points == FULL | {"test_walk": 16.67, "test_damage": 0.0}
    assert made.ratios == {}, "a bonus for a wrong walk"
    assert "the live node at 0x" in made.feedback["test_walk"]


def test_a_wrong_field_is_shown_in_a_hex_view():
    swapped = solution(LAB)["read_header"].replace('"first": first', '"first": first + 1')
    told = score(LAB, solution(LAB) | {"read_header": swapped}, "test_header").feedback
    assert "'first' is " in told["test_header"]
    assert "bytes 16 to 23 say " in told["test_header"]
    assert "44 47 4b 49 54 4c 53 54" in told["test_header"], "the magic, in hexadecimal"
    assert "^^ ^^ ^^ ^^ ^^ ^^ ^^ ^^" in told["test_header"]


def everywhere(code):
    """Solution cells whose functions all run the same code."""
    body = "\n".join(f"    {line}" for line in code.splitlines())
    return {name: f"def {name}(*arguments):\n{body}\n" for name in NAMES}


CHEATS = {
    "monkey-patches dgkit": """
import builtins, sys
import dgkit.teach.find_bytes as lab
import dgkit.teach.verdict as verdict
import dgkit.teach.codec as codec
verdict.expect = lambda *_: None
verdict.Grading.share = 1.0
lab.check_header = lab.check_walk = lab._check_node = lab.check_refused = lambda *_: None
for name in dir(lab):
    if name.startswith("test_"):
        setattr(lab, name, lambda *_: None)
codec.receive = lambda *_: ["returned", True]
return {"version": 1}
""",
    "returns a value that equals everything": """
class Equal(dict):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def get(self, *_): return self
    __hash__ = None
return Equal()
""",
    "prints what the test wants": """
print("right  the header of memory 1")
print("20 of 20 points")
print(20.0)
""",
    "returns what the visible tests want": """
from dgkit.teach import find_bytes, verdict
rng = verdict.seeded("walk")
return [list(pair) for pair in find_bytes.LinkedList(rng, 6).live]
""",
    "sends answers that nobody asked for": """
import json, os, struct
body = json.dumps(["returned", {"map": [["version", 3]]}]).encode()
for fd in range(3, 32):
    try:
        for _ in range(3):
            os.write(fd, struct.pack("<I", len(body)) + body)
    except OSError:
        pass
return None
""",
    "sends a message that is too long": "return b'0' * (4 << 20)",
    "sends what is no message": """
import os
for fd in range(3, 32):
    try:
        os.write(fd, b"\\xff" * 64)
    except OSError:
        pass
""",
    "ends its process": "import os; os._exit(0)",
    "takes all memory": "return len([bytearray(1 << 24) for _ in range(1 << 20)])",
    "is another exit": "raise SystemExit(0)",
    "pretends that its input is damaged": r"raise ValueError('damaged \ud800\x1b[2J')",
}


@pytest.mark.cheat
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_scores_nothing(cheat):
    cells = everywhere(CHEATS[cheat])
    made = score(LAB, cells, "test_header", "test_walk", memory_bytes=384 << 20)
    assert made.total == 0.0, made.feedback
    told = "".join(made.feedback.values())
    assert "\x1b" not in told.encode().decode(), "feedback is text that a file and a terminal take"


HANGS = {
    "sleeps": "import time; time.sleep(1e6)",
    "floods its output": "while True: print('20 of 20 points' * 1000)",
    "floods the grader": "while True: arguments[0].read(0, 8)",
    "ignores signals and forks": """
import os, signal, time
for number in range(1, 32):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
os.fork()
time.sleep(1e6)
""",
}


@pytest.mark.cheat
@pytest.mark.parametrize("cheat", HANGS)
def test_a_cheat_that_takes_time_scores_nothing_and_does_not_take_the_grader_s(cheat):
    begun = time.monotonic()
    made = score(LAB, everywhere(HANGS[cheat]), "test_walk", time_s=0.5, requests=1000)
    assert made.total == 0.0
    reasons = ("did not return within 0.5 s", "more than 1000 requests")
    assert any(reason in made.feedback["test_walk"] for reason in reasons)
    assert time.monotonic() - begun < 60


SEARCH = """
import json
from pathlib import Path
from dgkit.teach import course
folders = [course.labs_folder(), Path(course.__file__).parents[1], Path.home(), Path.cwd()]
found = [path for folder in folders for path in folder.rglob("find_the_bytes.ipynb")]
for path in found:
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        if cell["metadata"].get("nbgrader", {}).get("solution") and "def " in source:
            exec(source, globals())
"""


@pytest.mark.cheat
def test_a_search_for_the_solution_finds_nothing_or_the_grader_says_not_isolated():
    made = score(LAB, {"read_header": SEARCH}, "test_header")
    if made.isolation.method:
        assert made.total == 0.0
        assert "define no 'read_header'" in made.feedback["test_header"]
    else:
        assert "not isolated" in str(made.isolation)
