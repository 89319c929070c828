"""What to do about an error, for a person who clicked."""

from __future__ import annotations

from ... import errors

__all__ = ["hint_for"]

_WAYS_OUT: tuple[tuple[type[BaseException], str], ...] = (
    (errors.ClosedError, "Allocate another region, or open another session."),
    (errors.PeerTimeout, "The DPU's process is stopped or very busy: wait, or start it again."),
    (errors.PeerLost, "Start the DPU again, or connect again."),
    (errors.PeerRefused, "`dgkit keys list` shows the keys that are known here."),
    (errors.PeerError, "Install the same dgkit on both sides."),
    (errors.BoundsError, "Take a smaller size or another offset."),
    (errors.AccessDenied, "Register the memory with access 'rw'."),
    (errors.RegionBusy, "Wait for the transfers that use it, then try again."),
    (errors.OutOfMemory, "Free a region, or ask for less."),
    (errors.DeviceUnavailable, "`dgkit doctor` says what works here, and what blocks the rest."),
    (errors.Unsupported, "`dgkit info` says what each provider can do."),
    (errors.TransferError, "The completion's status says why: the region may be revoked or gone."),
)


def hint_for(error: BaseException) -> str:
    """One sentence, or nothing where the text says it already."""
    if explained := getattr(error, "way_out", ""):  # the check of the doctor that can say more
        return f"{explained}."
    text = str(error)
    if any(way in text for way in ("`", "dgkit.", "connect(", "access=")):
        return ""
    return next((words for kind, words in _WAYS_OUT if isinstance(error, kind)), "")
