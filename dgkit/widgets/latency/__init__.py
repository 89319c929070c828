"""Latencies live: what is kept of the samples, when a frame goes out, and its figures."""

from .latency import LatencyPlot

__all__ = ["LatencyPlot"]
