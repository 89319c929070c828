# SPDX-License-Identifier: Apache-2.0
"""A course from `dgkit teach init` to the feedback, by nbgrader; the terminal's check."""

import json
import os
import re
import shutil
import stat
import subprocess
from importlib.metadata import distributions
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import nbformat
import pytest
from nbconvert import HTMLExporter
from nbgrader.api import Gradebook
from nbgrader.preprocessors import ClearHiddenTests, ClearSolutions
from support.jupyter.notebooks import run
from support.processes.agents import python
from support.teaching import skeleton, solution, source, write

from dgkit.cli import main, teach_command
from dgkit.teach import autograde, concepts, course, hints, sandbox, student_notebook, variants

LABS = sorted(path.name for path in course.labs_folder().iterdir())
SECRET = r"### BEGIN (?:SOLUTION|HIDDEN TESTS)(.*?)### END"
NBGRADER = """
import sys
from pathlib import Path
from nbgrader.apps import NbGraderAPI
from traitlets.config.loader import PyFileConfigLoader

lab, *students = sys.argv[1:]
config = PyFileConfigLoader("nbgrader_config.py").load_config()
config.Grader.allow_not_isolated = True
api = NbGraderAPI(config=config)
if students:
    done = [api.autograde(lab, student) for student in students] + [api.generate_feedback(lab)]
else:
    done = [api.generate_assignment(lab)]
assert all(each["success"] for each in done), done
Path("log").write_text("".join(each["log"] or "" for each in done))
assert not any("checksum" in (each["log"] or "") for each in done), done
with api.gradebook as gradebook:
    for student in students:
        for grade in gradebook.find_submission(lab, student).notebooks[0].grades:
            print(student, grade.name, grade.auto_score, grade.extra_credit)
"""


def nbgrader(folder: Path, *arguments: str) -> str:
    """Run nbgrader in a course."""
    command = python(NBGRADER, *arguments)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A course whose first lab is released."""
    folder = tmp_path_factory.mktemp("courses") / "dma101"
    assert main(["teach", "init", str(folder)]) == 0
    nbgrader(folder, "lab1")
    return folder


def test_a_course_is_private_and_has_its_own_seed(tmp_path):
    for name in ("one", "two"):
        assert main(["teach", "init", str(tmp_path / name)]) == 0
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / name / "course_seed").stat().st_mode) == 0o600
    assert course.read_seed(tmp_path / "one") != course.read_seed(tmp_path / "two")


@pytest.mark.parametrize("student", ["", "a/b", "..", "a\nb", "\x1b[31mred", "<b>"])
def test_a_copy_is_made_for_names_of_students_only(tmp_path, capsys, student):
    assert main(["teach", "init", str(tmp_path / "c")]) == 0
    shutil.copytree(tmp_path / "c/source/lab1", tmp_path / "c/release/lab1")
    assert main(["teach", "personal", str(tmp_path / "c"), "lab1", "alice", student]) != 0
    assert f"{student!r} is not the name of a student" in capsys.readouterr().err
    assert not (tmp_path / "c/personal").exists()


@pytest.mark.parametrize("name", ["course_seed", "release/lab1/find_the_bytes.ipynb"])
@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"7" * 31, b"[" * 9999])
def test_a_damaged_file_of_a_course_is_named_before_a_copy_is_made(tmp_path, capsys, name, content):
    assert main(["teach", "init", str(tmp_path / "c")]) == 0
    shutil.copytree(tmp_path / "c/source/lab1", tmp_path / "c/release/lab1")
    (tmp_path / "c" / name).write_bytes(content)
    assert main(["teach", "personal", str(tmp_path / "c"), "lab1", "alice"]) != 0
    assert str(tmp_path / "c" / name) in capsys.readouterr().err.replace("\n", "")
    assert not (tmp_path / "c/personal").exists()


def test_without_the_instructors_package_no_course_is_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(course, "labs_folder", lambda: tmp_path / "missing")
    assert main(["teach", "init", str(tmp_path / "dma101")]) == 1
    assert "pip install ./notebooks/labs" in capsys.readouterr().err
    assert not (tmp_path / "dma101").exists()


def test_a_course_replaces_no_file(tmp_path, capsys):
    (tmp_path / "mine").write_text("mine")
    assert main(["teach", "init", str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_dgkit_itself_has_neither_solutions_nor_hidden_tests():
    """Students install it; the labs' sources are a distribution of their own, dgkit-labs."""
    package = Path(course.__file__).parents[1]
    files = [path for kind in ("py", "ipynb", "md") for path in package.rglob(f"*.{kind}")]
    code = {line.strip() for path in files for line in path.read_text().splitlines()}
    assert len(code) > 10_000
    for lab in LABS:
        secret = "".join(
            part
            for cell in json.loads(source(lab).read_text())["cells"]
            for part in re.findall(SECRET, "".join(cell["source"]), re.DOTALL)
        )
        lines = {line.strip() for line in secret.splitlines() if len(line.strip()) > 40}
        assert len(lines) > 10
        assert len(lines & code) <= 2, "more than the first lines, which visible tests have, too"


