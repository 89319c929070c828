# SPDX-License-Identifier: Apache-2.0
"""Isolation of submissions, whatever is on the grader's search path."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support.processes.agents import python

from dgkit.teach import course, sandbox

HIDDEN = (str(course.labs_folder()),)
# Isolates in a process with one more entry of the search path; writes to /tmp in there, lists it.
USE = """
import json, os, subprocess
sys.path.append(sys.argv[1])
from dgkit.teach import sandbox
used = sandbox.isolation((sys.argv[2],))
code = "import os, tempfile; f = tempfile.TemporaryFile(dir='/tmp'); print(*os.listdir('/tmp'))"
command = [*used.prefix, sys.executable, "-I", "-c", code]
# coverage, which measures the tests' processes, cannot start in there
env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=env)
print(json.dumps([used.method, used.note, done.stdout.split(), done.stderr]))
"""


@pytest.mark.parametrize("entry", ["packages", "../packages", "missing", "", "/tmp", "/proc", "/"])
def test_each_entry_of_the_search_path_leaves_the_isolation_as_it_is(entry, tmp_path):
    (tmp_path / "packages").mkdir()
    folder = tmp_path / "here"
    (folder / "packages").mkdir(parents=True)
    with tempfile.NamedTemporaryFile(dir="/tmp") as outside:
        command = python(USE, entry, *HIDDEN)
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=100, check=False
        )
    assert done.returncode == 0, done.stderr
    method, note, listed, error = json.loads(done.stdout)
    assert method == sandbox.isolation(HIDDEN).method, note
    assert error == ""
    if method == "bubblewrap":
        assert Path(outside.name).name not in listed


def test_dgkit_below_a_folder_that_is_replaced_is_bound(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/tmp", "relative"])
    monkeypatch.setattr(sandbox, "__file__", "/tmp/dgkit/teach/sandbox.py")
    monkeypatch.setattr(Path, "exists", lambda _: True)
    words = sandbox._bubblewrap("bwrap", ())
    bound = {words[at + 1] for at, word in enumerate(words) if word == "--ro-bind"}
    assert "/tmp/dgkit" in bound
    assert bound.isdisjoint({"/tmp", "relative"})
