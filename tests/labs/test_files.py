# SPDX-License-Identifier: Apache-2.0
"""Notebooks that are malformed, and courses that are not finished."""

import contextlib
import errno
import importlib
import json
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
from multiprocessing import Pipe, get_context
from pathlib import Path
from types import SimpleNamespace

import pytest
from nbgrader.api import MissingEntry
from nbgrader.auth import Authenticator
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange import ExchangeFactory
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from dgkit.cli import main
from dgkit.errors import Unsupported
from dgkit.teach import (
    autograde,
    collect,
    course,
    grader,
    grading_requirements,
    sandbox,
    student_notebook,
)

CELL = {"cell_type": "code", "metadata": {}, "source": "1"}
TEST = {"grade_id": "t", "grade": True, "solution": False}
MALFORMED = {
    "a list": [],
    "metadata in a list": {"metadata": [], "cells": []},
    "cells in a dict": {"metadata": {}, "cells": {}},
    "a cell that is a text": {"metadata": {}, "cells": ["x"]},
    "no source": {"metadata": {}, "cells": [{"cell_type": "code", "metadata": {"nbgrader": TEST}}]},
    "no metadata of a cell": {"metadata": {}, "cells": [{"cell_type": "code", "source": ""}]},
    "numbers in a source": {"metadata": {}, "cells": [CELL | {"source": [1, 2]}]},
    "a type that is a list": {"metadata": {}, "cells": [CELL | {"cell_type": ["code"]}]},
}
TEXTS = {name: json.dumps(content) for name, content in MALFORMED.items()}
TEXTS |= {"deep": "[" * 100_000, "deep metadata": '{"metadata":' + "[" * 900 + "]" * 900 + "}"}


@pytest.mark.parametrize("malformed", TEXTS)
def test_a_malformed_notebook_is_named_by_check_and_board(malformed, tmp_path, capsys):
    path = tmp_path / "autograded/mary/lab1/lab.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(TEXTS[malformed])
    for words in (["check", str(path)], ["board", str(tmp_path), "lab1"]):
        assert main(["teach", *words]) in (1, 2)
        assert f"{path} is not a notebook of format 4" in capsys.readouterr().err


@pytest.mark.parametrize("marks", ["text", {"ratios": 3}, {"ratios": {"t": "much"}}, None])
def test_ratios_that_the_grader_did_not_write_are_not_shown(marks, tmp_path, capsys):
    path = tmp_path / "autograded/mary/lab1/lab.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"metadata": {"dgkit": marks}, "cells": []}))
    assert main(["teach", "board", str(tmp_path), "lab1"]) == 2
    assert "has no graded notebook" in capsys.readouterr().err


@pytest.mark.parametrize("points", ["much", None, [1], -1, 10**400, float("nan")])
def test_points_that_nbgrader_does_not_write_are_none(points):
    cell = CELL | {"metadata": {"nbgrader": TEST | {"points": points}}}
    assert [test.points for test in student_notebook.tests([cell])] == [0.0]


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("at", ["labs", "config"])
def test_a_full_disk_leaves_no_course(exists, at, tmp_path, monkeypatch):
    place = tmp_path / "dma101"
    if exists:
        place.mkdir()

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(*((shutil, "copytree", full) if at == "labs" else (os, "fsync", full)))
        with pytest.raises(OSError, match=r"No space left on device.*nothing was made") as caught:
            course.init(place)
    assert caught.value.filename == str(place)
    assert list(tmp_path.rglob("*")) == ([place] if exists else [])
    assert "lab1" in course.init(place)
    assert {path.name for path in place.iterdir()} == {
        "source", "teaching", "nbgrader_config.py", "course_seed",
    }  # fmt: skip
    assert place.stat().st_mode & 0o777 == 0o700


def test_a_course_needs_the_folder_around_it(tmp_path, capsys):
    assert main(["teach", "init", str(tmp_path / "no" / "course")]) == 1
    assert "make it first" in capsys.readouterr().err


