"""connect(): open a session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import LimitReached
from ..types import DOCA, OWN_EXPORT
from . import argument_checks

if TYPE_CHECKING:
    from ..dma import Device, FaultRule
    from ..wire.connection import Connection
    from .backend import Backend
    from .session import Session
    from .spawn import SoftwareDpu

__all__ = ["connect"]

_TIMEOUT_S, _CUDA_START_S = 5.0, 30.0
_DESCRIPTORS = 32  # that a session has open after its first transfer, and some to spare


def connect(
    address: str | None = None,
    *,
    provider: str = "soft",
    rules: Sequence[FaultRule] = (),
    keys: str | None = None,
    timeout: float | None = None,
    max_memory: int | None = None,
    gpu: int = 0,
    pci: str | None = None,
) -> Session:
    """Open a session with the agent at `address`, or with a software DPU that it starts and owns.

    Args:
        address: What `dgkit serve` prints: ipc:///PATH, or tcp://HOST:PORT?key=KEY. None: start a
            software DPU. The arguments from `provider` to `max_memory` are those of the software
            DPU, or, if the agent is a host's, of this process, which then moves the bytes.
        provider: How bytes move. With "verbs", "doca" and "softdoca" both sides use it.
        rules: Faults to inject, for the provider "fault".
        keys: Name of this side's key pair, for tcp; "default" if None.
        timeout: Seconds, for the start and for each plain request. None: 5, but 30 for the start
            if that includes a GPU's.
        max_memory: Bytes that the other side may allocate.
        gpu: Number of the GPU that copies, for the provider "cuda".
        pci: Address of this process's PCI function, for DOCA; None: the first usable one.

    Raises:
        PeerLost: Nothing listens at the address.
        PeerRefused: The keys do not match.
        PeerVersion: The agent speaks another version of the protocol.
        PeerTimeout: The agent did not answer in time.
        DeviceUnavailable: The provider cannot be used.
        Unsupported: The agent is on another machine, which the provider does not reach.
    """
    slow = timeout is None and provider == "cuda"
    timeout = argument_checks.seconds("timeout", _TIMEOUT_S if timeout is None else timeout)
    argument_checks.text("provider", provider)
    argument_checks.text("keys", keys)
    mover = {
        "provider": provider,
        "rules": argument_checks.fault_rules(rules),
        "gpu": argument_checks.within("gpu", gpu, 0, (1 << 32) - 1),
        "pci": pci,
    }
    argument_checks.text("pci", pci)
    if max_memory is not None:
        max_memory = argument_checks.within("max_memory", max_memory, 1, (1 << 63) - 1)
    if gpu and provider not in ("cuda", "fault"):
        raise ValueError(f"gpu={gpu!r} is for the provider 'cuda', not for {provider!r}")
    if pci is not None and address is None and provider not in DOCA:
        raise ValueError(f"pci={pci!r} is for 'doca' and 'softdoca', not for {provider!r}")
    _check_descriptors()
    if address is not None:
        return _open(address, mover, keys, timeout, None)
    return _with_software_dpu(mover, max_memory, _CUDA_START_S if slow else timeout, timeout)


def _check_descriptors() -> None:
    """Raise LimitReached if too few descriptors are left.

    libzmq, which would reach the limit later, ends the process then (epoll.cpp).
    """
    taken: list[int] = []
    try:
        while len(taken) < _DESCRIPTORS:
            taken.append(os.eventfd(0, os.EFD_CLOEXEC))
    except OSError as exc:
        raise LimitReached(
            exc.errno,
            f"a session needs {_DESCRIPTORS} descriptors and {len(taken)} are left: close some, or "
            "raise the limit (`ulimit -n`)",
        ) from exc
    finally:
        for fd in taken:
            os.close(fd)


def _with_software_dpu(
    mover: dict[str, Any], max_memory: int | None, start_s: float, timeout: float
) -> Session:
    from .spawn import SoftwareDpu

    dpu: SoftwareDpu = SoftwareDpu()
    try:
        from . import remote_dpu, session  # noqa: F401 (imported while the other process starts)

        endpoint = dpu.listen(**mover, max_memory=max_memory, timeout=start_s)
        return _open(endpoint, mover, None, timeout, dpu)
    except BaseException:
        dpu.close()
        raise


def _lender(provider: str, pci: str | None) -> dict[str, Any]:
    """Return the options of the device that lends memory to a DPU with that provider.

    Where DOCA or RDMA moves the bytes, it also exports the memory.
    """
    if provider in OWN_EXPORT:
        return {"provider": provider, "pci": pci}
    if pci is not None:
        raise ValueError(f"pci={pci!r} is for a DPU that uses DOCA; the agent's uses {provider!r}")
    return {"provider": "soft"}


def _open(
    address: str,
    mover: dict[str, Any],
    keys: str | None,
    timeout: float,
    owned: SoftwareDpu | None,
) -> Session:
    from ..dma import Device
    from ..wire.address import parse
    from ..wire.connection import Connection
    from .handshake import greet, identity
    from .session import Session

    where = parse(address)
    link = Connection(where, identity(where, keys))
    try:
        welcome = greet(link, mover["provider"], timeout)
        by_agent = welcome.role == "dpu"
        device = Device(**(_lender(welcome.provider, mover["pci"]) if by_agent else mover))
        backend = _backend(link, device, welcome.provider if by_agent else None, timeout)
        return Session(backend, device, welcome, timeout, owned)
    except BaseException:
        link.close()
        raise


def _backend(
    link: Connection, device: Device, remote_provider: str | None, timeout: float
) -> Backend:
    """Return the DPU: the agent if it has `remote_provider`, else this process."""
    if remote_provider is not None:
        from .remote_dpu import RemoteDpu

        return RemoteDpu(link, device, remote_provider, timeout)
    from .local_dpu import LocalDpu

    return LocalDpu(link, device, timeout)
