# SPDX-License-Identifier: Apache-2.0
"""Live latency plot.

latency      the panel: requests of its views and calls from a cell
live_measurement  start, switch, stop, frames
sweeps       the last sweep, and the one kept for comparison
size_sweep   one sweep over sizes
measurement  what to measure: the setting, the memory used, the monitor
run          one run: its configuration, its samples, its report
history      samples of a run: points over time, histogram, percentiles
view_model   the current run, the previous run, and the next frame
figures      the Bokeh figures
export       runs and sweeps as CSV, LaTeX, HTML and JSON

JavaScript: data (samples), draw (figures), parts (controls, table), latency.
"""

from .latency_panel import LatencyPlot

__all__ = ["LatencyPlot"]
