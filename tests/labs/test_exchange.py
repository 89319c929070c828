# SPDX-License-Identifier: Apache-2.0
"""Each lab through nbgrader's exchange: from the instructor's source to the student's feedback."""

import html
import json
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from support.processes.agents import python
from support.teaching import skeleton, solution

from dgkit.cli import main
from dgkit.teach import course

LABS = sorted(path.name for path in course.labs_folder().iterdir())


class Edit(NamedTuple):
    """A solution with a mistake: what it scores by the lab's page, what its student is told."""

    cells: tuple[str, ...]
    old: str
    new: str
    points: float
    told: str


WRONG = {
    "lab1": Edit(("read_header",), '"<8sHHIQI"', '">8sHHIQI"', 55, "ValueError: the CRC is"),
    "lab2": Edit(("submit",), "(tail + 1) % 2**32", "tail + 1", 75.83, "a word has 32 bits"),
    "lab3": Edit(
        ("publish",),
        "write_fenced(flag_word, 2 * number - 1)",
        "write(flag_word, 2 * number - 1)",
        79.5,
        "so message 1 is whole, and word",
    ),
    "lab4": Edit(
        ("predict", "smallest_depth"),
        'max(notes["gap"], notes["byte"] * size)',
        'notes["byte"] * size',
        57,
        "WRONG  50% of the highest rate, 64 bytes",
    ),
    "lab5": Edit(
        ("append",),
        "log.load(first_record + 4 * (count - 1)) == ident",
        "False",
        55,
        "is in the log 2 times",
    ),
    "lab6": Edit(
        ("feed",),
        "batch - len(losses) < slots and ",
        "",
        58.5,
        "the DMA overwrites slot 0 while batch 0 is trained",
    ),
    "lab7": Edit(("squares",), "__syncthreads();", "", 70, "of block 0, round 0, thread "),
}
EXCHANGE = """
import json, sys
from pathlib import Path
from nbgrader.apps import NbGraderAPI
from support.teaching import write
from traitlets.config.loader import PyFileConfigLoader

lab, students, exchange = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
config = PyFileConfigLoader("nbgrader_config.py").load_config()
config.Grader.allow_not_isolated = True
config.Exchange.root = str(exchange)
config.ExchangeCollect.check_owner = False  # one user is all the students
api = NbGraderAPI(config=config)

def instructor(done):
    assert done["success"], done

def student(name, step):
    api.coursedir.student_id, api.coursedir.assignment_id = name, lab
    home = exchange.parent / name
    home.mkdir(exist_ok=True)
    given = dict(coursedir=api.coursedir, authenticator=api.authenticator, parent=api)
    app = getattr(api.exchange, step)(**given)
    app.assignment_dir, app.cache = str(home), str(home / ".cache")
    app.start()
    return home / lab

instructor(api.generate_assignment(lab))
instructor(api.release_assignment(lab))
for name, cells in students.items():
    (notebook,) = student(name, "FetchAssignment").glob("*.ipynb")
    write(notebook, notebook, cells)
    student(name, "Submit")
for handed_in in (exchange / "dma101/inbound").iterdir():
    (handed_in / "leak").symlink_to(Path("course_seed").resolve())
api.coursedir.student_id = "*"
instructor(api.collect(lab))
for name in students:
    instructor(api.autograde(lab, name))
instructor(api.generate_feedback(lab))
instructor(api.release_feedback(lab))
told = {name: str(student(name, "FetchFeedback")) for name in students}
with api.gradebook as gradebook:
    graded = {name: gradebook.find_submission(lab, name).notebooks[0] for name in students}
    print(json.dumps({
        name: [told[name], {each.name: each.auto_score for each in notebook.grades}]
        for name, notebook in graded.items()
    }))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A course, and a folder that every student may write to."""
    made = tmp_path_factory.mktemp("term")
    assert main(["teach", "init", str(made / "dma101")]) == 0
    (made / "dma101" / course.SEED_FILE).write_text("of a test\n")  # that of the labs' pages
    (made / "exchange").mkdir()
    (made / "exchange").chmod(0o777)
    return made


def exchanged(folder, lab, students):
    """Hand out a lab, submit, grade; the points of each test and the page that students get."""
    command = python(EXCHANGE, lab, json.dumps(students), str(folder / "exchange"))
    done = subprocess.run(
        command, cwd=folder / "dma101", capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def page(told):
    """The text of the one feedback page that a student fetched."""
    (found,) = Path(told).glob("feedback/*/*.html")
    return html.unescape(re.sub(r"<[^>]+>", "", found.read_text(encoding="utf-8")))


@pytest.mark.more
@pytest.mark.timeout(330)
@pytest.mark.parametrize("lab", LABS)
def test_a_lab_is_handed_out_submitted_graded_and_explained(lab, folder):
    edit, right = WRONG[lab], solution(lab)
    wrong = right | {name: right[name].replace(edit.old, edit.new) for name in edit.cells}
    assert all(right[name] != wrong[name] for name in edit.cells)
    made = exchanged(folder, lab, {"best": right, "none": skeleton(lab), "part": wrong})
    totals = {name: round(sum(grades.values()), 2) for name, (_, grades) in made.items()}
    assert totals == {"best": 90, "none": 0, "part": edit.points}
    assert not [leak for told, _ in made.values() for leak in Path(told).rglob("leak")]
    best, none, part = (page(told) for told, _ in made.values())
    assert "WRONG" not in best
    assert "raised NotImplementedError" in none
    assert edit.told in part
