# SPDX-License-Identifier: Apache-2.0
"""Eight attackers for 15 s: nothing of an honest client fails. Its speed is judged by hand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safety.attackers import ATTACKS, judge, summary

SCRIPT = Path(__file__).with_name("attackers.py")


def part(p99, failures=()):
    return {"failures": list(failures), "latency_us": {"all": {"p99": p99}}}


DONE = {each.__name__: 1 for each in ATTACKS}


@pytest.mark.parametrize(
    ("attacked", "done", "bursts", "ok"),
    [
        (part(199.0), DONE, [], True),
        (part(201.0), DONE, [], False),
        (part(100.0) | {"agent_own_mib": 513}, DONE, [], False),
        (part(100.0, ["read: bytes differ"]), DONE, [], False),
        ({"failures": ["the agent ended with -6"]}, DONE, [], False),
        (part(100.0), DONE | {"storms": 0}, [], False),
        (part(100.0), DONE, ["the agent ended with 70"], False),
    ],
)
def test_the_verdict(attacked, done, bursts, ok):
    assert judge(part(100.0), attacked, done, bursts)["ok"] is ok


def test_the_p99_is_that_of_the_samples():
    assert summary([1000 * n for n in range(101)])["p99"] == 99.0


def test_nothing_of_an_honest_client_fails_beside_eight_attackers(tmp_path):
    told = tmp_path / "report.json"
    subprocess.run(
        [sys.executable, SCRIPT, "--minutes", "0.25", "--json", told], check=False, timeout=120
    )
    report = json.loads(told.read_text())
    assert not [each for each in report["failures"] if "descriptors" in each]
    assert not report["baseline"]["failures"]
    assert not report["attacked"]["failures"]
    assert report["attacked"]["latency_us"]["all"]["count"] > 10
    assert all(report["attempts"].values()), report["attempts"]
