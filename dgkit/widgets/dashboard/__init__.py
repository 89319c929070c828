"""The four panels together, and which DPU they look at."""

from .dashboard import Dashboard, dashboard

__all__ = ["Dashboard", "dashboard"]
