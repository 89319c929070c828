# SPDX-License-Identifier: Apache-2.0
"""Constants of the labs that differ between courses, and between students of a course.

They are places, units and names, which change nothing of what a task asks for.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import write_new
from . import student_notebook

Cells = Sequence[Mapping[str, Any]]

FOLDER = "personal"  # of a course: personal/STUDENT/LAB has what that student was given
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_FACTORS = [each for each in range(101, 10_000) if each % 10]


_FIELDS = ("size", "local", "lkey", "remote", "rkey")
# Values of the repository, by the names that the notebooks have for them.
_NAMED: Mapping[str, Mapping[str, int | str]] = {
    "lab2": {"tail_word": 0, "head_word": 1, "armed_word": 2, "first_slot": 3},
    "lab3": {"flag_word": 0, "first_word": 1},
    "lab4": {"ticks_per_us": 1000, "whole": 100},
    "lab5": {
        "count_word": 0, "lease_word": 1, "first_record": 2,
        "epoch_bit": 48, "holder_bit": 32, "expiry_bit": 0,
    },
    "lab6": {"slot_base": 0, "slot_size": 1, "ticks_per_s": 100, "big": "big", "small": "small"},
    "lab7": {"far_base": 64, "add": 17},
}  # fmt: skip


def _drawn(rng: random.Random) -> Mapping[str, Mapping[str, int | str]]:
    """Return other values of _NAMED.

    No word of one student has another meaning for a neighbour, so that both answers do not fit.
    """
    bits = rng.choice(
        ((48, 32, 0), (32, 48, 0), (48, 0, 16), (0, 48, 16), (16, 0, 32), (0, 16, 32))
    )
    drawn: dict[str, tuple[int | str, ...]] = {
        "lab2": (*(rng.randrange(low, low + 20) for low in (0, 20, 40)), rng.randrange(60, 100)),
        "lab3": (rng.randrange(100), rng.randrange(100, 200)),
        "lab4": (round(400 * 2500 ** rng.random()), round(10 ** rng.uniform(1, 6))),
        "lab5": (rng.randrange(16), rng.randrange(16, 32), rng.randrange(32, 64), *bits),
        "lab6": (
            64 * rng.randrange(1, 1000), 64 * rng.randrange(1, 1000), rng.randrange(101, 5000),
            f"big{rng.randrange(1000)}", f"small{rng.randrange(1000)}",
        ),
        "lab7": (8 * rng.randrange(9, 500), rng.randrange(18, 256)),
    }  # fmt: skip
    return {lab: dict(zip(_NAMED[lab], values, strict=True)) for lab, values in drawn.items()}


@dataclass(frozen=True, slots=True)
class Variant:
    """Constants of the labs.

    Attributes:
        magic: Magic of lab 1's header.
        factor: Factor of lab 7's squares.
        order: Order of the fields of lab 7's requests.
        named: For each other lab, values by the names that its notebook has for them.
    """

    magic: str = "DGKITLST"
    factor: int = 100
    order: str = ", ".join(_FIELDS)
    named: Mapping[str, Mapping[str, int | str]] = field(default_factory=lambda: _NAMED)

    def texts(self, lab: str) -> tuple[str, ...]:
        """Return the texts in a lab's notebooks that contain the constants of the variant."""
        known: dict[str, tuple[str, ...]] = {
            "lab1": (self.magic,),
            "lab7": (f") * {self.factor} +", f"factor={self.factor})", self.order),
        }
        named = [(name, json.dumps(value)) for name, value in self.named.get(lab, {}).items()]
        return (
            *known.get(lab, ()),
            *(f"{name}{sign}{value}" for name, value in named for sign in (" = ", "=")),
        )


REPOSITORY = Variant()


def derived(seed: str, student: str = "") -> Variant:
    """Return the constants of a course, or of one of its students."""
    digest = hashlib.sha256(f"{seed}/{student}".encode()).digest()
    number = int.from_bytes(digest[8:], "big")
    letters = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:8])
    rng = random.Random(number)
    order = ", ".join(rng.sample(_FIELDS, len(_FIELDS)))
    return Variant(letters, _FACTORS[number % len(_FACTORS)], order, _drawn(rng))


