# SPDX-License-Identifier: Apache-2.0
"""Creation of an nbgrader course with the labs, which the distribution dgkit-labs has."""

from __future__ import annotations

import importlib.util
import re
import secrets
import shutil
from pathlib import Path

from ..files import filling, read_limited, write_new
from . import student_notebook, variants

SEED_FILE = "course_seed"
_SEED = re.compile("[0-9a-f]{32}")
_CONFIG = '''\
"""nbgrader's configuration of this course, made by `dgkit teach init`."""

import os
import sys
import warnings
from pathlib import Path

# nbgrader starts programs of its environment, even if that is not activated.
os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")

# nbgrader 0.9 over SQLAlchemy 2 warns about records that it adds one line later.
warnings.filterwarnings("ignore", "Object of type <Submitted")

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = {course!r}

# Of what students hand in, links are not collected: nbgrader itself follows them with your rights.
c.ExchangeFactory.collect = "dgkit.teach.collect.Collect"

# Submissions are run by dgkit's grader, not in a kernel: see notebooks/labs/README.md of dgkit.
c.Autograde.sanitize_preprocessors = [
    "nbgrader.preprocessors.ClearOutput",
    "dgkit.teach.autograde.Normalise",
    "nbgrader.preprocessors.DeduplicateIds",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
c.Autograde.autograde_preprocessors = [
    "dgkit.teach.autograde.Grader",
    "nbgrader.preprocessors.LimitOutput",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]

c.Grader.course = str(Path(__file__).resolve().parent)
c.Grader.max_bonus = 5.0  # most points of extra credit, if a lab has a bonus

# Limits of a submission: time of one call of a function, memory of its processes.
c.Grader.time_s = 10.0
c.Grader.memory_bytes = 2 << 30
# Grade even if neither another user nor bubblewrap can isolate submissions. They then run with
# your rights, and can access your files.
c.Grader.allow_not_isolated = False
'''


def labs_folder() -> Path:
    """Return the folder of the labs' sources: of the package dgkit-labs, or of the repository."""
    if (spec := importlib.util.find_spec("dgkit_labs")) and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)), "source").resolve()
    return Path(__file__).resolve().parents[2] / "notebooks/labs/source"


def init(course: Path, *, vary: bool = False) -> list[str]:
    """Create a course; return the names of its labs.

    Only the owner can read the folder, because it contains the solutions, the seed and the grades.

    Args:
        course: A folder that does not exist yet, or is empty.
        vary: Whether the labs get constants of this course.

    Raises:
        FileExistsError: The folder is not empty.
        FileNotFoundError: The labs are not installed, or the parent folder does not exist.
    """
    labs = labs_folder()
    if not labs.is_dir():
        raise FileNotFoundError(
            "the labs, with their solutions, are not in dgkit: in the folder of its sources, "
            "`pip install ./notebooks/labs`"
        )
    if course.exists():
        if not course.is_dir() or any(course.iterdir()):
            raise FileExistsError(f"{course} exists and is not empty: name a new folder")
        course.chmod(0o700)
    elif not course.parent.is_dir():
        raise FileNotFoundError(f"{course.parent} is no folder: make it first")
    try:
        with filling(course, 0o700) as part:
            shutil.copytree(labs, part / "source")
            shutil.copytree(labs.parent / "teaching", part / "teaching")
            seed = secrets.token_hex(16)
            if vary:
                _vary(part / "source", seed)
            config = _CONFIG.format(course=course.resolve().name)
            write_new(part / "nbgrader_config.py", config.encode())
            write_new(part / SEED_FILE, seed.encode() + b"\n", 0o600)
    except (OSError, shutil.Error) as exc:
        raise OSError(exc.errno, f"{exc}; nothing was made", str(course)) from exc
    return sorted(path.name for path in (course / "source").iterdir() if path.is_dir())


def _vary(source: Path, seed: str) -> None:
    """Give labs the constants of this course: in the task, in the solution and in the tests."""
    for path in source.glob("*/*.ipynb"):
        path.write_bytes(variants.copy(path, path.parent.name, seed))


def read_seed(course: Path) -> str:
    """Return the seed of a course.

    Raises:
        FileNotFoundError: The course has no seed.
        ValueError: The file has another content than `init` wrote: a shorter one can be guessed.
    """
    path = course / SEED_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: `dgkit teach init` writes it")
    seed = read_limited(path, 64).strip().decode("ascii", "replace")
    if not _SEED.fullmatch(seed):
        raise ValueError(f"{path} has not the 32 hexadecimal digits that `dgkit teach init` wrote")
    return seed


def hidden_folders(course: Path) -> tuple[str, ...]:
    """Return the folders that no submission may see: the course and the labs' sources."""
    return tuple(str(path) for path in (course.resolve(), labs_folder()) if path.is_dir())


def ratios(course: Path, lab: str) -> list[tuple[float, str]]:
    """Return ratio and student of each graded notebook of a lab with a bonus, best first.

    Raises:
        ValueError: A file is not a notebook.
    """
    found = []
    for path in (course / "autograded").glob(f"*/{lab}/*.ipynb"):
        metadata, _ = student_notebook.load(path)
        found += [(ratio, path.parts[-3]) for ratio in student_notebook.ratios(metadata)]
    return sorted(found, key=lambda row: (-row[0], row[1]))
