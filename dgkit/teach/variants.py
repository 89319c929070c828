"""Constants of labs 1 and 7 that differ between courses, and between students of a course."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..files import write_new
from . import student_notebook

FOLDER = "personal"  # of a course: personal/STUDENT/LAB has what that student was given
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
_FACTORS = [each for each in range(101, 10_000) if each % 10]


@dataclass(frozen=True, slots=True)
class Variant:
    """Constants of the labs.

    Attributes:
        magic: Magic of lab 1's header.
        factor: Factor of lab 7's squares.
    """

    magic: str = "DGKITLST"
    factor: int = 100

    def texts(self, lab: str) -> tuple[str, ...]:
        """Return what occurs in the notebooks of a lab: in tasks, solutions and tests."""
        known = {
            "lab1": (self.magic,),
            "lab7": (f") * {self.factor} +", f"factor={self.factor})"),
        }
        return known.get(lab, ())


REPOSITORY = Variant()


def derived(seed: str, student: str = "") -> Variant:
    """Return the constants of a course, or of one of its students."""
    digest = hashlib.sha256(f"{seed}/{student}".encode()).digest()
    number = int.from_bytes(digest[8:], "big")
    letters = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:8])
    return Variant(letters, _FACTORS[number % len(_FACTORS)])


def replaced(text: str, lab: str, seed: str, student: str = "") -> str:
    """Return a text of a lab with the constants of a course, or of one of its students."""
    new = derived(seed, student).texts(lab)
    for known in (REPOSITORY, derived(seed)):
        for old, now in zip(known.texts(lab), new, strict=True):
            text = text.replace(old, now)
    return text


def write(folder: Path, lab: str, students: Sequence[str], seed: str) -> Iterator[Path]:
    """Write a copy of a released lab for each student; yield the new notebooks.

    Raises:
        ValueError: The lab does not vary, what is released is no notebook, or a name is not one
            of a student.
        FileNotFoundError: The lab is not released.
        FileExistsError: A student has a copy already.
    """
    if not REPOSITORY.texts(lab):
        raise ValueError(f"{lab} has no constants that vary; labs 1 and 7 have")
    released = sorted((folder / "release" / lab).glob("*.ipynb"))
    if not released:
        raise FileNotFoundError(
            f"{folder}/release/{lab} has no notebook: run "
            f"`nbgrader generate_assignment {lab}` first"
        )
    for path in released:
        student_notebook.load(path)
    for student in students:
        whole = student and student == Path(student).name and student.isprintable()
        if not whole or student.startswith("."):
            raise ValueError(f"{student!r} is not the name of a student")
        if (folder / FOLDER / student / lab).is_dir():
            raise FileExistsError(f"{folder / FOLDER / student / lab} exists: remove it first")
    for student in students:
        place = folder / FOLDER / student / lab
        shutil.copytree(folder / "release" / lab, place, ignore=shutil.ignore_patterns("*.ipynb"))
        for path in released:
            write_new(place / path.name, _copy(path, lab, seed, student))
            yield place / path.name


def _copy(path: Path, lab: str, seed: str, student: str) -> bytes:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        cell["source"] = replaced(student_notebook.source(cell), lab, seed, student)
    return json.dumps(notebook, indent=1, ensure_ascii=False).encode() + b"\n"


def of_student(folder: Path, lab: str, seed: str, student: str) -> Callable[[str], str]:
    """Return a function that puts a student's constants, if they have any, into a text of a lab."""
    if not (folder / FOLDER / student / lab).is_dir():
        return str
    return functools.partial(replaced, lab=lab, seed=seed, student=student)
