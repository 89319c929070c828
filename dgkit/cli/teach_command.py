# SPDX-License-Identifier: Apache-2.0
"""`dgkit teach`: courses with graded labs."""

from __future__ import annotations

import contextlib
import re
import shlex
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from ..units import printable
from .console import say
from .options import duration, integer, size

_LEAST_MEMORY = 256 << 20  # what a server with one kernel needs
_WATCH_S = 0.3  # between two looks at the time at which a notebook was saved
_IMAGE = re.compile(r"[\w./:@-]+", re.ASCII)


@click.group(short_help="Make and check graded labs.")
def teach() -> None:
    """Make a course of graded labs, check a lab at the terminal, configure servers for a class.

    The labs are notebooks of nbgrader (`pip install '.[teach]'`). Their sources, with solutions and
    hidden tests, are for instructors alone, and not in dgkit: `pip install ./notebooks/labs`.
    notebooks/labs/README.md is the instructor's guide.

    \b
    Examples:
      dgkit teach init dma101                    # an instructor: make a course
      dgkit teach doctor                         # an instructor: can this machine grade?
      dgkit teach personal . lab1 alice bob      # an instructor: a lab for each student
      dgkit teach check find_the_bytes.ipynb     # a student: run the visible tests
      dgkit teach hub > jupyterhub_config.py     # an instructor: a server for each student
    """


@teach.command(short_help="Make an nbgrader course with the labs.")
@click.argument("course", type=click.Path(path_type=Path))
@click.option("--vary", is_flag=True, help="Give the labs other constants than other courses.")
def init(course: Path, vary: bool) -> int:
    """Make the folder COURSE: an nbgrader course with the sources of the labs.

    It holds nbgrader's configuration, the labs with solutions and hidden tests, and the seed from
    which the graded data are generated. Only you can read it. `nbgrader generate_assignment`, in
    that folder, releases a lab to students.

    With --vary, an answer to another course, or that of dgkit's repository, does not fit: places of
    words, units, names and factors are others, in the task, the solution and the tests.

    \b
    Example:
      dgkit teach init dma101 --vary && cd dma101 && nbgrader generate_assignment --create lab1
    """
    from ..teach import course as courses

    labs = courses.init(course, vary=vary)
    click.echo(f"{course}: {', '.join(labs)}")
    say(f"Next: cd {shlex.quote(str(course))} && nbgrader generate_assignment --create {labs[0]}")
    return 0


