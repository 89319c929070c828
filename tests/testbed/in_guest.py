"""Runs in the host guest of the stage `testbed`: Device and a session over verbs.

Exits with 1 if a check fails.
"""

import os
import sys
import time
import traceback
from collections.abc import Callable

import numpy as np

import dgkit
from dgkit import dma, errors


def check(condition: object, what: str) -> None:
    """Raise AssertionError with `what` unless the condition holds."""
    if not condition:
        raise AssertionError(what)


def a_device_says_what_it_is() -> None:
    """The engine names the RDMA device, and that this one is software."""
    with dgkit.Device("verbs") as device:
        check("rxe0" in device.caps.engine, device.caps.engine)
        check("in software" in device.caps.engine, device.caps.engine)
        check("RDMA" in repr(device), repr(device))
    found = {each.name: each for each in dma.providers()}["verbs"]
    check(found.usable, found.why)


def a_region_is_read_written_and_revoked() -> None:
    """A write, a read in rows, and an access error after the close."""
    source = np.arange(1 << 16, dtype=np.uint8)
    target = np.zeros(1 << 16, dtype=np.uint8)
    with dgkit.Device("verbs") as device, device.queue(depth=64) as queue:
        local = device.register(source, access="rw")
        exported = device.register(target, access="rw")
        remote = device.import_region(exported.export())
        queue.write(local, remote, size=source.size).wait(timeout=10)
        check(np.array_equal(source, target), "the bytes differ after a write")
        check("RDMA" in remote._repr_html_(), "the card does not say how the region is reached")
        exported.close()
        try:
            queue.read(local, remote, size=64).wait(timeout=10)
        except (errors.TransferError, errors.ClosedError, errors.AccessDenied) as error:
            check("revoked" in str(error) or "closed" in str(error), f"{error}")
        else:
            raise AssertionError("a closed region was read")


def a_session_moves_bytes_by_rdma() -> None:
    """A software DPU in a second process that moves the bytes by verbs."""
    with dgkit.connect(provider="verbs", timeout=60) as session:
        region = session.empty(1 << 20)
        data = os.urandom(1 << 20)
        report = session.write(region, data)
        check(bytes(region.array.data) == data, "the bytes differ after a session's write")
        check("by verbs" in str(report), f"{report}")
        check(bytes(session.read(region, 1 << 20)) == data, "the bytes read differ")
        latency = session.latency(region, size=64, op="write", count=200)
        check(latency.provider == "verbs", f"{latency}")
        check("in software" in latency.machine.engine, f"{latency.machine}")


def run(name: str, body: Callable[[], None]) -> bool:
    """Run one of the checks above; print how it ended."""
    began = time.monotonic()
    try:
        body()
    except Exception:
        traceback.print_exc()
        print(f"FAIL {name}", flush=True)
        return False
    print(f"ok   {name} ({time.monotonic() - began:.1f} s, emulated)", flush=True)
    return True


def main() -> int:
    """Run everything; 1 if something failed."""
    ok = [run(each.__name__, each) for each in (a_device_says_what_it_is,
          a_region_is_read_written_and_revoked, a_session_moves_bytes_by_rdma)]  # fmt: skip
    return 0 if all(ok) else 1


if __name__ == "__main__":
    sys.exit(main())
