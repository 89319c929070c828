"""Verdict on several cards of which one suffices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .. import finding
from ..finding import Finding, Verdict

__all__ = ["any_of"]

_SUFFICIENT = (Verdict.OK, Verdict.WARN)


def any_of(findings: Sequence[Finding], instead: str = "") -> Iterator[Finding]:
    """Yield the findings; if one card suffices, those of worse cards become not applicable.

    So no remedy reconfigures a card that is in use.

    Args:
        findings: One for each card.
        instead: Label of a card without a finding that suffices, "" if there is none.
    """
    verdicts = {card.verdict for card in findings}
    best = Verdict.OK if instead else next((v for v in _SUFFICIENT if v in verdicts), None)
    sufficient = instead or next((card.subject for card in findings if card.verdict is best), "")
    for card in findings:
        if best is None or card.verdict in (Verdict.NOT_APPLICABLE, Verdict.OK, best):
            yield card
        else:
            why = f"{sufficient} serves the goal; this card can stay as it is."
            yield finding.n_a(card.found, needed=card.needed, why=why, subject=card.subject)
