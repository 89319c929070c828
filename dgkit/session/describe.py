# SPDX-License-Identifier: Apache-2.0
"""Descriptions of a session for repr, notebooks and scripts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ..dma import cpus
from ..errors import PeerError
from ..report import Machine
from ..types import provider_label
from ..wire.host_id import host_name, process_state

if TYPE_CHECKING:
    from ..dma import Device
    from ..wire.connection import Connection
    from ..wire.messages import Welcome

Info = dict[str, Any]  # Session.info, or a side of it


def local_info(device: Device) -> Info:
    """Return this process's side of Session.info."""
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
        "emulated": False,  # each label of this process says so itself
    }


def agent_info(agent: Welcome) -> Info:
    """Return an agent's side of Session.info."""
    return {
        "pid": agent.pid, "machine": agent.machine, "cpus": agent.cpus,
        "provider": agent.provider, "why": agent.why, "spinning": agent.spinning,
        "inline_max": agent.inline_max, "engine": agent.engine, "max_memory": agent.max_memory,
        "emulated": agent.emulated,
    }  # fmt: skip


def state(link: Connection, closed: bool) -> str:
    """Return "closed", "lost" (the agent is gone), or "" for an open session."""
    if closed:
        return "closed"
    pid = link.peer_state.pid
    gone = bool(pid) and process_state(pid) == "gone"
    return "lost" if gone or link.dead is not None else ""


def line(info: Info, state: str) -> str:
    """Return one line with the DPU, the processes and the side of this process."""
    dpu, host = info["dpu"], info["host"]
    kind = _kind(dpu).replace(f", {dpu['provider']}", "")  # the line names the provider anyway
    role = "neither" if info["role"] == "neither" else f"the {info['role']}"
    limits = ", for control and inspection only" if info["no_dma"] else ""
    return (
        f"{kind} ({dpu['provider']}, pid {dpu['pid']}) with host (pid {host['pid']}), "
        f"this process is {role}{limits}{', ' if state else ''}{state}"
    )


def _kind(dpu: Info) -> str:
    return provider_label(dpu["provider"], dpu["emulated"]) if dpu["software"] else "DPU"


def html(info: Info, state: str) -> str:
    """Return a card with one row for each side."""
    from ..html_cards import card, provider_badge

    rows = []
    for name in ("host", "dpu"):
        side = info[name]
        where = ", this process" if info["role"] == name else ""
        engine = f"{side['provider']}, {side['engine']}" if side["engine"] else side["provider"]
        text = f"pid {side['pid']}{where}; {engine}; {side['machine']}, {side['cpus']} CPUs"
        rows.append((name, text))
    note = f"No DMA, for control and inspection only: {info['no_dma']}." if info["no_dma"] else ""
    note = f"The session is {state}." if state else note
    rows.append(("address", info["address"]))
    badge = provider_badge(info["dpu"]["provider"], info["dpu"]["emulated"])
    return card("dgkit session", rows, badge=badge, note=note)


def machine_of(fields: Mapping[str, object]) -> Machine:
    """Return the machine that an agent describes.

    Raises:
        PeerError: A field is missing, unknown, or of another type.
    """
    if unknown := sorted(set(fields) - {field.name for field in dataclasses.fields(Machine)}):
        raise PeerError(f"the other side describes its machine with unknown fields: {unknown[:9]}")
    try:
        return msgspec.convert(fields, Machine)
    except msgspec.ValidationError as exc:
        raise PeerError(f"the other side describes its machine wrongly: {exc}") from exc
