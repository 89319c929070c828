"""BokehView: Bokeh figures in a notebook, offline, with BokehJS from the installed package.

A saved notebook holds the description of the picture and none of its data. `show(figure)` is for
pictures; LatencyPlot has figures that move.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ..base.panel import Panel, Reply, handler
from . import bokehjs

if TYPE_CHECKING:
    from bokeh.document import Document
    from bokeh.model import Model

__all__ = ["BokehPanel", "BokehView", "drawn", "show"]


class BokehPanel(Panel):
    """A panel with figures: `figures(dark)` makes them.

    A view asks for the document, in its page's theme, and for BokehJS if the page has it not yet.
    """

    parts: ClassVar[tuple[str, ...]] = ("figure/bokehjs",)

    def state(self) -> dict[str, Any]:
        """Which BokehJS it needs: a page loads it while the kernel makes the figures."""
        return {"bokeh": bokehjs.version()}

    def document(self, dark: bool) -> Document:
        """The figures as a Bokeh document, for a dark page or a light one."""
        raise NotImplementedError

    @handler
    def figures(self, dark: bool) -> dict[str, Any]:
        """The document as JSON, and which BokehJS shows it."""
        return drawn(self.document(dark), dark)

    @handler
    def bokehjs(self, names: Sequence[str]) -> Reply:
        """`bokeh`, which is 1.3 MB, or parts of it, for a page that has them not."""
        return {}, bokehjs.scripts(names)


class BokehView(BokehPanel):
    """Any Bokeh models (figures, layouts) below each other.

    `alt` says in words what the picture shows: for who cannot see it, and in its place where no
    kernel runs. Without it the titles of the figures stand there. It draws what they have now:
    what changes later is seen by a new view.
    """

    name = "figure"
    title = "Figure"

    def __init__(self, *roots: Model, alt: str = "") -> None:
        if not roots:
            raise ValueError("there is no figure to show")
        from bokeh.document import Document

        self._document = roots[0].document or Document()
        for root in roots:
            if root.document is not self._document:
                self._document.add_root(root)
        self._roots = roots
        self.alt = alt or _titles(self._document)
        super().__init__()

    def document(self, dark: bool) -> Document:  # noqa: ARG002 (the snapshot has the theme)
        """As it was given."""
        return self._document

    def state(self) -> dict[str, Any]:
        """What the picture shows, and which of the document's roots are its own."""
        roots = [root.id for root in self._roots]
        return {**super().state(), "alt": self.alt, "roots": roots}

    def static_html(self) -> str:
        """The picture in words."""
        words = f"{self.alt} " if self.alt else ""
        return f"<p><em>Figure.</em> {html.escape(words)}Run the cell to see it.</p>"

    def static_text(self) -> str:
        """The same as plain text."""
        return f"<Figure: {self.alt}>" if self.alt else "<Figure>"


def drawn(document: Document, dark: bool) -> dict[str, Any]:
    """What a view needs to draw a document: its JSON, and which parts of BokehJS."""
    made = bokehjs.snapshot(document, dark=dark)
    return {"document": made, "components": bokehjs.components(document)}


def _titles(document: Document) -> str:
    from bokeh.models import Plot
    from bokeh.models.annotations import Title

    titles = [plot.title for plot in document.select({"type": Plot}) if isinstance(plot, Plot)]
    return "; ".join(str(title.text) for title in titles if isinstance(title, Title) and title.text)


def show(*figures: Model, alt: str = "") -> None:
    """Shows Bokeh figures under the cell, offline. `alt`: in words, what there is to see.

    The cell that is run again closes the views of its last run.
    """
    from IPython.display import display

    display(BokehView(*figures, alt=alt))
