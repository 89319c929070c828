# SPDX-License-Identifier: Apache-2.0
"""Programs in the two guests find each other: addresses of agents, and shared descriptors.

Both guests see one folder of the testbed, in which each small file has one writer.
guest_service.py sets the environment variables that say which guest this is, and where the folder
is.
"""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..errors import DescriptorError, PeerLost, TestbedError
from ..files import read_limited
from ..wire import keys
from ..wire.address import Address, parse
from ..wire.essential import essential_thread
from .guest import ADDRESSES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..dma import Device, Region, RemoteRegion
    from ..report import LatencyReport
    from ..session import Session
    from ..session.session_region import SessionRegion

_OTHER = {"host": "dpu", "dpu": "host"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST = 1 << 14  # bytes of a file: a descriptor has at most 768
_POLL_S = 0.1
WAIT_S = 120.0  # an emulated guest is slow
T = TypeVar("T")


def guest() -> str:
    """Return the name of the guest in which this process runs: host or dpu.

    Raises:
        TestbedError: It runs in neither.
    """
    name = os.environ.get("DGKIT_GUEST", "")
    if name not in ADDRESSES:
        raise TestbedError(
            "this machine is no guest of a testbed: run this in one (`dgkit testbed up --lab`), or "
            "use dgkit.testbed.running().session() from outside"
        )
    return name


def connect() -> Session:
    """Open a session with the agent of the other guest.

    In the host guest this process owns the memory, and the agent on the Arm cores moves the bytes;
    in the DPU guest this process moves them. No key has to be exchanged. Errors are those of
    dgkit.connect().

    Raises:
        TestbedError: This process runs in no guest, or no agent runs in the other one.
    """
    from ..session import connect

    other = _OTHER[guest()]
    address = read("agent", other, WAIT_S, f"no agent runs in the {other} guest")
    return connect(address.decode(), provider="verbs")


def share(name: str, region: Region | SessionRegion) -> None:
    """Pass a region to the other guest, whose program imports it by receive(name).

    Args:
        name: Up to 64 letters, digits, `_` and `-`. A second region replaces the first.
        region: An open region of a Device or of a session.

    Raises:
        ValueError: The name is not such a name.
        TestbedError: This process runs in no guest.
    """
    guest()
    token = region.token if hasattr(region, "token") else region.export()
    write("region", name, token)


def receive(name: str, device: Device, *, timeout: float = WAIT_S) -> RemoteRegion:
    """Import the region that share(name) of either guest gives; wait for it.

    Args:
        name: As for share().
        device: Device with the provider that reaches it: "verbs", or "soft" for memory in the BAR.
        timeout: Seconds.

    Raises:
        TestbedError: There was none in that time; or this process runs in no guest.
        DescriptorError, PeerLost: What was shared, and is still, has been closed.
        ValueError: The name cannot be one of share()'s.
    """
    guest()
    return latest("region", name, timeout, f"nothing was shared as {name!r}", device.import_region)


def latency(
    remote: RemoteRegion, size: int = 64, op: str = "read", count: int = 1000
) -> LatencyReport:
    """Measure the latency of transfers with a region that was received, as Session.latency().

    Args:
        remote: The region; a write changes its first bytes.
        size: Bytes of each transfer.
        op: "read" or "write", seen from this guest.
        count: Transfers.

    Raises:
        BoundsError: The region is smaller.
        TransferError: A transfer failed.
    """
    from ..session.session_reports import latency_of_import

    return latency_of_import(remote, size=size, op=op, count=count)


def latest(kind: str, name: str, timeout: float, absent: str, use: Callable[[bytes], T]) -> T:
    """Return `use(content)` of a file; if the content is outdated, wait for the next version.

    Raises:
        TestbedError: There was none in `timeout` seconds; `absent` says what that means.
        DescriptorError, PeerLost: It is of a process that has ended, or of a closed region.
    """
    deadline = time.monotonic() + timeout
    while True:
        content = read(kind, name, deadline - time.monotonic(), absent)
        try:
            return use(content)
        except (DescriptorError, PeerLost):
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)


def announce(port: int, heartbeat: float) -> None:
    """Tell the other guest the address of this guest's agent, and allow both guests' programs.

    Args:
        heartbeat: Its interval in seconds.
    """
    me, own = guest(), keys.load().public
    keys.allow(own, me)
    write("agent", me, str(Address(f"tcp://{ADDRESSES[me]}:{port}", own, heartbeat)).encode())
    essential_thread("dgkit-pair", lambda: _allow(_OTHER[me])).start()


def _allow(other: str) -> None:
    address = read("agent", other, float("inf"), "")
    keys.allow(parse(address.decode()).key, other)


def write(kind: str, name: str, content: bytes) -> None:
    """Write a small file that both guests see, at once or not at all.

    Raises:
        ValueError: The name is not one of 1 to 64 letters, digits, _ and -.
    """
    path = _path(kind, name)
    part = path.with_name(f".{guest()}.{os.getpid()}.{threading.get_ident()}")
    part.write_bytes(content)
    part.replace(path)


def read(kind: str, name: str, timeout: float, absent: str) -> bytes:
    """Return the content of a file; wait for it.

    Raises:
        TestbedError: There was none in `timeout` seconds; `absent` says what that means. Or it is
            no small file, such as a FIFO, at which a program would wait.
        ValueError: As write().
    """
    path = _path(kind, name)
    deadline = time.monotonic() + timeout
    while True:
        try:
            return read_limited(path, _MOST)
        except FileNotFoundError:
            if time.monotonic() > deadline:
                raise TestbedError(absent) from None
        except (OSError, ValueError) as error:
            raise TestbedError(f"the other guest's {path.name} cannot be read: {error}") from error
        time.sleep(_POLL_S)


def _path(kind: str, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise ValueError(f"name must be 1 to 64 letters, digits, _ and -, not {name!r}")
    return Path(os.environ["DGKIT_EXCHANGE"], f"{kind}.{name}")
