"""Bokeh's figures, with BokehJS from the installed package."""

from .figure import show

__all__ = ["show"]
