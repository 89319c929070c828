# SPDX-License-Identifier: Apache-2.0
"""Runs in the host guest of the stage `testbed`: what the provider verbs says without a link.

Exits with 1 if a check fails.
"""

import subprocess
import sys
import time

import numpy as np
from in_guest import check, run
from queue_pairs import numbers

import dgkit
from dgkit import errors


def link(state: str) -> None:
    """Set the interface below rxe0 up or down."""
    subprocess.run(["ip", "link", "set", "eth0", state], check=True, timeout=60)


def expect(kind: type[Exception], *texts: str, call: object) -> None:
    """Call; it must raise that class with these texts."""
    try:
        call()  # type: ignore[operator]
    except kind as error:
        for text in texts:
            check(text in str(error), f"{text!r} is not in {error}")
        check(type(error) is kind, f"{type(error)}")
    else:
        raise AssertionError(f"no {kind.__name__}")


NO_LINK = ("the RDMA device rxe0 has no link", "ip link set INTERFACE up", "rdma-devices")


def a_device_without_a_link_is_not_opened() -> None:
    """The device and the way out are named; with the link it is opened."""
    link("down")
    try:
        expect(errors.DeviceUnavailable, *NO_LINK, call=lambda: dgkit.Device("verbs"))
    finally:
        link("up")
    dgkit.Device("verbs").close()


def without_a_link_nothing_is_imported_and_afterwards_all_goes_on() -> None:
    """An import, and a first transfer, while the link is down; the same when it is up."""
    local = np.zeros(4096, dtype=np.uint8)
    with dgkit.Device("verbs") as device, device.queue(depth=16) as queue:
        own = device.register(local, access="rw")
        exported = device.register(np.full(4096, 7, dtype=np.uint8), access="rw")
        token = exported.export()
        remote = device.import_region(token)
        made, other = queue.queue_pair(), queue.queue_pair()
        link("down")
        try:
            expect(errors.DeviceUnavailable, *NO_LINK, call=lambda: device.import_region(token))
            expect(errors.DeviceUnavailable, *NO_LINK, call=queue.queue_pair)
            expect(errors.DeviceUnavailable, *NO_LINK, call=lambda: made.connect(**numbers(other)))
            read = queue.read(own, remote, size=64)
            expect(errors.TransferError, call=lambda: read.wait(timeout=30))
        finally:
            link("up")
        remote = device.import_region(token)
        queue.read(own, remote, size=64).wait(timeout=10)
        check(local[:64].min() == 7, "the bytes differ")


def refuses(device: dgkit.Device, token: bytes) -> bool:
    """Whether an import is refused because the device is not there."""
    try:
        device.import_region(token).close()
    except errors.DgkitError as error:
        return isinstance(error, errors.DeviceUnavailable)
    return False


def a_removed_device_is_named_and_nothing_hangs() -> None:
    """The kernel waits with the removal until this process has ended: librdmacm keeps its files."""
    with dgkit.Device("verbs") as device, device.queue(depth=16) as queue:
        own = device.register(np.zeros(4096, dtype=np.uint8), access="rw")
        exported = device.register(np.zeros(4096, dtype=np.uint8), access="rw")
        token = exported.export()
        remote = device.import_region(token)
        queue.read(own, remote, size=64).wait(timeout=10)
        subprocess.Popen(["rdma", "link", "delete", "rxe0"])
        while not refuses(device, token):
            time.sleep(0.01)
        removed = ("the RDMA device rxe0 was removed", "close this device")
        for call in (
            lambda: device.import_region(token),
            lambda: device.register(np.zeros(4096, dtype=np.uint8)),
            lambda: device.queue(depth=16),
        ):
            expect(errors.DeviceUnavailable, *removed, call=call)
        read = queue.read(own, remote, size=64)
        expect(errors.TransferError, "IO_FAILED", call=lambda: read.wait(timeout=30))


def main() -> int:
    """Run everything, or the last with the argument `removal`; 1 if something failed."""
    if sys.argv[1:] == ["removal"]:
        return 0 if run("removal", a_removed_device_is_named_and_nothing_hangs) else 1
    ok = [run(each.__name__, each) for each in (a_device_without_a_link_is_not_opened,
          without_a_link_nothing_is_imported_and_afterwards_all_goes_on)]  # fmt: skip
    return 0 if all(ok) else 1


if __name__ == "__main__":
    sys.exit(main())
