# SPDX-License-Identifier: Apache-2.0
"""Score of the doctor on published machines: how many it judges as their threads ended.

`python tests/doctor/score.py nccl` prints a table and the score of a folder of `published/`;
`--json` prints the same as JSON, `--all` the machines that pass, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # run as a program
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from doctor.published import FOLDERS, Published, load_all

from dgkit.doctor.data_paths import DataPath
from dgkit.doctor.diagnosis import Diagnosis
from dgkit.doctor.finding import Verdict
from dgkit.doctor.runner import diagnose

__all__ = ["judge", "main", "score"]

_ALARMS = (Verdict.WARN, Verdict.FAIL)
_WORDS = {
    Verdict.OK: "works",
    Verdict.WARN: "works",
    Verdict.FAIL: "blocked",
    Verdict.UNKNOWN: "unknown",
    Verdict.NOT_APPLICABLE: "unset",
}


def judge(machine: Published) -> dict[str, Any]:
    """Judge a machine; return what was said, and what is wrong with it."""
    found = diagnose([machine.machine()], goal=machine.goal, size=machine.size)
    problems = list(_problems(machine, found))
    return {
        "machine": machine.name,
        "works": machine.works,
        "goal": str(found.goal),
        "exit": found.exit_code,
        "lead": _lead(found),
        "right": not problems,
        "problems": problems,
    }


def _lead(found: Diagnosis) -> str:
    """Return the check that leads the page; "" if none warns or fails."""
    first = next(iter(found.findings), None)
    return first.check if first is not None and first.verdict in _ALARMS else ""


def _problems(machine: Published, found: Diagnosis) -> Any:
    if str(found.exit_code) not in machine.words("exit"):
        yield f"exit {found.exit_code} instead of {machine.head['exit']}"
    wanted = machine.choices("lead")
    if wanted and (_lead(found) or "-") not in wanted:
        yield f"{_lead(found) or 'nothing'} leads instead of {' or '.join(wanted)}"
    alarms = {one.check for one in found.findings if one.verdict in _ALARMS}
    if loud := [name for name in machine.words("quiet") if name in alarms]:
        yield f"alarm: {', '.join(loud)}"
    printed = [line for one in found.findings for line in _remedy(one)]
    for text in machine.choices("never"):
        if any(text in line for line in printed):
            yield f"remedy: {text}"
    paths = {path.name: path for path in found.data_paths}
    for name, _, word in (item.partition("=") for item in machine.words("paths")):
        said = _word(paths.get(name))
        if said != word:
            yield f"{name} {said} instead of {word}"


def _remedy(finding: Any) -> tuple[str, ...]:
    return tuple(finding.remedy) if finding.verdict is not Verdict.OK else ()


def _word(path: DataPath | None) -> str:
    return "absent" if path is None else _WORDS[path.verdict]


def score(folder: str) -> dict[str, Any]:
    """Judge all machines of a folder."""
    rows = [judge(machine) for machine in load_all(folder)]
    fine = [row for row in rows if row["works"]]
    return {
        "folder": folder,
        "machines": len(rows),
        "right": sum(row["right"] for row in rows),
        "working": len(fine),
        "false alarms": sum(
            row["exit"] == 1 or any(text.startswith("alarm") for text in row["problems"])
            for row in fine
        ),
        "harmful remedies": sum(
            any(text.startswith("remedy") for text in row["problems"]) for row in rows
        ),
        "rows": rows,
    }


def main(arguments: list[str]) -> int:
    """Print the score of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", choices=FOLDERS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--all", action="store_true", help="also the machines that are right")
    options = parser.parse_args(arguments)
    found = score(options.folder)
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    for row in found["rows"]:
        if options.all or not row["right"]:
            mark = "right" if row["right"] else "WRONG"
            kind = "works" if row["works"] else "fails"
            print(f"{mark}  {kind}  exit {row['exit']}  {row['machine']:<32} {row['lead']}")
            print("".join(f"         {text}\n" for text in row["problems"]), end="")
    names = ("right", "machines", "working", "false alarms", "harmful remedies")
    print(", ".join(f"{name}: {found[name]}" for name in names))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
