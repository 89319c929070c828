# SPDX-License-Identifier: Apache-2.0
"""A session that nobody closed: the end of the interpreter does, without noise."""

import subprocess
import sys

import pytest
from support.processes.agents import agent

USE = "r = s.empty(64, name='r'); m = s.monitor(r); t = s.start_write(r, bytes(64))"


def end_of(source, *options):
    """What a process that runs this leaves on stderr."""
    done = subprocess.run(
        [sys.executable, *options, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{source}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stderr


@pytest.mark.parametrize("use", ["", USE], ids=["idle", "in use"])
def test_it_ends_without_a_word_unless_warnings_are_asked_for(use):
    source = f"import dgkit; s = dgkit.connect(); {use}"
    assert end_of(source) == ""
    loud = end_of(source, "-W", "always::ResourceWarning:dgkit", "-W", "always::ResourceWarning")
    assert "<Session software DPU" in loud
    assert "Traceback" not in loud


def test_the_end_tells_an_agent_which_then_holds_nothing():
    import dgkit

    with agent() as running, dgkit.connect(running.address) as here:
        assert end_of(f"import dgkit; s = dgkit.connect({running.address!r}); {USE}") == ""
        stats = here.stats()
        assert (stats["clients"], stats["regions"], stats["monitors"]) == (1, 0, 0)


def test_what_was_closed_or_forked_is_not_warned_of():
    source = """
import dgkit, os
with dgkit.connect(): pass
s = dgkit.connect()
if os.fork() == 0: raise SystemExit
os.wait()
s.close()"""
    assert "not closed" not in end_of(source, "-W", "always::ResourceWarning")
