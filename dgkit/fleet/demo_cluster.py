# SPDX-License-Identifier: Apache-2.0
"""Clusters for `dgkit fleet`: one at a scheduler's address, or workers on this machine."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Iterator
from functools import partial
from multiprocessing.resource_tracker import ensure_running
from typing import TYPE_CHECKING

from distributed import Client, LocalCluster
from distributed.utils import LoopRunner

from ..errors import PeerLost, PeerTimeout
from .cluster_checks import check_certificates, check_encryption
from .scheduler_calls import limited

if TYPE_CHECKING:
    from tornado.ioloop import IOLoop

_CONNECT_S = 10.0


@contextlib.contextmanager
def connected(address: str, *, insecure: bool = False) -> Iterator[Client]:
    """Connect a client to a running scheduler, with the certificates of Dask's configuration.

    Args:
        address: The scheduler's address.
        insecure: Accept an address that other machines can reach without TLS.

    Raises:
        PeerRefused: The address is exposed, or Dask's configuration lacks the certificates for it.
            Nothing was sent to it.
        ValueError: `address` is not a Dask address.
        PeerLost: Nothing answers at the address.
    """
    if not insecure:
        check_encryption([address])
    check_certificates(address)
    try:
        client = limited(partial(Client, address, timeout=_CONNECT_S), 2 * _CONNECT_S)
    except (OSError, PeerTimeout) as exc:
        raise PeerLost(
            f"no Dask scheduler answers at {address}: {exc}; `dask scheduler` starts one"
        ) from exc
    with client:
        yield client


@contextlib.contextmanager
def local(workers: int) -> Iterator[Client]:
    """Start a cluster of worker processes on this machine, over loopback; yield its client."""
    with (
        _quiet(),
        _loop_without_interrupts() as loop,
        LocalCluster(
            n_workers=workers, threads_per_worker=1, host="127.0.0.1",
            dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
            memory_limit=0, silence_logs=logging.ERROR, loop=loop,
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        yield client


@contextlib.contextmanager
def _loop_without_interrupts() -> Iterator[IOLoop]:
    """Start the event loop with SIGINT blocked, so that the main thread alone receives it.

    That closes the cluster, which ends its workers.
    """
    ensure_running()  # starting the resource tracker unblocks SIGINT, so do it before blocking
    runner = LoopRunner(asynchronous=False)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner.start()  # the loop's thread and its child processes inherit this thread's mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress Dask's log messages about the start and end of a cluster."""
    log = logging.getLogger("distributed")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
