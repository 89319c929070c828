# SPDX-License-Identifier: Apache-2.0
"""Run of an experiment in a child process, under a time limit."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from ..collect.commands import Commands
from ..finding import Verdict
from .plan import Experiment

LIMIT_S = 30.0  # of one experiment: eight GPUs take seconds to start
# The module of dgkit.doctor is not executed: it imports all checks, which takes longer than most
# experiments.
_PROGRAM = """
import types
package = sys.modules["dgkit.doctor"] = types.ModuleType("dgkit.doctor")
package.__path__ = [sys.argv.pop(1)]
from dgkit.doctor.experiments.program import main
main(sys.argv[1:])
"""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an experiment.

    Attributes:
        experiment: The experiment.
        verdict: OK: it succeeded. FAIL: it failed, crashed or hung. UNKNOWN: it could not be run.
        said: What happened, one sentence.
        took_s: Duration, in seconds.
    """

    experiment: Experiment
    verdict: Verdict
    said: str
    took_s: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        known = self.experiment
        return {
            "experiment": known.name,
            "subject": known.subject,
            "does": known.does,
            "data_path": known.data_path,
            "verdict": _WORDS[self.verdict],
            "said": self.said,
            "took_s": round(self.took_s, 3),
        }


_WORDS = {Verdict.OK: "works", Verdict.FAIL: "fails", Verdict.UNKNOWN: "not run"}


class _Answer(msgspec.Struct):
    done: bool | None
    said: str


_VERDICTS = {True: Verdict.OK, False: Verdict.FAIL, None: Verdict.UNKNOWN}


def perform(experiment: Experiment, *, limit_s: float = LIMIT_S) -> Result:
    """Run an experiment in a child process, which is killed after `limit_s` seconds."""
    start = time.monotonic()
    program = f"import sys; sys.path[:] = {sys.path!r}{_PROGRAM}"
    folder = str(Path(__file__).parents[1])  # dgkit/doctor, which _PROGRAM takes from its arguments
    command = [sys.executable, "-c", program, folder, *experiment.query]
    commands = Commands()
    try:
        ran = commands.run(command, start + limit_s, limit_s=limit_s)
    finally:
        commands.close()
    if ran.fault == "late":
        verdict, said = Verdict.FAIL, f"no result within {limit_s:g} s; it was ended"
    elif ran.code < 0:
        verdict, said = Verdict.FAIL, f"a library crashed the process (signal {-ran.code})"
    else:
        verdict, said = _read(ran.text, ran.said or ran.why)
    took_s = time.monotonic() - start
    return Result(experiment=experiment, verdict=verdict, said=said, took_s=took_s)


def _read(output: str, errors: str) -> tuple[Verdict, str]:
    """Return verdict and sentence of an answer, its last line: libraries may print others."""
    try:
        last = output.strip().rpartition("\n")[2]
        answer = msgspec.json.decode(last, type=_Answer)
    except msgspec.DecodeError:
        return Verdict.UNKNOWN, f"the program failed: {errors.strip()[-300:] or 'no answer'}"
    return _VERDICTS[answer.done], answer.said
