# SPDX-License-Identifier: Apache-2.0
"""Measure how long a new instructor waits, from an empty environment to a released course.

    python tests/labs/set_up.py dgkit_dpu-*.whl [--json FILE]

It makes a virtual environment and a course in a temporary folder, with the commands of
notebooks/labs/README.md: pip install of the wheel with [teach] and of the labs (without pip's
cache), `dgkit teach init`, and for each lab nbgrader's generate_assignment and release_assignment.
What a person types and reads meanwhile is not measured.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # tests, for support

from support import json_lines

from dgkit.report import Machine

LABS = Path(__file__).resolve().parents[2] / "notebooks/labs"


def do(*words: str | Path, cwd: Path) -> None:
    """Run a command of the instructor, which must succeed."""
    path = f"{cwd.parent / 'venv/bin'}{os.pathsep}{os.environ['PATH']}"
    left_out = ("PYTHONPATH", "JUPYTER_PATH", "VIRTUAL_ENV")
    environ = {name: value for name, value in os.environ.items() if name not in left_out}
    environ |= {"PATH": path, "PIP_NO_CACHE_DIR": "1", "JUPYTER_DATA_DIR": str(cwd.parent / "data")}
    subprocess.run([*map(str, words)], cwd=cwd, env=environ, check=True, stdout=sys.stderr)


def set_up(folder: Path, wheel: Path) -> dict[str, float]:
    """Return the seconds of each step."""
    course, exchange = folder / "dma101", folder / "exchange"
    python = folder / "venv/bin/python"
    exchange.mkdir()
    exchange.chmod(0o777)
    course.mkdir()
    seconds = {}

    def step(name: str, *commands: tuple[str | Path, ...]) -> None:
        start = time.monotonic()
        for command in commands:
            do(*command, cwd=course)
        seconds[name] = round(time.monotonic() - start, 1)

    step("python -m venv", (sys.executable, "-m", "venv", folder / "venv"))
    step(
        "pip install",
        (python, "-m", "pip", "install", "--quiet", f"{wheel.resolve()}[teach]", LABS),
    )
    step("dgkit teach init", ("dgkit", "teach", "init", course))
    labs = sorted(path.name for path in (course / "source").iterdir())
    generate = ("nbgrader", "generate_assignment", "--create")
    release = ("nbgrader", "release_assignment", f"--Exchange.root={exchange}")
    step("generate_assignment, all labs", *((*generate, lab) for lab in labs))
    step("release_assignment, all labs", *((*release, lab) for lab in labs))
    handed_out = sorted(path.parent.name for path in exchange.glob("dma101/outbound/*/*.ipynb"))
    assert handed_out == labs
    return seconds


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        seconds = set_up(Path(folder), options.wheel)
    made = {
        "machine": asdict(Machine.here(cpus=os.cpu_count() or 1)),
        "python": sys.version,
        "command": " ".join(["python", *(Path(word).name for word in sys.argv)]),
        "load average of a minute before": load,
        "seconds": seconds,
        "seconds in all": round(sum(seconds.values()), 1),
    }
    print(json_lines.dumps(made))
    if options.json:
        json_lines.write(options.json, made)


if __name__ == "__main__":
    main()
