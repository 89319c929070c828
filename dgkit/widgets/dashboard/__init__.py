"""The panels of one session together.

`dashboard`: the dashboard and the function that opens it.
`panels`: creation of the four panels, and the two sides of a session.
"""

from .dashboard import Dashboard, dashboard

__all__ = ["Dashboard", "dashboard"]
