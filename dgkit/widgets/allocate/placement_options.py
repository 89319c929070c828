"""Where memory can be allocated for a session, and why not elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import memory
from ...types import DOCA
from ...units import size_text

if TYPE_CHECKING:
    from ...session import Session

__all__ = ["places"]

_LOOKING = "dgkit is still looking for GPUs"
_NO_REACH = (
    "this session's DPU uses {provider!r}, which does not reach GPU memory: "
    "connect(provider='cuda')"
)


def places(session: Session, *, look: bool = True) -> list[dict[str, Any]]:
    """`value` (for `on`), `text`, and `why` it cannot be used ("" if it can).

    To look for GPUs may take a moment, the first time: without `look` those are not known yet.
    """
    here = session.role == "host"
    why = (memory.why_no_gpu() if look else _LOOKING) if here else ""  # the agent's: it will say
    found = [
        _place("host", "host" if here else "host, at the agent"),
        _place("dpu", "DPU, at the agent" if here else "DPU, here"),
        _place("pinned", "pinned host memory", why),
    ]
    reach = why
    if not why and session.dpu.provider not in {"cuda", *DOCA}:
        reach = _NO_REACH.format(provider=session.dpu.provider)
    return [*found, *_gpus(reach, why, here), _place("auto", "auto: a GPU, else host")]


def _place(value: str, text: str, why: str = "") -> dict[str, Any]:
    return {"value": value, "text": text, "why": why}


def _gpus(reach: str, why: str, here: bool) -> list[dict[str, Any]]:
    if why or not here:
        return [_place("gpu", "GPU" if here else "GPU, at the agent", reach)]
    return [
        _place(f"cuda:{gpu.index}", f"GPU {gpu.index}: {gpu.name}, {_sizes(gpu)}", reach)
        for gpu in memory.gpus()
    ]


def _sizes(gpu: Any) -> str:
    free = "" if gpu.free is None else f", {size_text(gpu.free)} free"
    return f"{size_text(gpu.total)}{free}"
