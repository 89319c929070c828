"""Several cards, of which one that fits will do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import finding
from ..finding import Finding, Verdict

__all__ = ["one_will_do"]

_FITS = (Verdict.OK, Verdict.WARN)


def one_will_do(found: Sequence[Finding], instead: str = "") -> Iterator[Finding]:
    """Each finding; where one card fits, those of the cards that fit less are not applicable.

    So that no remedy turns round a card that somebody uses. `instead`: a card that has no such
    finding, and fits.
    """
    there = {one.verdict for one in found}
    best = Verdict.OK if instead else next((one for one in _FITS if one in there), None)
    fitting = instead or next((one.subject for one in found if one.verdict is best), "")
    for one in found:
        if best is None or one.verdict in (Verdict.NOT_APPLICABLE, Verdict.OK, best):
            yield one
        else:
            why = f"{fitting} serves the goal, so this card may stay as it is."
            yield finding.n_a(one.found, needed=one.needed, why=why, subject=one.subject)
