# SPDX-License-Identifier: Apache-2.0
"""Pages of 64 KiB, as BlueField's Arm cores have since DOCA 3.2: see support/pages_64k.c."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SCRATCH = "test_no_measurement_changes_a_byte_of_the_region_and_its_report_names_scratch_memory"
KERNELS = (
    "test_a_kernel_puts_into_the_dpus_memory",
    "test_a_kernel_names_no_other_region",
)


@pytest.mark.timeout(300)
def test_memory_and_queues_have_whole_pages_of_the_system(pages_64k):
    """Also where the system's page is larger than the layouts' units of 4 KiB."""
    code = "import mmap, sys, pytest; assert mmap.PAGESIZE == 65536; "
    code += "sys.exit(pytest.console_main())"
    units = ("memory_bar", "memory_empty", "region_registration", "nic")
    done = subprocess.run(
        [
            sys.executable, "-c", code, "-q", *(TESTS / f"unit/test_{name}.py" for name in units),
            f"{TESTS}/unit/test_session_scratch.py::{SCRATCH}[host]",
            *(f"{TESTS}/programs/test_session_gpu_queue.py::{name}" for name in KERNELS),
        ],
        env=os.environ | {"LD_PRELOAD": str(pages_64k)},
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
