# SPDX-License-Identifier: Apache-2.0
"""The panels' pure functions in Node: tests/widgets/js."""

from pathlib import Path

from support.jupyter.node import run_node


def test_the_tests_of_the_modules_pass():
    files = sorted(Path(__file__).with_name("js").glob("*.test.js"))
    assert files
    assert "# fail 0" in run_node("--test", "--test-reporter=tap", *map(str, files))
