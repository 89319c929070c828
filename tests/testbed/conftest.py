# SPDX-License-Identifier: Apache-2.0
"""The folders of programs and of wheels that the stage `testbed` has built for aarch64."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def programs() -> Path:
    """Native tests for the DPU guest, which sees them as /run/share."""
    folder = ROOT / ".cache/testbed"
    assert list(folder.iterdir()), "tests/run testbed builds them"
    return folder


@pytest.fixture(scope="session")
def wheels() -> Path:
    """dgkit and its dependencies for the DPU guest."""
    folder = ROOT / ".cache/wheelhouse"
    assert list(folder.glob("dgkit_dpu-*")), "tests/run testbed builds it"
    return folder