@pytest.mark.parametrize("lab", LABS)
def test_constants_of_a_student_replace_those_of_the_repository_and_those_of_the_course(lab):
    """Of the course's copy as well as of the repository's, in the task, the solution, the tests."""
    cells = student_notebook.load(source(lab))[1]
    text = "\n".join(map(student_notebook.source, cells))
    course_s = variants.replaced(text, lab, "seed")
    alice = variants.replaced(text, lab, "seed", "alice")
    assert alice == variants.replaced(course_s, lab, "seed", "alice")
    assert len({text, course_s, alice, variants.replaced(text, lab, "seed", "bob")}) == 4
    for cell in cells:
        assert variants.replaced(student_notebook.source(cell), lab, "seed") in course_s


@pytest.mark.parametrize("lab", LABS)
def test_a_notebook_shows_whose_constants_it_has(lab, tmp_path):
    path = tmp_path / "release" / lab / source(lab).name
    path.parent.mkdir(parents=True)
    path.write_bytes(variants.copy(source(lab), lab, "seed"))
    for student in ("alice", "bob"):
        (tmp_path / "personal" / student / lab).mkdir(parents=True)
    for student in ("", "alice", "bob"):
        cells = json.loads(variants.copy(source(lab), lab, "seed", student))["cells"]
        for cell in cells:
            cell["source"] = autograde._visible(student_notebook.source(cell))
        assert variants.owners(tmp_path, lab, path.stem, cells, "seed") == {student}


def test_a_neighbours_answer_does_not_fit_a_copy_with_constants_of_its_student(tmp_path, capsys):
    folder = tmp_path / "my course"
    assert main(["teach", "init", "--vary", str(folder)]) == 0
    assert main(["teach", "personal", str(folder), "lab1", "alice"]) == 1
    assert "run `nbgrader generate_assignment lab1` first" in capsys.readouterr().err
    nbgrader(folder, "lab1")
    seed = course.read_seed(folder)
    for wrong in ("lab8", "../lab1"):
        assert main(["teach", "personal", str(folder), wrong, "alice"]) != 0
    assert main(["teach", "personal", str(folder), "lab1", "alice", "../bob"]) != 0
    assert main(["teach", "personal", str(folder), "lab1", "alice"]) != 0
    assert (
        "'alice' is not in the gradebook: run `nbgrader db student add" in capsys.readouterr().err
    )
    assert not (folder / "personal").exists()
    with Gradebook(f"sqlite:///{folder}/gradebook.db") as gradebook:
        for student in ("alice", "bob", "carol"):
            gradebook.add_student(student)
    assert main(["teach", "personal", str(folder), "lab1", "alice", "bob", "carol"]) == 0
    assert main(["teach", "personal", str(folder), "lab1", "alice"]) == 1
    (path,) = (folder / "source/lab1").glob("*.ipynb")
    cells = student_notebook.solutions(student_notebook.load(path)[1])
    answers = {
        name: {cell: variants.replaced(text, "lab1", seed, name) for cell, text in cells}
        for name in ("alice", "bob")
    }
    assert answers["alice"] != answers["bob"]
    for student, whose in {"alice": "alice", "bob": "alice"}.items():
        given = folder / "personal" / student / "lab1/find_the_bytes.ipynb"
        mine = folder / "submitted" / student / "lab1/find_the_bytes.ipynb"
        write(mine, given, answers[whose])
        assert main(["teach", "check", str(mine)]) == (student != whose)
    write(
        folder / "submitted/carol/lab1/find_the_bytes.ipynb",
        folder / "release/lab1/find_the_bytes.ipynb",
        dict(cells),
    )
    scores: dict[str, float] = {}
    for line in nbgrader(folder, "lab1", "alice", "bob", "carol").splitlines():
        student, _, points, _ = line.split()
        scores[student] = scores.get(student, 0.0) + float(points)
    assert scores["alice"] == 90.0
    assert scores["bob"] <= 30.0
    assert scores["carol"] == 15.0
    said = "carol handed in lab1 with the constants of the release: its answers do not fit those of"
    assert [line.count(said) for line in (folder / "log").read_text().splitlines()].count(1) == 1
    page = (folder / "feedback/carol/lab1/find_the_bytes.html").read_text()
    assert (
        page.count("this notebook has the constants of the copy for all, and is graded with") == 1
    )
    for student in answers:
        page = (folder / f"feedback/{student}/lab1/find_the_bytes.html").read_text()
        assert "was changed: graded as released" not in page
        assert (folder / "personal" / student / "lab1/drawing.svg").is_file()
        assert variants.derived(seed, student).magic in page


