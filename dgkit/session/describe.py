"""A session in words: for repr, for notebooks, for scripts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..dma import cpus
from ..wire.host_id import host_name, process_state

if TYPE_CHECKING:
    from ..dma import Device
    from .session import Session

__all__ = ["here", "html", "info", "line"]


def here(device: Device) -> dict[str, Any]:
    """What this process's side says of itself."""
    caps = device.caps
    return {
        "pid": os.getpid(),
        "machine": host_name(),
        "cpus": cpus(),
        "provider": device.provider,
        "why": dict(device.why),
        "spinning": caps.spin_ns > 0,
        "inline_max": caps.inline_max,
        "engine": caps.engine,
    }


def info(session: Session) -> dict[str, Any]:
    """`host` and `dpu` with what each says of itself, `address`, `role` of this process."""
    agent = session.agent
    ours = dict(session.here)
    theirs = {
        "pid": agent.pid, "machine": agent.machine, "cpus": agent.cpus,
        "provider": agent.provider, "why": agent.why, "spinning": agent.spinning,
        "inline_max": agent.inline_max, "engine": agent.engine, "max_memory": agent.max_memory,
    }  # fmt: skip
    host, dpu = (ours, theirs) if session.role == "host" else (theirs, ours)
    dpu["software"] = _label(dpu["provider"]) != "hardware"
    return {
        "address": str(session._link.address),
        "role": session.role,
        "owned": bool(session.owned_pid),
        "host": host,
        "dpu": dpu,
    }


def line(session: Session) -> str:
    """One line: which DPU, whose process, which side is here."""
    about = info(session)
    dpu, host = about["dpu"], about["host"]
    state = _state(session)
    kind = _kind(about).removesuffix(f", {dpu['provider']}")  # once is enough
    return (
        f"{kind} ({dpu['provider']}, pid {dpu['pid']}) with host (pid {host['pid']}), "
        f"this process is the {about['role']}{', ' if state else ''}{state}"
    )


def _label(provider: str) -> str:
    from ..html_cards import provider_label  # late: connect() must be quick

    return provider_label(provider)


def _kind(about: dict[str, Any]) -> str:
    return _label(about["dpu"]["provider"]) if about["dpu"]["software"] else "DPU"


def _state(session: Session) -> str:
    if session.closed:
        return "closed"
    pid = session._link.liveness.pid
    gone = bool(pid) and process_state(pid) == "gone"
    return "lost" if gone or session._link.dead is not None else ""


def html(session: Session) -> str:
    """A card with a row for each side."""
    from ..html_cards import card, provider_badge

    about = info(session)
    rows = []
    for side in ("host", "dpu"):
        one = about[side]
        here = ", this process" if about["role"] == side else ""
        by = f"{one['provider']}, {one['engine']}" if one["engine"] else one["provider"]
        text = f"pid {one['pid']}{here}; {by}; {one['machine']}, {one['cpus']} CPUs"
        rows.append((side, text))
    state = _state(session)
    note = f"The session is {state}." if state else ""
    rows.append(("address", about["address"]))
    return card("dgkit session", rows, badge=provider_badge(about["dpu"]["provider"]), note=note)
