# SPDX-License-Identifier: Apache-2.0
"""Signals that raise while coverage is measured: the tests of Ctrl-C run so, and must not hang."""

import os
import subprocess

import pytest
from support.processes.agents import python

pytest.importorskip("coverage")

# A handler that raises at random places of a program that does little but begin functions.
INTERRUPTED = """
import coverage, signal
measured = coverage.Coverage(data_file=None, include=["*/many.py"], config_file=False)
measured.start()
{mend}
import many

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
for number in range(1000):
    try:
        signal.setitimer(signal.ITIMER_REAL, 20e-6 + number % 10 * 1e-6)
        while True:
            many.functions()
    except KeyboardInterrupt:
        pass
many.last()
measured.stop()
print(sorted(measured.get_data().lines(many.__file__)), flush=True)
"""
MANY = """\
def functions():
    for _ in range(100):
        one()
def one(): pass
def last():
    return 6
"""


def test_a_signal_that_raises_leaves_the_lock_of_coverage_free(tmp_path):
    (tmp_path / "many.py").write_text(MANY)
    source = INTERRUPTED.format(
        mend="from support.processes import coverage_lock; coverage_lock.mend()"
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    done = subprocess.run(
        python(f"sys.path.insert(0, {str(tmp_path)!r})\n{source}"),
        env=kept, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "[1, 2, 3, 4, 5, 6]\n", done.stderr
