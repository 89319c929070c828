"""The driver of a real GPU refuses with the codes of the fake driver in tests/cuda."""

import pytest
from support.processes.children import run

# The context is lost at the end: nothing may be cleaned up.
PROGRAM = """
import os
from support.gpu import driver_cases as cases
print(cases.answers(cases.lose_by_kernel), flush=True)
os._exit(0)
"""


@pytest.mark.gpu
def test_the_driver_answers_as_the_fake_driver_does():
    from support.gpu.driver_cases import CODES

    assert eval(run(PROGRAM)) == CODES
