# SPDX-License-Identifier: Apache-2.0
"""Resources that connect() opened for a session: connection, device and backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..types import provider_label
from .describe import agent_info

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dma import Device
    from ..wire.messages import Welcome
    from .backend import Backend
    from .spawn import SoftwareDpu


@dataclass(frozen=True, eq=False)
class SessionResources:
    """Resources of a session. Shared with the objects that it creates; Lifetime closes them.

    Attributes:
        role: This process's side: "host" or "dpu", or "neither" if both sides are agents.
        agent: Welcome of the agent; that of the DPU's agent if both sides are agents.
        other: Description of the other side for Session.info: this process, or the host's agent.
        device: Device of this process.
        dpu: Backend that moves the bytes.
        timeout: Seconds, for each plain request.
        owned: Software DPU that the session started, or None.
        reopen: Starts another software DPU, as connect() did; None if not owned.
    """

    role: str
    agent: Welcome
    other: dict[str, Any]
    device: Device
    dpu: Backend
    timeout: float
    owned: SoftwareDpu | None = None
    reopen: Callable[[], SessionResources] | None = None

    @property
    def owned_pid(self) -> int:
        """Return the process id of the software DPU that the session started; 0 if none."""
        return self.owned.pid if self.owned is not None else 0

    @property
    def info(self) -> dict[str, Any]:
        """Return Session.info."""
        other, remote = dict(self.other), agent_info(self.agent)
        host, dpu = (remote, other) if self.role == "dpu" else (other, remote)
        dpu["software"] = provider_label(dpu["provider"]) != "hardware"
        no_dma = self.dpu.no_dma
        about: dict[str, Any] = {"address": str(self.dpu.link.address), "role": self.role}
        about |= {"owned": self.owned is not None, "no_dma": str(no_dma.strerror) if no_dma else ""}
        return about | {"host": host, "dpu": dpu}