def test_the_release_has_neither_solutions_nor_hidden_tests_nor_rubric(released):
    text = (released / "release/lab1/find_the_bytes.ipynb").read_text()
    for secret in ("unpack(", "crc32(data", "ends too early", "Rubric", "BEGIN", "seqlock"):
        assert secret in source("lab1").read_text()
        assert secret not in text
    assert text.count("NotImplementedError") == 3


def test_nbgrader_grades_without_running_the_submission_in_its_process(released, capsys):
    forged = "import sys\nsys.modules['nbgrader'] = sys.modules['dgkit'] = None\n"
    stranger = {"read_header": forged + solution("lab1")["read_header"]}
    release = released / "release/lab1/find_the_bytes.ipynb"
    work = {"best": solution("lab1"), "none": {}, "part": stranger}
    for student, cells in work.items():
        write(released / "submitted" / student / "lab1/find_the_bytes.ipynb", release, cells)
    remove_tests(released / "submitted/part/lab1/find_the_bytes.ipynb", "test_node")
    lines = nbgrader(released, "lab1", *work).splitlines()
    scores = {tuple(line.split()[:2]): line.split()[2:] for line in lines}
    full = {"test_header": 20, "test_header_damage": 15, "test_node": 15, "test_walk": 25}
    for name, points in (full | {"test_damage": 15}).items():
        assert float(scores["best", name][0]) == points
        assert float(scores["none", name][0]) == 0
    assert scores["best", "test_few_reads"] == ["0.0", "4.96"], "the bonus is extra credit"
    assert scores["best", "question"][0] == scores["none", "question"][0] == "0.0", "unchanged"
    assert [float(scores["part", name][0]) for name in full] == [20, 15, 0, 0]
    graded = json.loads((released / "autograded/best/lab1/find_the_bytes.ipynb").read_text())
    assert graded["metadata"]["dgkit"]["ratios"] == {"test_few_reads": 121.0}
    assert re.match("isolated: |not isolated: ", graded["metadata"]["dgkit"]["isolation"])
    assert main(["teach", "board", str(released), "lab1"]) == 0
    assert capsys.readouterr().out == "  121.00  best\n"
    told = (released / "feedback/none/lab1/find_the_bytes.html").read_text()
    assert "read_header raised NotImplementedError" in told
    assert "HIDDEN" not in told
    assert "check_refused" not in told, "a hidden test's source"
    assert "isolated" not in told, "how the grader's machine isolates, and what it lacks"
    log = (released / "log").read_text()
    isolation = graded["metadata"]["dgkit"]["isolation"]
    complete = re.fullmatch(r"isolated: [\w ]+", isolation)
    assert log.count(isolation) == (0 if complete else len(work)), "the instructor is told"


def remove_tests(path: Path, name: str) -> None:
    """Remove a test cell, as a student may."""
    notebook = json.loads(path.read_text())
    notebook["cells"] = [
        cell
        for cell in notebook["cells"]
        if cell["metadata"].get("nbgrader", {}).get("grade_id") != name
    ]
    path.write_text(json.dumps(notebook))


def cell_named(notebook, name):
    """The place of a cell in a notebook."""
    (place,) = (
        number
        for number, cell in enumerate(notebook["cells"])
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == name
    )
    return place


