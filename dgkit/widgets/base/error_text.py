# SPDX-License-Identifier: Apache-2.0
"""Errors as the panels show them: the text, a remedy, and the form field that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import errors

if TYPE_CHECKING:
    from ...session import Session

_HINTS: tuple[tuple[type[BaseException], str], ...] = (
    (errors.ClosedError, "Allocate another region, or open another session."),
    (errors.PeerTimeout, "The DPU's process is stopped or very busy: wait, or restart it."),
    (errors.PeerLost, "Run the cell that opened the session or the dashboard again."),
    (errors.PeerRefused, "`dgkit keys list` shows the keys known on this machine."),
    (errors.PeerError, "Install the same dgkit version on both sides."),
    (errors.BoundsError, "Use a smaller size or another offset."),
    (errors.AccessDenied, "Register the memory with access 'rw'."),
    (errors.RegionBusy, "Wait for the transfers that use it, then try again."),
    (errors.OutOfMemory, "Free a region, or request less memory."),
    (
        errors.DeviceUnavailable,
        "`dgkit doctor` shows what works on this machine and what does not.",
    ),
    (errors.Unsupported, "`dgkit info` shows what each provider supports."),
    (errors.TransferError, "See the completion's status: the region may be revoked or freed."),
)

RESTART = "Start the DPU again"  # label of a button
_AGAIN_HINT = (
    f"“{RESTART}” starts a new one. Regions of the host keep their bytes and names; memory of the "
    "lost DPU is gone."
)
_MAX_TEXT = 1000  # characters


def hint_for(error: BaseException) -> str:
    """Return a remedy for an error as one sentence.

    Returns:
        An empty string if the error's text already names a remedy, or if none is known.
    """
    if explained := getattr(error, "way_out", ""):  # names the doctor's check for this error
        return f"{explained}."
    text = str(error)
    if any(mark in text for mark in ("`", "dgkit.", "connect(", "access=")):
        return ""
    return next((hint for kind, hint in _HINTS if isinstance(error, kind)), "")


def explain(error: Exception, session: Session | None = None) -> dict[str, str]:
    """Describe an exception for a view.

    Args:
        session: The session of the panel.

    Returns:
        `kind` (class name), `text`, `hint` (the remedy, see `hint_for`) and `field` (of the form,
        see `page_input.for_field`); the last two are empty if there is none. If the view can start
        a lost DPU again, `restart` is the label of its button for that.
    """
    text = " ".join(str(getattr(error, "words", error)).split()) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    if isinstance(error, TypeError) and "argument" in text and "handler" not in text:
        text = f"invalid message to the panel: {text}"
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}..."
    text = text.encode(errors="backslashreplace").decode()  # a page gets no lone surrogates
    shown = {"kind": type(error).__name__, "text": text, "hint": hint_for(error)}
    shown["field"] = str(getattr(error, "field", ""))
    if isinstance(error, errors.PeerLost) and session is not None and session.restartable:
        shown |= {"hint": _AGAIN_HINT, "restart": RESTART}
    return shown
