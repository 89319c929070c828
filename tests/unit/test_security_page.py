# SPDX-License-Identifier: Apache-2.0
"""The pages on security: their commands exist, and their limits are the code's."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.source import docs

from dgkit.cli import main
from dgkit.wire import messages

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / ".github" / name for name in ("SECURITY.md", "SECURITY-DETAILS.md")]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
COMMANDS = list(docs.commands(TEXT, "dgkit"))


def test_each_boundary_names_a_test():
    section = TEXT.partition("## What each boundary checks")[2].partition("\n\nFuzzers")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    heading, *boundaries = rows
    assert len(boundaries) > 15
    for row in boundaries:
        assert len(row) == len(heading), row[0]
        assert "`tests/" in row[-1], row[0]


def test_each_anchor_is_a_heading():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert docs.anchors(text) <= docs.headings(text)


@pytest.mark.parametrize(("words", "options"), COMMANDS, ids=str)
def test_each_command_and_its_options_exist(words, options, capsys):
    assert main([*words, "--help"]) == 0
    help_text = capsys.readouterr().out
    assert all(option in help_text for option in options)


def test_each_stage_of_the_runner_exists():
    found = list(docs.commands(TEXT, "tests/run"))
    command = [sys.executable, ROOT / "tests/run", "--help"]
    help_text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found
    for words, options in found:
        assert all(re.search(rf"^  {word} ", help_text, re.MULTILINE) for word in words)
        assert all(option in help_text for option in options)


def test_the_limits_are_those_of_the_code():
    assert (messages.MAX_REQUEST, messages.MAX_REPLY) == (64 << 10, 160 << 10)
    assert messages.MAX_BLOCK == 40 << 10
    header = (ROOT / "native/dgkit.h").read_text(encoding="utf-8")
    assert re.search(r"DG_DESCRIPTOR_MAX\s*=?\s*768\b", header)
    header = (ROOT / "native/src/share/server.h").read_text(encoding="utf-8")
    assert re.search(r"CONTROL_SLOTS \(1u << 17\)", header)


def test_the_readme_links_to_it():
    assert "(.github/SECURITY.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_names_commands_to_check():
    assert len(COMMANDS) > 4
