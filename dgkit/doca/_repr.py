"""HTML card of a DOCA object, labelled with the library that it belongs to."""

from __future__ import annotations

from ..html_cards import Html, badge, card
from . import _library

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["library_card"]


def library_card(title: str, rows: Iterable[tuple[str, object]], *, body: str = "") -> Html:
    """Return a card with the library's label, highlighted where it is software."""
    software = _library.library().kind == "softdoca"
    return card(title, rows, badge=badge(_library.label(), warn=software), body=body)
