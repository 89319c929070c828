# SPDX-License-Identifier: Apache-2.0
"""Calls of TransferPanel as its view makes them: the form, a start, and the end of a run."""

from support.processes.waiting import until


def form(region, /, **fields):
    """Return the fields that a view sends."""
    usual = {"op": "write", "region": region.id, "offset": "0", "size": "64", "kind": "text"}
    return usual | {"payload": "hello", "repeat": "1", "depth": "1"} | fields


def ended(panel, count=1):
    """Wait until `count` runs have ended, and return the results."""
    until(lambda: len([run for run in panel.of("run") if run["ended"]]) >= count, "the run ended")
    return until(lambda: panel.of("results")[count - 1 :], "the results")[-1]


def start(panel, region, /, **fields):
    """Start the transfers of a form, wait, and return the completions, newest last."""
    before = len([run for run in panel.of("run") if run["ended"]])
    panel.ask("start", form=form(region, **fields))
    return ended(panel, before + 1)["completions"]
