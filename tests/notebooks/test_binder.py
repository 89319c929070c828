# SPDX-License-Identifier: Apache-2.0
"""The files by which Binder builds its image: jupyter-repo2docker --no-build reads them, too."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BINDER = ROOT / "binder"
# Python 3.10 has no tomllib: two lists of pyproject.toml are found by what they look like.
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def needs(name):
    """A list of requirements in pyproject.toml."""
    (found,) = re.findall(rf"^{name} = \[(.*?)\]$", PROJECT, re.DOTALL | re.MULTILINE)
    return set(re.findall(r'"([^"]+)"', found))


def lines(name):
    """What a file says, without its comments."""
    text = (BINDER / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_it_installs_what_dgkit_and_its_notebooks_need_and_nothing_for_a_gpu():
    assert set(lines("requirements.txt")) == needs("dependencies") | needs("lab") | needs("fleet")


def test_its_python_is_one_that_dgkit_supports():
    (python,) = lines("runtime.txt")
    wanted = re.search(r'requires-python = ">=3\.(\d+)"', PROJECT)
    assert int(re.fullmatch(r"python-3\.(\d+)", python)[1]) >= int(wanted[1])


def test_its_packages_of_the_system_are_one_name_a_line():
    assert "gcc" in lines("apt.txt")
    assert [name for name in lines("apt.txt") if not re.fullmatch(r"[a-z0-9.+-]+", name)] == []


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_its_scripts_are_scripts_that_can_be_run(name):
    script = BINDER / name
    assert script.read_text(encoding="utf-8").startswith("#!/bin/bash\n")
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)


def test_the_clone_itself_is_installed():
    wanted = "pip install --no-cache-dir '.[lab,fleet]'"
    assert any(line.endswith(wanted) for line in lines("postBuild"))


def test_start_goes_on_to_what_it_was_given(tmp_path):
    assert lines("start")[-1] == 'exec "$@"'
    command = [BINDER / "start", "printf", "%s|", "a b", "c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "a b|c|"


def test_no_registry_is_named():
    texts = [path.read_text(encoding="utf-8") for path in BINDER.iterdir()]
    assert [text for text in texts if re.search(r"https?://|index-url|find-links", text)] == []