def test_the_doctor_of_a_course_names_what_grading_lacks(monkeypatch, capsys):
    monkeypatch.setattr(
        grading_requirements.sandbox,
        "isolation",
        lambda _: sandbox.Isolation("", note="bubblewrap is missing"),
    )

    def none() -> str:
        raise Unsupported("none of c++ and g++ is installed")

    monkeypatch.setattr(grading_requirements.compiler, "find_compiler", none)
    assert main(["teach", "doctor"]) == 1
    out = capsys.readouterr().out
    assert "WRONG  not isolated: bubblewrap is missing\n       -> apt install bubblewrap" in out
    assert "WRONG  lab 7: none of c++ and g++ is installed\n" in out


def test_the_doctor_of_a_course_says_who_can_read_the_solutions(tmp_path, monkeypatch):
    labs = tmp_path / "labs"
    labs.mkdir(mode=0o700)
    assert grading_requirements._solutions(labs).verdict == "fine"
    open_ = [folder for folder in labs.parents if not folder.stat().st_mode & 0o001]
    labs.chmod(0o755)
    assert grading_requirements._solutions(labs).verdict == ("fine" if open_ else "note")
    assert "pip install" in grading_requirements._solutions(tmp_path / "none").remedy
    clone = tmp_path / "a clone/source"
    clone.mkdir(parents=True)
    for url, found in (clone.parent.as_uri(), [clone]), ("https://a/b", []), ("", []):
        installed = SimpleNamespace(read_text=lambda _, url=url: url and json.dumps({"url": url}))
        monkeypatch.setattr(grading_requirements, "distribution", lambda _, of=installed: of)
        assert grading_requirements._clone() == found


def test_the_doctor_of_a_course_sees_a_port_that_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert grading_requirements._check_port(server.getsockname()[1]).verdict == "note"


@pytest.fixture
def handed_in(tmp_path):
    """A folder that a student handed in, whose files lead out of it; a notebook to be kept."""
    secret, folder = tmp_path / "course_seed", tmp_path / "inbound"
    (tmp_path / "solutions").mkdir()
    secret.write_text("secret")
    (tmp_path / "solutions/lab").write_text("secret")
    (folder / "data").mkdir(parents=True)
    (folder / "data/mine.ipynb").write_text("mine")
    (folder / "leak").symlink_to(secret)
    (folder / "all").symlink_to(tmp_path / "solutions")
    os.link(secret, folder / "data/hard")
    os.mkfifo(folder / "fifo")
    (folder / "large").write_bytes(bytes(5000))
    return folder


@pytest.fixture(autouse=True)
def without_due_dates(monkeypatch):
    """A gradebook without assignments: nbgrader's takes ten seconds to be made."""

    class Empty(contextlib.nullcontext):
        def __enter__(self):
            return self

        def find_assignment(self, name):
            raise MissingEntry(name)

    module = importlib.import_module("nbgrader.exchange.default.collect")
    monkeypatch.setattr(module, "Gradebook", lambda *_: Empty())


def collected(root, folders, caplog, **options):
    """What is collected of folders that were handed in for lab1, by their names in the exchange."""
    inbound = root / "exchange/course/inbound"
    inbound.mkdir(parents=True)
    for name, folder in folders.items():
        folder.rename(inbound / name)
    config = Config(
        Exchange={"root": str(root / "exchange")},
        ExchangeCollect=options,
        CourseDirectory={"course_id": "course", "root": str(root), "assignment_id": "lab1"},
    )
    coursedir = CourseDirectory(config=config, max_dir_size=4)  # kB
    with caplog.at_level("WARNING"):
        action = collect.Collect(coursedir=coursedir, authenticator=Authenticator(), config=config)
        action.log.propagate = True
        action.init_src()
        action.copy_files()
    submitted = root / "submitted"
    return {str(path.relative_to(submitted)) for path in submitted.rglob("*") if path.is_file()}


ME = pwd.getpwuid(os.getuid()).pw_name
MINE, NEWER = "2026-11-28 10:00:00 UTC", "2026-11-28 11:00:00 UTC"


