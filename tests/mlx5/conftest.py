# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of the software adapter."""

import tempfile

import pytest


@pytest.fixture
def home():
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder
