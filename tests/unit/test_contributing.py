# SPDX-License-Identifier: Apache-2.0
"""Paths, names and commands of .github/CONTRIBUTING.md: they exist, and they are understood."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.source import docs

ROOT = Path(__file__).resolve().parents[2]
PAGE, SECURITY = ROOT / ".github/CONTRIBUTING.md", ROOT / ".github/SECURITY-DETAILS.md"
TEXT = PAGE.read_text(encoding="utf-8")
NAMES = re.findall(r"`([\w./-]+\.(?:py|c|js))` `#?(\w+)`", TEXT)
RULES = re.findall(r"`([\w./-]+\.(?:py|c|h))`, `(\w+)`", TEXT)
COMMANDS = sorted(set(re.findall(r"`((?:CI=true )?tests/run[^`]*)`", TEXT)))
PYTEST = sorted(set(re.findall(r"`\.cache/venv/bin/pytest ([^`]*)`", TEXT)))
WALKS = re.findall(r"^### (One .*)$", TEXT, re.MULTILINE)


@pytest.mark.parametrize("page", [PAGE, SECURITY], ids=lambda page: page.name)
def test_each_path_exists_and_each_link_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    paths, links = docs.paths(text), docs.links(text)
    assert len(paths) > 10
    assert not [path for path in paths if not (ROOT / path).exists()]
    assert not [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize(("path", "name"), NAMES)
def test_each_name_of_a_walk_is_defined_in_its_file(path, name):
    text = (ROOT / path).read_text(encoding="utf-8")
    pattern = rf"^\s*(?:def|class) {name}\b|^[\w \*#]*\b{name}\("
    assert re.search(pattern, text, re.MULTILINE)


@pytest.mark.parametrize(("path", "name"), RULES)
def test_each_name_of_the_table_of_rules_is_in_its_file(path, name):
    assert re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8"))


def test_a_walk_has_at_most_ten_steps_and_returns_to_no_file():
    assert len(WALKS) == 2
    for part in TEXT.split("\n### ")[1:]:
        files = re.findall(r"^\d+\. `([^`]+)`", part, re.MULTILINE)
        assert 5 <= len(files) == len(set(files)) <= 10


def _stages() -> dict[str, str]:
    help_text = subprocess.run(
        [sys.executable, ROOT / "tests/run", "--help"], capture_output=True, text=True, check=True
    ).stdout
    stages = help_text.split("stages:\n")[1].split("groups:")[0]
    return dict(re.findall(r"^  (\w+) +(\S.*)$", stages, re.MULTILINE))


def test_the_table_has_each_stage_with_its_time():
    table = TEXT.split("<!-- stages -->")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", table, re.MULTILINE)
    assert [name for name, _ in rows] == list(_stages())


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_of_the_runner_is_understood(command):
    words = shlex.split(command.removeprefix("CI=true "))[1:]
    options = {"--quick", "--changed", "--coverage", "--help", "--install"}
    revisions = {"main"} if "--changed" in words else set()
    assert set(words) <= options | revisions | set(_stages())


@pytest.mark.parametrize("arguments", PYTEST)
def test_each_call_of_pytest_finds_its_tests(arguments):
    folder, *rest = shlex.split(arguments)
    assert (ROOT / folder).exists()
    if "--require=gpu" in rest:
        assert "--require" in (ROOT / folder / "conftest.py").read_text(encoding="utf-8")
    elif "-k" in rest:
        assert re.search(rf"def test_\w*{rest[-1]}", (ROOT / folder).read_text(encoding="utf-8"))
    else:
        assert rest == ["--approve"]
        assert "--approve" in (ROOT / "tests/conftest.py").read_text(encoding="utf-8")