def replaced(text: str, lab: str, seed: str, student: str = "") -> str:
    """Return a text of a lab with the constants of a course, or of one of its students."""
    new = derived(seed, student).texts(lab)
    for known in (REPOSITORY, derived(seed)):  # the text has either of these
        for old, now in zip(known.texts(lab), new, strict=True):
            text = re.sub(_whole(old), now, text)
    return text


def _whole(text: str) -> str:
    """Return a pattern for a text, not for a part of a longer name or number."""
    start, end = (r"\b" if re.match(r"\w", each) else "" for each in (text[0], text[-1]))
    return f"{start}{re.escape(text)}{end}"


def write(folder: Path, lab: str, students: Sequence[str], seed: str) -> Iterator[Path]:
    """Write a copy of a released lab for each student; yield the new notebooks.

    Raises:
        ValueError: The lab does not vary, what is released is no notebook, or a name is not one
            of a student in the course's gradebook.
        FileNotFoundError: The lab is not released.
        FileExistsError: A student has a copy already.
    """
    if not REPOSITORY.texts(lab):
        raise ValueError(f"{lab!r} is not one of lab1 to lab7, which vary")
    released = sorted((folder / "release" / lab).glob("*.ipynb"))
    if not released:
        raise FileNotFoundError(
            f"{folder}/release/{lab} has no notebook: run "
            f"`nbgrader generate_assignment {lab}` first"
        )
    for path in released:
        student_notebook.load(path)
    for student in students:
        student_notebook.check_name(student)
        if (folder / FOLDER / student / lab).is_dir():
            raise FileExistsError(f"{folder / FOLDER / student / lab} exists: remove it first")
    from .collect import check_registered  # imports nbgrader, which students do not have

    check_registered(folder, students)
    for student in students:
        place = folder / FOLDER / student / lab
        shutil.copytree(folder / "release" / lab, place, ignore=shutil.ignore_patterns("*.ipynb"))
        for path in released:
            write_new(place / path.name, copy(path, lab, seed, student))
            yield place / path.name


def copy(path: Path, lab: str, seed: str, student: str = "") -> bytes:
    """Return a notebook of a lab with the constants of a course, or of one of its students."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = replaced(student_notebook.source(cell), lab, seed, student)
    return json.dumps(notebook, indent=1, ensure_ascii=False).encode() + b"\n"


def of_student(folder: Path, lab: str, seed: str, student: str) -> Callable[[str], str]:
    """Return a function that puts a student's constants, if they have any, into a text of a lab."""
    if not (folder / FOLDER / student / lab).is_dir():
        return str
    return functools.partial(replaced, lab=lab, seed=seed, student=student)


def owners(folder: Path, lab: str, name: str, cells: Cells, seed: str) -> set[str]:
    """Return whose constants the cells of a submission have, by its tasks and visible tests.

    Args:
        folder: The course.
        name: Name of the notebook.
        cells: The cells as the student handed them in.
        seed: The course's seed.

    Returns:
        Students with a copy of their own, and "" for the notebook that was released to all; nobody
        if constants were removed, or the lab has none.
    """
    released = folder / "release" / lab / f"{name}.ipynb"
    if not released.is_file():
        return set()
    before, now = _given(student_notebook.load(released)[1]), _given(cells)
    students = [path.parent.name for path in folder.glob(f"{FOLDER}/*/{lab}")]
    all_own = {student: derived(seed, student).texts(lab) for student in students}
    texts: dict[str, list[str]] = {student: [] for student in ["", *students]}
    every = [REPOSITORY.texts(lab), derived(seed).texts(lab)]
    for at, known in enumerate(zip(*every, strict=True)):
        if not (here := [text for text in known if re.search(_whole(text), before)]):
            continue
        for student, own in texts.items():
            own.append(all_own[student][at] if student else here[0])
    return {
        student
        for student, own in texts.items()
        if own and all(re.search(_whole(text), now) for text in own)
    }


def _given(cells: Cells) -> str:
    """Return what the student was given of a notebook: all but the cells of the solution."""
    own = dict(student_notebook.solutions(cells)).values()
    texts = map(student_notebook.source, cells)
    return "\n".join(text for text in texts if text not in own)
