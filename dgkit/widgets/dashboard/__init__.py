"""The panels of one session together.

`dashboard`: the dashboard and the function that opens it.
"""

from .dashboard import Dashboard, dashboard

__all__ = ["Dashboard", "dashboard"]
