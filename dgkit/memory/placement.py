"""The argument `on` of `dgkit.empty`, and the choice that "auto" makes."""

from __future__ import annotations

__all__ = ["choose", "parse_on"]

_CHOICES = "'host', 'pinned', 'gpu', 'cuda:0' (or another number), 'auto' or 'bar' (of a testbed)"


def parse_on(on: str) -> tuple[str, int | None]:
    """Return the kind of place and the GPU's index (None if not given). Raises ValueError."""
    if isinstance(on, str):
        if on in ("host", "pinned", "gpu", "auto", "bar"):
            return on, None
        kind, _, number = on.partition(":")
        if kind == "cuda" and number.isascii() and number.isdecimal() and len(number) < 5:
            return "gpu", int(number)
    raise ValueError(f"on is {on!r}; it must be {_CHOICES}")


def choose(readonly_export: bool) -> tuple[str, str]:
    """Return what "auto" becomes, "gpu" or "host", and why."""
    if readonly_export:
        return "host", "host memory: readonly_export=True requires it"
    from .gpu_info import why_no_gpu

    why = why_no_gpu()
    return ("host", f"host memory: {why}") if why else ("gpu", "GPU memory: a GPU can be used here")
