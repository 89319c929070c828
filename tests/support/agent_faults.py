# SPDX-License-Identifier: Apache-2.0
"""Fault injector for an agent: an exception or a delay at any of its boundaries, on demand.

The agent runs on a thread of this process, so that a test can patch the functions it calls.
"""

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dgkit import errors, memory
from dgkit.agent import Agent, ServeOptions, server, telemetry_publisher
from dgkit.agent.client import Client
from dgkit.dma import Device, Region, RemoteRegion
from dgkit.dpu.copier import Copier
from dgkit.wire import keys
from dgkit.wire.listener import Listener

# Where a fault can be injected: the owner of each function, and its name.
BOUNDARIES = {
    "decoding": (server, "decode_request"),
    "hello": (server, "check_hello"),
    "welcome": (server, "welcome"),
    "encoding": (server, "encode"),
    "keys": (keys.AllowedKeys, "read"),
    "events": (Listener, "service"),
    "caller": (Listener, "caller"),
    "publisher": (Listener, "publisher"),
    "admission": (Client, "count_request"),
    "adding": (Client, "add"),
    "leaving": (Client, "start_release"),
    "free": (Client, "free"),
    "release": (Client, "_release"),
    "memory": (memory, "empty"),
    "register": (Device, "register"),
    "import": (Device, "import_region"),
    "unregister": (Region, "close"),
    "unimport": (RemoteRegion, "close"),
    "copy": (Copier, "copy_small"),
    "telemetry": (telemetry_publisher.Telemetry, "flush"),
    "thread": (threading.Thread, "start"),
}


def exceptions() -> list[Exception]:
    """Return an exception of each class of Python and dgkit, and an OSError of each errno."""
    found: list[Exception] = [
        kind("injected")
        for kind in _subclasses(Exception)
        if kind.__module__ == "builtins" and _takes_text(kind)
    ]
    found += [
        getattr(errors, name)("injected") for name in errors.__all__ if name != "TransferError"
    ]
    return found + [OSError(number, "injected") for number in sorted(errno.errorcode)]


def _subclasses(kind: type) -> set[type]:
    below = set(kind.__subclasses__())
    return below.union(*(_subclasses(child) for child in below))


def _takes_text(kind: type) -> bool:
    try:
        kind("injected")
    except TypeError:
        return False
    return not issubclass(kind, Warning)


class Injector:
    """Raise `fault` in the agent's next `times` calls of one boundary, after `delay` seconds.

    Calls by the thread that created the injector are not affected.
    """

    def __init__(self, owner: object, name: str) -> None:
        self.fault: Exception | None = None
        self.delay = 0.0
        self.times = 0
        self.hit = 0
        self._client = threading.get_ident()
        self._call = getattr(owner, name)

    def arm(self, fault: Exception | None, times: int = 1, delay: float = 0.0) -> None:
        self.fault, self.times, self.delay = fault, times, delay

    def __call__(self, *args: object, **options: object) -> object:
        if self.times and threading.get_ident() != self._client:
            self.times -= 1
            self.hit += 1
            time.sleep(self.delay)
            if self.fault is not None:
                raise self.fault
        return self._call(*args, **options)


def inject(patch: object, boundary: str) -> Injector:
    """Put an injector at a boundary; `patch` is pytest's monkeypatch."""
    owner, name = BOUNDARIES[boundary]
    injector = Injector(owner, name)

    def bound(*args: object, **options: object) -> object:  # binds as a method, unlike an instance
        return injector(*args, **options)

    patch.setattr(owner, name, bound)  # type: ignore[attr-defined]
    return injector


@contextmanager
def running(address: str | None = None, **options: object) -> Iterator[Agent]:
    """Run an agent on a thread of this process; fail if it has ended by itself."""
    one = Agent(ServeOptions(address, **({"shared_telemetry": True} | options)))  # type: ignore[arg-type]
    thread = threading.Thread(target=one.run, daemon=True)
    thread.start()
    try:
        yield one
        assert thread.is_alive(), "the agent has ended"
    finally:
        one.stop()
        thread.join(10.0)
        one.close()