def test_of_what_students_hand_in_only_their_own_files_are_collected(handed_in, tmp_path, caplog):
    files = collected(tmp_path, {f"{ME}+lab1+{MINE}+a": handed_in}, caplog)
    assert files == {f"{ME}/lab1/data/mine.ipynb", f"{ME}/lab1/timestamp.txt"}
    mine = tmp_path / f"submitted/{ME}/lab1"
    assert (mine / "data/mine.ipynb").read_text() == "mine"
    assert (mine / "timestamp.txt").read_text() == MINE.replace(" UTC", " UTC\n")
    assert f"{MINE}+a says {MINE}, and was changed or copied at 20" in caplog.text
    for name in ("leak", "all", "data/hard", "fifo", "large"):
        assert f"{MINE}+a/{name} is a link, no regular file or too large" in caplog.text


def _nested(folder):
    for _ in range(1100):  # a path of these names is too long to be made at once
        Path("a").mkdir()
        os.chdir("a")
    os.chdir(folder)


def _long(folder):
    for _ in range(15):
        Path("n" * 255).mkdir()
        os.chdir("n" * 255)
    os.close(os.open("n" * 255, os.O_CREAT))
    os.chdir(folder)


def _many(folder):
    for n in range(2000):
        os.close(os.open(str(n), os.O_CREAT))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_nested, "it has more than 16 folders in each other"),
        (_long, "File name too long"),
        (_many, "it has more than 1,000 files and folders"),
    ],
)
def test_a_folder_that_cannot_be_collected_is_named_and_the_others_are_collected(
    make, reason, handed_in, tmp_path, caplog, monkeypatch
):
    bad = tmp_path / "bad"
    bad.mkdir()
    with monkeypatch.context() as inside:
        inside.chdir(bad)
        make(bad)
    names = [f"{ME}+lab1+{MINE}+a", f"{ME}2+lab1+{MINE}+b"]
    monkeypatch.setattr(collect.Collect, "_submitter", lambda _, record: record["username"])
    files = collected(tmp_path, dict(zip(names, (bad, handed_in), strict=True)), caplog)
    assert files == {f"{ME}2/lab1/data/mine.ipynb", f"{ME}2/lab1/timestamp.txt"}
    assert f"{names[0]}: " in caplog.text
    assert reason in caplog.text
    subprocess.run(["rm", "-r", tmp_path / "exchange"], check=True)  # too deep for pytest


def test_a_folder_that_may_not_be_read_is_an_error(tmp_path):
    source = tmp_path / "source"
    (source / "closed").mkdir(parents=True, mode=0)
    source.chmod(0o755)

    def copy(pipe):
        os.chdir(source)
        (target := Path(tempfile.mkdtemp())).chmod(0o777)
        if not os.getuid():
            os.setuid(65534)  # root may read all
        try:
            collect.copy_regular(Path(), target / "copy", 1000)
        except PermissionError as error:
            pipe.send(str(error.filename))
        finally:
            pipe.close()

    ours, theirs = Pipe()
    process = get_context("fork").Process(target=copy, args=(theirs,))
    process.start()
    theirs.close()
    assert "closed" in ours.recv()
    process.join()


def test_a_folder_in_the_name_of_another_student_is_not_collected(handed_in, tmp_path, caplog):
    other = tmp_path / "other"
    other.mkdir()
    (other / "lab.ipynb").write_text("nothing")
    forged, mine = f"mary+lab1+{NEWER}+b", f"{ME}+lab1+{MINE}+a"
    nameless = f"{ME}+lab1+not a time+c"
    folders = {mine: handed_in, forged: other, nameless: tmp_path / "third"}
    folders[nameless].mkdir()
    assert collected(tmp_path, folders, caplog) == {
        f"{ME}/lab1/data/mine.ipynb",
        f"{ME}/lab1/timestamp.txt",
    }
    assert f"{nameless}: its name has no time: not collected" in caplog.text
    assert f"{forged} is owned by {ME}, not by mary: not collected" in caplog.text