def messy(path: Path) -> None:
    """Change a right submission: split, pasted twice, imports in a cell of the student's own."""
    notebook = json.loads(path.read_text())
    cells = notebook["cells"]
    header = cells[cell_named(notebook, "read_header")]
    lines = header["source"].splitlines(keepends=True)
    imports = [line for line in lines if line.strip().startswith("import ")]
    assert imports
    rest = [line for line in lines if line not in imports]
    half = len(rest) // 2
    at = cell_named(notebook, "read_header")
    cells[at] = header | {"source": "".join(rest[:half]), "id": "first"}
    cells.insert(at + 1, header | {"source": "".join(rest[half:]), "id": "second"})
    own = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    mine = "%matplotlib inline\nimport no_such_module\n" + "".join(
        line.strip() + "\n" for line in imports
    )
    cells.insert(at, own | {"source": mine, "id": "mine"})
    at = cell_named(notebook, "walk")
    cells.insert(at, cells[at] | {"id": "copy", "source": skeleton("lab1")["walk"]})
    renamed = {"nbgrader": header["metadata"]["nbgrader"] | {"grade_id": "read_header_2"}}
    cells.append(header | {"id": "renamed", "source": "x = 1", "metadata": renamed})
    path.write_text(json.dumps(notebook))


def test_a_submission_that_was_split_pasted_and_cut_is_graded_as_the_student_checked_it(
    released, capsys
):
    work = {"split": solution("lab1"), "cut": solution("lab1")}
    paths = {name: released / "submitted" / name / "lab1/find_the_bytes.ipynb" for name in work}
    for name, cells in work.items():
        write(paths[name], released / "release/lab1/find_the_bytes.ipynb", cells)
    messy(paths["split"])
    (paths["split"].parent / "index.html").write_text("<script>fetch('/')</script>")
    hints.take(paths["split"], concepts.LAB1["damage"])
    for name in ("read_node", "test_walk"):
        remove_tests(paths["cut"], name)
    assert main(["teach", "check", str(paths["split"])]) == 0
    assert main(["teach", "check", str(paths["cut"])]) == 1
    assert "define no 'read_node'" in capsys.readouterr().out
    scores: dict[str, float] = {}
    for line in nbgrader(released, "lab1", *work).splitlines():
        student, _, points, _ = line.split()
        scores[student] = scores.get(student, 0.0) + float(points)
    assert scores == {"split": 90.0, "cut": 90.0 - 15.0}
    files = {path.name for path in (released / "feedback/split/lab1").iterdir()}
    of_exchange = {"timestamp.txt", "submission_secret.txt"}
    assert files == {"find_the_bytes.html", "drawing.svg"} | of_exchange
    pages = {
        name: (released / f"feedback/{name}/lab1/find_the_bytes.html").read_text() for name in work
    }
    assert "the cell read_header was there 2 times: graded as one" in pages["split"]
    assert "the cell walk was there 2 times: graded as one" in pages["split"]
    assert "is not of this lab: only its imports count" in pages["split"]
    assert "hints taken, which cost no points: damage (1 of 3)" in pages["split"]
    assert "imports of your own cells count, too: import no_such_module; import" in pages["split"]
    for name in ("read_node", "test_walk"):
        assert f"the cell {name} was missing: it was added as released" in pages["cut"]


@pytest.mark.cheat
def test_an_instructors_notebook_that_is_submitted_is_graded_as_empty():
    notebook = nbformat.read(source("lab2"), as_version=4)
    marks = [cell.metadata.nbgrader for cell in notebook.cells if "nbgrader" in cell.metadata]
    released = {each.grade_id: SimpleNamespace(source="", locked=each.locked) for each in marks}
    (note,) = autograde._disown(notebook.cells, released)
    assert note == "this is the instructor's notebook, with solutions: graded as empty"
    assert not any(text for _, text in student_notebook.solutions(notebook.cells))
    assert autograde._disown(notebook.cells, released) == []


def test_a_course_without_grades_has_no_leaderboard(tmp_path, capsys):
    assert main(["teach", "board", str(tmp_path), "lab1"]) == 2
    assert "no graded notebook of 'lab1'" in capsys.readouterr().err


