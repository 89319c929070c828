# SPDX-License-Identifier: Apache-2.0
"""Options of an agent, as `dgkit serve` and agent.serve() take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..memory.meminfo import total_bytes
from ..types import DEFAULT_PROVIDER
from ..wire.address import HEARTBEAT_S
from .agent_limits import CLIENTS, REGIONS, Limits, raise_descriptor_limit

if TYPE_CHECKING:
    from ..dma import FaultRule


@dataclass(frozen=True)
class ServeOptions:
    """Options of an agent: its side, its device, its address and its limits.

    Attributes:
        address: Address to listen at; None: a new socket in the runtime folder. tcp://HOST:0 takes
            a free port.
        role: "dpu" moves the bytes, "host" provides its memory.
        provider: How bytes move.
        gpu: Number of the GPU that copies, for the provider "cuda".
        pci: Address of the PCI function, for the providers "doca" and "softdoca".
        rdma: Name of the RDMA device, for the provider "verbs".
        rules: Faults to inject, for the provider "fault".
        keys: Name of the key pair, for tcp; "default" if None.
        max_memory: Bytes of host memory that clients may allocate; None: half of the machine's, or
            of the container's limit.
        max_clients: Clients at a time.
        max_regions: Regions of one client; fewer where file descriptors are short.
        max_client_memory: Bytes of host memory that one client may allocate; None: three quarters
            of `max_memory`.
        max_share: Percent of clients, regions, file descriptors, memory and subscriptions that one
            key or user may have. None: the user of an ipc:// address may have all; a key may have
            as much as each other allowed key, but at least a 16th.
        shared_telemetry: Whether a client sees the samples and totals of all clients; if false,
            only those that it caused.
        telemetry_port: Port for latency samples, over tcp://; 0: a free one.
        heartbeat: Seconds without a message after which either side of a tcp:// connection ends
            it; 0.6 to 30, more on a slow machine. Clients take it from the address.
    """

    address: str | None = None
    role: str = "dpu"
    provider: str = DEFAULT_PROVIDER
    gpu: int = 0
    pci: str | None = None
    rdma: str | None = None
    rules: Sequence[FaultRule] = ()
    keys: str | None = None
    max_memory: int | None = None
    max_clients: int = CLIENTS
    max_regions: int = REGIONS
    max_client_memory: int | None = None
    max_share: int | None = None
    shared_telemetry: bool = False
    telemetry_port: int = 0
    heartbeat: float = HEARTBEAT_S

    def __post_init__(self) -> None:
        if self.role not in ("dpu", "host"):
            raise ValueError(f"role is {self.role!r}; it must be 'dpu' or 'host'")
        if self.keys is not None and not (self.address or "").startswith("tcp://"):
            raise ValueError(f"keys is {self.keys!r}; it is for tcp:// addresses only: omit it")
        most = self.max_memory or default_memory()
        if self.max_client_memory is not None and self.max_client_memory > most:
            raise ValueError(
                f"max_client_memory is {self.max_client_memory:,} bytes; it must be at most "
                f"max_memory, which is {most:,}"
            )

    def limits(self) -> Limits:
        """Return the limits of the agent, after raising this process's limit of descriptors."""
        return Limits(
            self.max_memory or default_memory(), self.max_clients, self.max_regions,
            raise_descriptor_limit(), self.max_client_memory or 0, self.max_share or 0,
        )  # fmt: skip


def default_memory() -> int:
    """Return half of the memory that this process may use, in bytes: see `meminfo.total_bytes`."""
    return total_bytes() // 2