def test_a_name_that_a_page_would_run_is_neither_collected_nor_graded(handed_in, tmp_path, caplog):
    name = "<img src=x onerror=alert()>"
    folders = {f"{name}+lab1+{MINE}+a": handed_in}
    assert not collected(tmp_path, folders, caplog, check_owner=False)
    assert f"{name!r} is not the name of a student: not collected" in caplog.text
    with pytest.raises(ValueError, match="is not the name of a student"):
        autograde.Normalise().preprocess(None, {"nbgrader": {"student": name}})


def test_a_newer_folder_of_another_does_not_replace_a_students_own(
    handed_in, tmp_path, caplog, monkeypatch
):
    other = tmp_path / "other"
    other.mkdir()
    (other / "lab.ipynb").write_text("nothing")
    owners = {f"mary+lab1+{MINE}+a": "mary", f"mary+lab1+{NEWER}+b": ME}
    monkeypatch.setattr(collect.Collect, "_submitter", lambda _, record: owners[record["filename"]])
    folders = dict(zip(owners, (handed_in, other), strict=True))
    assert collected(tmp_path, folders, caplog) == {
        "mary/lab1/data/mine.ipynb",
        "mary/lab1/timestamp.txt",
    }


@pytest.mark.parametrize("name", ["leak", "all", "fifo"])
def test_a_submission_with_a_link_is_refused_before_it_is_graded(handed_in, tmp_path, name):
    folder = tmp_path / "submitted/eve/lab1"
    folder.mkdir(parents=True)
    (handed_in / name).rename(folder / name)
    config = Config(Grader={"course": str(tmp_path)})
    with pytest.raises(ValueError, match=rf"{name} is a link or no regular file: remove it"):
        autograde.Normalise(config=config).preprocess(
            None, {"nbgrader": {"student": "eve", "assignment": "lab1"}}
        )


def test_a_new_course_collects_no_links(tmp_path):
    course.init(tmp_path / "dma101")
    loader = PyFileConfigLoader("nbgrader_config.py", path=str(tmp_path / "dma101"))
    factory = ExchangeFactory(config=loader.load_config())
    assert factory.collect is collect.Collect


def test_the_board_of_a_lab_does_not_control_the_terminal(tmp_path, capsys):
    folder = tmp_path / "autograded/a\x1b]0;owned\x07\nb/lab1"
    folder.mkdir(parents=True)
    metadata = {"dgkit": {"ratios": {"bonus": 2.0}}}
    (folder / "lab.ipynb").write_text(json.dumps({"metadata": metadata, "cells": []}))
    assert main(["teach", "board", str(tmp_path), "lab1"]) == 0
    assert capsys.readouterr().out == "    2.00  a\\x1b]0;owned\\x07\\nb\n"


def test_feedback_is_text_that_a_file_can_have():
    test = student_notebook.Test("t", "", 1.0)
    made = grader.Grade(test, 0.0, failure="an error with \ud800")
    (stream, _) = autograde._outputs(made, ["a note with \udfff"])
    assert stream.text.encode()
    assert r"\ud800" in stream.text
    assert r"\udfff" in stream.text


@pytest.mark.parametrize("lab", sorted(course.labs_folder().glob("lab*")), ids=lambda lab: lab.name)
def test_a_lab_links_to_its_own_files_or_the_web(lab):
    (notebook,) = lab.glob("*.ipynb")
    cells = json.loads(notebook.read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    released = {path.name for path in lab.iterdir()}
    assert [link for link in links if link not in released and "://" not in link] == []


def test_the_next_command_for_a_course_can_be_pasted(tmp_path, capsys):
    folder = tmp_path / "DMA, spring; 101"
    assert main(["teach", "init", str(folder)]) == 0
    said = "".join(capsys.readouterr())
    assert shlex.split(said.partition("Next: ")[2])[:3] == ["cd", str(folder), "&&"]