@teach.command(short_help="Write a lab for each student, with constants of their own.")
@click.argument("course", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("lab")
@click.argument("students", nargs=-1, required=True)
def personal(course: Path, lab: str, students: tuple[str, ...]) -> int:
    """Write a copy of the released LAB for each of STUDENTS, with constants derived from the name.

    The copies are in COURSE/personal/STUDENT/LAB; hand them out instead of the release, which is
    the same for all. A neighbour's answer has other constants. Submissions of these students are
    graded with theirs, so keep the folder and the course's seed. STUDENTS are in the gradebook:
    `nbgrader db student add` adds one.

    \b
    Example:
      dgkit teach personal . lab1 alice bob carol
    """
    from ..teach import course as courses
    from ..teach import variants

    with _wrong_input():
        for path in variants.write(course, lab, students, courses.read_seed(course)):
            click.echo(str(path))
    return 0


@teach.command(short_help="Run the visible tests of a lab.")
@click.argument("lab", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--all", "all_", is_flag=True, help="Show every test, not only the first that fails.")
@click.option("--hint", is_flag=True, help="Show the next of three hints for the first that fails.")
@click.option("--watch", is_flag=True, help="Run again each time that LAB is saved, until Ctrl-C.")
def check(lab: Path, all_: bool, hint: bool, watch: bool) -> int:
    """Run the visible tests of the notebook LAB and show the first that fails.

    The functions of the solution cells run in a separate process with limits of time and memory,
    but with your rights, as the notebook's tests do: check only your own notebook. Hidden tests use
    other data. Of a test that is right, it shows what that means, and the ratio of a bonus.

    The number of hints that were shown is recorded in hints.json beside LAB, and submitted with it.

    \b
    Examples:
      dgkit teach check find_the_bytes.ipynb
      dgkit teach check --hint find_the_bytes.ipynb
      dgkit teach check --watch find_the_bytes.ipynb
    """
    while watch:
        saved = _saved(lab)
        try:
            _check_lab(lab, all_, hint)
        except (click.UsageError, OSError, ValueError) as exc:  # perhaps it is being saved
            say(str(exc))
        while _saved(lab) == saved:
            time.sleep(_WATCH_S)
    return _check_lab(lab, all_, hint)


@contextlib.contextmanager
def _wrong_input() -> Iterator[None]:
    try:
        yield
    except ValueError as exc:
        raise click.UsageError(str(exc)) from exc


def _saved(lab: Path) -> int:
    """Return when a notebook was saved; 0 while it is being replaced."""
    try:
        return lab.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _check_lab(lab: Path, all_: bool, hint: bool) -> int:
    from ..teach import grader, hints, sandbox, student_notebook

    with _wrong_input():
        _, cells = student_notebook.load(lab)
    if not (tests := student_notebook.tests(cells)):
        raise click.UsageError(f"{lab} has no test cells: is it a lab?")
    grades = grader.grade_lab(
        student_notebook.solutions(cells),
        tests,
        seed="example",
        isolation=sandbox.Isolation("", note="your tests"),
    )
    ran = [made for made in grades.values() if made.cases or made.failure]
    wrong = [made for made in ran if not made.right]
    for name, made in grades.items():
        if made not in ran:
            click.echo(f"-      {name}: hidden tests only")
            continue
        click.echo(f"{'right' if made.right else 'WRONG'}  {name}")
        if made.right:
            _echo_indented([*made.shown, *made.bonus])
        elif all_ or made is wrong[0]:
            _echo_indented(made.feedback.splitlines()[1:])
            if hint and made is wrong[0] and (about := made.first_wrong):
                _echo_indented([hints.take(lab, about)])
    click.echo(f"{len(ran) - len(wrong)} of {len(ran)} tests are right")
    return 1 if wrong else 0


def _echo_indented(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(f"    {line}")


@teach.command(short_help="Check whether this machine can grade the labs.")
def doctor() -> int:
    """Check what grading needs: nbgrader, isolation of submissions, a compiler, a port.

    It also says whether other accounts of this machine can read the solutions. The exit code is 1
    if something is wrong. Run it as the user who will grade.

    \b
    Example:
      dgkit teach doctor
    """
    from ..teach.grading_requirements import checks

    found = list(checks())
    for check_ in found:
        click.echo(f"{check_.verdict:5}  {check_.what}")
        if check_.remedy:
            click.echo(f"       -> {check_.remedy}")
    return 1 if any(check_.verdict == "WRONG" for check_ in found) else 0


@teach.command(short_help="Print the leaderboard of a lab's bonus.")
@click.argument("course", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("lab")
def board(course: Path, lab: str) -> int:
    """Print the students' ratios in the bonus of LAB, best first, from graded notebooks in COURSE.

    A ratio compares the number of operations with that of a plain solution, so it does not depend
    on the machine. `nbgrader autograde` computes it.

    \b
    Example:
      dgkit teach board . lab1
    """
    from ..teach import course as courses

    with _wrong_input():
        rows = courses.ratios(course, lab)
    if not rows:
        raise click.UsageError(f"{course} has no graded notebook of {lab!r} with a bonus")
    for ratio, student in rows:
        click.echo(f"{ratio:8.2f}  {printable(student, kept='')}")
    return 0


def _memory(text: str | int) -> int:
    """Parse the memory limit of a student's server."""
    found = size(text)
    if found < _LEAST_MEMORY:
        raise click.BadParameter(
            f"{text!r} is too little: a server with one notebook needs {_LEAST_MEMORY >> 20}M"
        )
    return found


def _image(text: str) -> str:
    """Check the name of a container image; return it unchanged."""
    if not _IMAGE.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not the name of an image")
    return text


@teach.command(short_help="Print a configuration of JupyterHub for a class.")
@click.option(
    "--spawner",
    type=click.Choice(["systemd", "docker"]),
    default="systemd",
    help="What runs and limits a student's server: a systemd unit or a Docker container.",
)
@click.option(
    "--students", type=integer(1, 10_000), default="20", metavar="N",
    help="Most servers that run at the same time.",
)  # fmt: skip
@click.option(
    "--memory", type=_memory, default="1G", metavar="SIZE",
    help="Memory limit of a student: the server, its kernels and their software DPUs.",
)  # fmt: skip
@click.option(
    "--cpus", type=duration(0.1, 1024), default="1", metavar="N",
    help="CPU limit of a student: CPU seconds per second, that is, cores.",
)  # fmt: skip
@click.option(
    "--processes", type=integer(64, 100_000), default="256", metavar="N",
    help="Most processes and threads of a student.",
)  # fmt: skip
@click.option(
    "--sockets", type=integer(256, 1_000_000), default="1024", metavar="N",
    help="Most sockets and other open files of a process.",
)  # fmt: skip
@click.option(
    "--image", type=_image, default="dgkit-class", metavar="NAME",
    help="Container image, for --spawner docker.",
)  # fmt: skip
def hub(
    spawner: str, students: int, memory: int, cpus: float, processes: int, sockets: int, image: str
) -> int:
    """Print a jupyterhub_config.py for a class with limits of memory, CPU, processes and sockets.

    Each student has a server that the spawner limits. The beginning of the file says what to
    install: JupyterHub, its spawner, and configurable-http-proxy, which needs Node. (This command
    itself needs none of them.) The hub listens on 127.0.0.1:8000 until you give it a certificate.

    \b
    Examples:
      dgkit teach hub > jupyterhub_config.py
      dgkit teach hub --students 40 --memory 2G --cpus 0.5 > jupyterhub_config.py
      dgkit teach hub --spawner docker > jupyterhub_config.py
    """
    from ..teach import hub as hubs

    limits = hubs.Limits(memory, cpus, processes, sockets)
    click.echo(hubs.configuration(spawner, limits, students=students, image=image), nl=False)
    return 0
