"""TransferPanel as a view of it uses it: its form, and the end of a run."""

from support.processes.waiting import until


def form(region, /, **fields):
    """What a view sends."""
    usual = {"op": "write", "region": region.id, "offset": "0", "size": "64", "kind": "text"}
    return usual | {"payload": "hello", "repeat": "1", "depth": "1"} | fields


def ended(panel, count=1):
    """The results that the views have when so many runs have ended."""
    until(lambda: len([run for run in panel.of("run") if run["ended"]]) >= count, "the run ended")
    return until(lambda: panel.of("results")[count - 1 :], "the results")[-1]


def start(panel, region, /, **fields):
    """Starts what the form says, and waits: the completions, the newest last."""
    before = len([run for run in panel.of("run") if run["ended"]])
    panel.ask("start", form=form(region, **fields))
    return ended(panel, before + 1)["completions"]
