# SPDX-License-Identifier: Apache-2.0
"""Latency and bandwidth reports: the figures, the machine, and the floor measured with them.

base.py              fields, floor and output formats that both reports share
latency_report.py    LatencyReport
bandwidth.py         BandwidthReport
posted.py            reports of operations that a GPU's kernels post
samples.py           percentiles and histograms
system_info.py       the machine that took the figures
byte_differences.py  Differences: where two regions, arrays or files differ
"""

from .bandwidth import BandwidthReport
from .base import FLOOR_MOVED, path_text
from .byte_differences import Differences, differences
from .latency_report import LatencyReport
from .posted import GPU_INITIATED, PostedLatencyReport, PostedRateReport, posted_label
from .samples import Histogram, Percentiles
from .system_info import Machine

__all__ = ["FLOOR_MOVED", "BandwidthReport", "Differences", "Histogram", "LatencyReport", "Machine"]
__all__ += ["Percentiles", "differences"]
__all__ += ["GPU_INITIATED", "PostedLatencyReport", "PostedRateReport", "path_text", "posted_label"]