def test_the_terminal_shows_the_first_test_that_fails(released, tmp_path, capsys):
    release = released / "release/lab1/find_the_bytes.ipynb"
    cells = skeleton("lab1") | {"read_header": solution("lab1")["read_header"]}
    write(tmp_path / "mine.ipynb", release, cells)
    assert main(["teach", "check", str(tmp_path / "mine.ipynb")]) == 1
    out = capsys.readouterr().out
    assert "right  test_header\n" in out
    assert "-      test_header_damage: hidden tests only\n" in out
    assert "read_node raised NotImplementedError" in out
    assert "walk raised" not in out
    assert out.endswith("1 of 4 tests are right\n")
    assert main(["teach", "check", "--all", str(tmp_path / "mine.ipynb")]) == 1
    assert "walk raised NotImplementedError" in capsys.readouterr().out
    write(tmp_path / "mine.ipynb", release, solution("lab1"))
    assert main(["teach", "check", str(tmp_path / "mine.ipynb")]) == 0
    out = capsys.readouterr().out
    assert out.endswith("4 of 4 tests are right\n")
    assert "right  test_node\n    each field is read where it is, in its byte order\n" in out
    assert "    bonus: a ratio of 121.00\n" in out


def test_hints_say_more_each_time_and_are_recorded(released, tmp_path, capsys):
    release = released / "release/lab1/find_the_bytes.ipynb"
    wrong = solution("lab1")["read_header"].replace('"<8sHHIQI"', '">8sHHIQI"')
    mine = tmp_path / "find_the_bytes.ipynb"
    write(mine, release, solution("lab1") | {"read_header": wrong})
    for level in (1, 2, 3, 3):
        assert main(["teach", "check", "--hint", str(mine)]) == 1
        text = hints.HINTS["format"][level - 1]
        assert f"    hint {level} of 3: {text}\n" in capsys.readouterr().out
    assert hints.shown(mine) == {"format": 3}
    mine.with_name(hints.FILE).write_text('{"find_the_bytes.ipynb": {"format": 7, "x": []}}')
    assert hints.shown(mine) == {}


def test_a_watched_notebook_is_checked_each_time_that_it_is_saved(
    released, tmp_path, capsys, monkeypatch
):
    release, mine = released / "release/lab1/find_the_bytes.ipynb", tmp_path / "mine.ipynb"
    write(mine, release, {})
    saves = iter(["damaged", "right"])

    def save(_: float) -> None:
        match next(saves, None):
            case "damaged":
                mine.write_text("{")
            case "right":
                write(mine, release, solution("lab1"))
            case None:
                raise KeyboardInterrupt
        os.utime(mine, ns=(0, mine.stat().st_mtime_ns + 1))

    monkeypatch.setattr(teach_command, "time", SimpleNamespace(sleep=save))
    assert main(["teach", "check", "--watch", str(mine)]) != 0
    out, err = capsys.readouterr()
    assert "0 of 4 tests are right" in out
    assert "is not a notebook of format 4" in err
    assert out.rstrip().endswith("4 of 4 tests are right")


def test_each_concept_has_its_hints():
    assert set(hints.HINTS) == {name for table in concepts.LABS.values() for name in table}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a notebook of format 4"),
        ("[]", "is not a notebook of format 4"),
        ('{"cells": [{"cell_type": "code"}]}', "is not a notebook of format 4"),
        ('{"cells": []}', "has no test cells"),
        ("[" * 100_000, "is not a notebook of format 4"),
    ],
)
def test_the_terminal_refuses_what_is_no_lab(tmp_path, capsys, text, why):
    (tmp_path / "mine.ipynb").write_text(text)
    assert main(["teach", "check", str(tmp_path / "mine.ipynb")]) in (1, 2)
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("lab", LABS)
def test_a_test_cell_without_its_hidden_part_is_what_nbgrader_releases(lab):
    for cell in nbformat.read(source(lab), as_version=4).cells:
        visible = autograde._visible(cell.source)
        ClearHiddenTests()._remove_hidden_test_region(cell)
        assert cell.source.strip() == visible


@pytest.mark.parametrize("lab", LABS)
def test_the_instructors_notebook_runs_in_a_kernel(lab, tmp_path):
    run(nbformat.read(source(lab), as_version=4), tmp_path)


@pytest.mark.parametrize("lab", LABS)
def test_the_sources_are_valid_small_and_stripped(lab):
    text = source(lab).read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert len(text.encode()) < 40_000
    for cell in notebook.cells:
        assert cell.cell_type != "code" or (cell.outputs, cell.execution_count) == ([], None)
    points = [cell.metadata.get("nbgrader", {}).get("points", 0) for cell in notebook.cells]
    assert sum(points) == 100


