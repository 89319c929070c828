# SPDX-License-Identifier: Apache-2.0
"""Live heat map of a sweep over many pairs.

heatmap             HeatMap: follows a sweep, and sends its cells to the views, as a Bokeh figure
"""

from .heatmap import HeatMap

__all__ = ["HeatMap"]
