"""The folder of programs that the stage `testbed` has built for aarch64."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def programs() -> Path:
    """Native tests for the DPU guest, which sees them as /run/share."""
    folder = ROOT / ".cache/testbed"
    assert list(folder.iterdir()), "tests/run testbed builds them"
    return folder
