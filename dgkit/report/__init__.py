"""Latency and bandwidth reports: the figures, what made them, and the floor beside them."""

from .bandwidth import BandwidthReport
from .base import FLOOR_MOVED
from .latency import LatencyReport
from .machine import Machine
from .samples import Histogram, Percentiles

__all__ = ["FLOOR_MOVED", "BandwidthReport", "Histogram", "LatencyReport", "Machine", "Percentiles"]