@pytest.mark.parametrize("lab", LABS)
def test_each_lab_has_a_drawing_and_what_a_teacher_needs_around_it(lab):
    folder = source(lab).parent
    drawing = ElementTree.parse(folder / "drawing.svg").getroot()
    assert drawing.get("aria-label")
    text = {
        cell["id"]: "".join(cell["source"]) for cell in json.loads(source(lab).read_text())["cells"]
    }
    for part in ("**You need** ", "**Warm-up**, ", "(drawing.svg)"):
        assert part in text["prepare"]
    assert "**Stretch.** " in text["stretch"]
    teaching = folder.parents[1] / "teaching" / lab
    slides = nbformat.read(teaching / "slides.ipynb", as_version=4)
    nbformat.validate(slides)
    kinds = [cell.metadata.slideshow.slide_type for cell in slides.cells]
    assert kinds == ["slide"] * 10
    template = str(teaching.parent / "slides.html.j2")
    page, _ = HTMLExporter(template_file=template).from_notebook_node(slides)
    assert page.count('class="jp-Cell ') == 10
    assert not re.findall(r"""(?:src|href|from|url)[=( ]+["']?(?:https?:)?//""", page)
    (picture,) = re.findall(r'<img[^>]* src="([^"]+)"', page)
    assert picture.startswith("data:image/svg") or (teaching / picture).is_file()
    exam = (teaching / "exam.md").read_text()
    points = [int(each) for each in re.findall(r"^## \d\. \((\d+) points\)$", exam, re.M)]
    assert len(points) == exam.count("**Rubric.**") == 5
    stated = re.search(r"Five questions, (\d+) points", exam)
    assert stated
    assert sum(points) == int(stated[1])
    assert len(re.findall(r"^\*\*\d+ of 10\.\*\*", exam, re.M)) == 2


def test_a_released_capstone_has_no_solution():
    path = Path(__file__).parents[2] / "notebooks/testbed/dpu/capstone.ipynb"
    released, _ = ClearSolutions().preprocess(nbformat.read(path, as_version=4), {})
    (text,) = [each.source for each in released.cells if "FEEDER = " in each.source]
    assert text.count("raise NotImplementedError()") == 3
    assert "now + LENGTH" not in text
    assert "fence=True" not in text


def test_the_schedule_has_six_weeks_and_the_minutes_of_the_notebooks():
    guide = Path(__file__).parents[2] / "notebooks/labs/README.md"
    rows = re.findall(r"^\| (\d) \| \[(\d)\..* \| 90 \| 10 \| (\d+) \|$", guide.read_text(), re.M)
    assert [f"lab{lab}" for _, lab, _ in rows] == LABS
    assert [week for week, *_ in rows] == sorted(week for week, *_ in rows)
    assert {week for week, *_ in rows} == set("123456")
    for _, lab, minutes in rows:
        cells = json.loads(source(f"lab{lab}").read_text(encoding="utf-8"))["cells"]
        (story,) = (
            "".join(cell["source"]) for cell in cells if "| minutes |" in str(cell["source"])
        )
        parts = [row.split("|")[-2] for row in story.splitlines() if re.match(r"\| \d", row)]
        assert sum(map(int, filter(str.strip, parts))) == int(minutes)


@pytest.mark.parametrize("lab", LABS)
def test_a_labs_page_has_the_table_of_its_concepts(lab):
    text = (Path(__file__).parents[2] / f"notebooks/labs/{lab}.md").read_text(encoding="utf-8")
    for name, concept in concepts.LABS[lab].items():
        cap = f"{concept.cap:.0%}".replace("%", " %") if concept.cap < 1 else ""
        assert f"| {name} | {concept.weight:g} | {cap} | {concept.shows} |\n" in text


def test_what_cannot_be_isolated_is_not_graded_unless_that_is_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda _: None)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sandbox, "_fails", lambda *_: "the kernel has none")
    made = sandbox.isolation.__wrapped__((str(tmp_path),))
    assert made.method == ""
    assert str(made) == (
        "not isolated: bubblewrap is not installed; only root can use another user; Landlock: the "
        "kernel has none"
    )


def test_nbgrader_replaces_no_package_of_the_environment():
    """tests/run installs dgkit's wheel with the extra `teach` beside dgkit's environment."""
    folders: dict[str, set[str]] = {}
    for each in distributions():
        folders.setdefault(each.metadata["Name"].lower(), set()).add(str(each.locate_file("")))
    assert "nbgrader" in folders
    assert {name for name, found in folders.items() if len(found) > 1} <= {"dgkit-dpu"}
