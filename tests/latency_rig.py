"""A LatencyPlot that measures, for tests/widgets."""

from waiting import until


def taken(plot):
    return plot._stage.run.history.samples if plot._stage.run else 0


def measured(plot, samples=200):
    until(lambda: taken(plot) >= samples, f"{samples} samples", timeout=20)
    return plot
