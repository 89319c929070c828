"""Tests that need hardware. Marker `gpu`; `--require=gpu` makes a GPU that is not there a failure.

pytest tests/hardware --require=gpu
"""

import functools

import pytest

from dgkit import memory


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        action="append",
        default=[],
        choices=["gpu"],
        help="hardware that must be there: its tests fail where they would be skipped",
    )


@functools.cache
def why_no_gpu() -> str:
    """What dgkit itself says; a test double of the driver is no GPU."""
    why = memory.why_no_gpu()
    if not why and any("fake" in gpu.name for gpu in memory.gpus()):
        why = "the driver that is loaded is the tests' fake CUDA driver"
    return why


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None or not (why := why_no_gpu()):
        return
    if "gpu" in item.config.getoption("--require"):
        pytest.fail(f"a GPU is required: {why}", pytrace=False)
    pytest.skip(why)
