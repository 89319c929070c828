"""Latency and bandwidth reports: the figures, what made them, and the floor beside them."""

from .bandwidth import BandwidthReport
from .base import FLOOR_MOVED
from .latency import LatencyReport
from .samples import Histogram, Percentiles
from .system_info import Machine

__all__ = ["FLOOR_MOVED", "BandwidthReport", "Histogram", "LatencyReport", "Machine", "Percentiles"]
