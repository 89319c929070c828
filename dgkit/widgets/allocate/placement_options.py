"""Places where memory of a session can be allocated, with the reason for unavailable ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import memory
from ...types import OWN_EXPORT
from ...units import size_text

if TYPE_CHECKING:
    from ...session import Session

_PROBING = "dgkit is still detecting GPUs"
_NO_GPU_ACCESS = (
    "the provider {provider!r} of this session's DPU cannot access GPU memory: "
    "use connect(provider='cuda')"
)


def placement_options(session: Session, *, probe: bool = True) -> list[dict[str, Any]]:
    """Return the places where memory can be allocated.

    Args:
        session: The session.
        probe: Detect GPUs, which takes a moment the first time. Without it, GPU memory is listed
            as unavailable.

    Returns:
        For each place its `value` (of the argument `on`), `text`, and `why` it is unavailable (""
        if it is available).
    """
    on_host = session.role == "host"
    why = (memory.why_no_gpu() if probe else _PROBING) if on_host else ""  # the agent decides
    options = [
        _option("host", "host" if on_host else "host, at the agent"),
        _option("dpu", "DPU, this process" if session.role == "dpu" else "DPU, at the agent"),
        _option("pinned", "pinned host memory", why),
    ]
    gpu_why = why
    if not why and session.dpu.provider not in {"cuda", *OWN_EXPORT}:
        gpu_why = _NO_GPU_ACCESS.format(provider=session.dpu.provider)
    return [*options, *_gpus(gpu_why, why, on_host), _option("auto", "auto: a GPU, else host")]


def _option(value: str, text: str, why: str = "") -> dict[str, Any]:
    return {"value": value, "text": text, "why": why}


def _gpus(gpu_why: str, why: str, on_host: bool) -> list[dict[str, Any]]:
    if why or not on_host:
        return [_option("gpu", "GPU" if on_host else "GPU, at the agent", gpu_why)]
    return [
        _option(f"cuda:{gpu.index}", f"GPU {gpu.index}: {gpu.name}, {_sizes(gpu)}", gpu_why)
        for gpu in memory.gpus()
    ]


def _sizes(gpu: Any) -> str:
    free = "" if gpu.free is None else f", {size_text(gpu.free)} free"
    return f"{size_text(gpu.total)}{free}"
