# SPDX-License-Identifier: Apache-2.0
"""No wait, time-out or sign of life depends on the wall clock, which support/clock_jumps.c sets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
WAITS = (
    "safety/test_agent_stalls.py::test_an_import_that_waits_delays_that_of_no_other_region",
    "safety/test_agent_stalls.py::test_an_agent_that_works_for_longer_than_the_timeout_is_not_silent",
    "unit/test_session_monitor.py::test_a_stopped_agent_is_a_timeout_and_it_goes_on_when_it_does",
    "unit/test_dma_fault.py::test_an_endless_delay_ends_as_timed_out",
)


@pytest.mark.timeout(200)
def test_waits_end_in_time_while_the_wall_clock_jumps(tmp_path):
    library = tmp_path / "clock_jumps.so"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", library, TESTS / "support/clock_jumps.c"], check=True)
    code = "import sys, time, pytest; readings = [time.time() for _ in range(4)]\n"
    code += "assert readings != sorted(readings); sys.exit(pytest.console_main())"
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", *(TESTS / each for each in WAITS)],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
