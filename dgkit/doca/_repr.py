"""How DOCA's objects look in a notebook: one card, which says whose they are."""

from __future__ import annotations

from ..html_cards import Html, badge, card
from . import _library

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["shown"]


def shown(title: str, rows: Iterable[tuple[str, object]], *, body: str = "") -> Html:
    """A card with the library's label, which a reader cannot miss where it is software."""
    software = _library.library().kind == "softdoca"
    return card(title, rows, badge=badge(_library.label(), warn=software), body=body)
