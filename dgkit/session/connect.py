"""connect(): one call from nothing to a session."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import LimitReached
from ..types import DOCA
from . import argument_checks

if TYPE_CHECKING:
    from ..dma import FaultRule
    from .session import Session
    from .spawn import SoftwareDpu

__all__ = ["connect"]

_TIMEOUT_S, _CUDA_START_S = 5.0, 30.0
_DESCRIPTORS = 32  # of a session when its first transfer is done, and some to spare


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
    """A session with the agent at `address`, or with a software DPU that it starts and owns.

    `address`: what `dgkit serve` prints: ipc:///PATH, or tcp://HOST:PORT?key=KEY (then `keys` names
    this side's key pair, "default" if None). `provider`, `rules` (FaultRule, for provider
    "fault"), `gpu` (for provider "cuda": the number of the GPU that copies) and `max_memory`
    (bytes the other side may allocate) are the started DPU's, or, where the agent is a host's,
    of this process, which then moves the bytes. With "doca" and "softdoca" both sides use DOCA,
    and `pci` is the address of this process's function (None: the first that can). `timeout`:
    seconds, for the start and for each plain request; None: 5, and 30 where the start is a
    GPU's, too. PeerLost: nobody listens. PeerRefused: keys. PeerVersion. PeerTimeout.
    DeviceUnavailable: the provider cannot be used. Unsupported: the agent is on another
    machine, and the provider does not reach so far.
    """
    slow = timeout is None and provider == "cuda"
    timeout = argument_checks.seconds("timeout", _TIMEOUT_S if timeout is None else timeout)
    argument_checks.text("provider", provider)
    argument_checks.text("keys", keys)
    moves = {
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
        return _open(address, moves, keys, timeout, None)
    return _with_software_dpu(moves, max_memory, _CUDA_START_S if slow else timeout, timeout)


def _check_descriptors() -> None:
    """LimitReached now: libzmq, which would meet the limit later, ends the process (epoll.cpp)."""
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
    moves: dict[str, Any], max_memory: int | None, start_s: float, timeout: float
) -> Session:
    from .spawn import SoftwareDpu

    dpu: SoftwareDpu = SoftwareDpu()
    try:
        from . import session  # noqa: F401 (while the other process imports its own)

        endpoint = dpu.listen(**moves, max_memory=max_memory, timeout=start_s)
        return _open(endpoint, moves, None, timeout, dpu)
    except BaseException:
        dpu.close()
        raise


def _lending(mover: str, pci: str | None) -> dict[str, Any]:
    """The device of the side that moves no bytes: where DOCA moves them, it exports the memory."""
    if mover in DOCA:
        return {"provider": mover, "pci": pci}
    if pci is not None:
        raise ValueError(f"pci={pci!r} is for a DPU that uses DOCA; the agent's uses {mover!r}")
    return {"provider": "soft"}


def _open(
    address: str,
    moves: dict[str, Any],
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
        welcome = greet(link, moves["provider"], timeout)
        by_agent = welcome.role == "dpu"
        device = Device(**(_lending(welcome.provider, moves["pci"]) if by_agent else moves))
        return Session(link, device, welcome, timeout, owned)
    except BaseException:
        link.close()
        raise
