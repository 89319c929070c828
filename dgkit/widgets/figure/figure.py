# SPDX-License-Identifier: Apache-2.0
"""BokehView: Bokeh figures in a notebook, offline, with BokehJS from the installed package.

A saved notebook contains a picture of the figure and its text alternative, and its data only where
the state of widgets is saved, too. `show(figure)` is for static figures; LatencyPlot has live ones.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

import traitlets

from ..base.panel import Panel, handler
from . import bokehjs

if TYPE_CHECKING:
    from bokeh.document import Document
    from bokeh.model import Model

    from ..base.page_input import Json, Reply

_MAX_SAVED = 1 << 20  # most characters of figures in the widget state, which every page loads


class BokehPanel(Panel):
    """A panel with figures, which `document(dark)` creates.

    A view requests the document in its page's theme, and BokehJS if the page has not loaded it yet.
    """

    has_figures = True

    def state(self) -> Json:
        """Return the version of BokehJS: a page loads it while the kernel creates the figures."""
        return {"bokeh": bokehjs.version()}

    def document(self, dark: bool) -> Document:
        """Return the figures as a Bokeh document, for a dark or a light page."""
        raise NotImplementedError

    @handler
    def figures(self, dark: bool) -> Json:
        """Return the document as JSON, and the parts of BokehJS that it needs."""
        return document_state(self.document(dark), dark)

    @handler
    def bokehjs(self, names: Sequence[str]) -> Reply:
        """Return the scripts that a page lacks: `bokeh` (1.3 MB) or parts of it."""
        return {}, bokehjs.scripts(names)


class BokehView(BokehPanel):
    """Bokeh models (figures, layouts), one below the other.

    Later changes of the models appear only in new views.

    Attributes:
        alt: Text alternative for screen readers and where no kernel runs; by default the titles of
            the figures.
    """

    name = "figure"
    title = "Figure"

    # For `inline`: the data that a page without a kernel needs to draw; empty if it is too large.
    saved = traitlets.Dict().tag(sync=True)

    def __init__(self, *roots: Model, alt: str = "") -> None:
        """Create the panel.

        Args:
            roots: The models.
            alt: Text alternative.

        Raises:
            ValueError: No model is given.
        """
        if not roots:
            raise ValueError("no figure to show: pass at least one")
        from bokeh.document import Document

        self._document = roots[0].document or Document()
        for root in roots:
            if root.document is not self._document:
                self._document.add_root(root)
        self._roots = roots
        self.alt = alt or _title_text(self._document)
        super().__init__()
        state = document_state(self._document, dark=False) | self.state()
        self.saved = state if len(state["document"]) <= _MAX_SAVED else {}

    def end(self) -> None:
        """Free the saved figures."""
        self.saved = {}

    def document(self, dark: bool) -> Document:  # noqa: ARG002 (the snapshot has the theme)
        """Return the document of the given models."""
        return self._document

    def state(self) -> Json:
        """Return the text alternative and the ids of this panel's roots in the document."""
        roots = [root.id for root in self._roots]
        return {**super().state(), "alt": self.alt, "roots": roots}

    def static_figures(self) -> list[Model]:
        """Return the figures."""
        return list(self._roots)

    def static_html(self) -> str:
        """Return the text alternative."""
        return f"<p><em>Figure.</em> {html.escape(self.alt)}</p>"

    def static_text(self) -> str:
        """Return the text alternative as plain text."""
        return f"<Figure: {self.alt}>" if self.alt else "<Figure>"


def document_state(document: Document, dark: bool) -> Json:
    """Return what a view needs to draw a document: its JSON, and the parts of BokehJS it needs."""
    content = bokehjs.snapshot(document, dark=dark)
    return {"document": content, "components": bokehjs.components(document)}


def _title_text(document: Document) -> str:
    from bokeh.models import Plot
    from bokeh.models.annotations import Title

    titles = [plot.title for plot in document.select({"type": Plot}) if isinstance(plot, Plot)]
    return "; ".join(str(title.text) for title in titles if isinstance(title, Title) and title.text)


def show(*figures: Model, alt: str = "") -> None:
    """Show Bokeh figures under the cell, offline; running the cell again closes them.

    Args:
        figures: The figures or layouts.
        alt: Text alternative; by default the titles of the figures.

    Raises:
        ValueError: No figure is given.
    """
    from IPython.display import display

    display(BokehView(*figures, alt=alt))
