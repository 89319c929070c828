# SPDX-License-Identifier: Apache-2.0
"""Tests with the marker `more` run only with `tests/run labs --all`."""

import os

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "DGKIT_TESTS_ALL" in os.environ:
        return
    more = [item for item in items if item.get_closest_marker("more")]
    config.hook.pytest_deselected(items=more)
    items[:] = [item for item in items if item not in more]
