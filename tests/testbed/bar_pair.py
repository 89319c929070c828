"""Runs in both guests of the stage `testbed`: the host guest's memory as a BAR of the DPU guest.

The argument says which part: `host` and `dpu` move bytes; `killed`, `next` and `lost` do until the
exporter is killed; kernels of the emulated GPU write and post in `posts`, and Arm reads and serves
in `serves`. Descriptors and turns go over TCP. Exits with 1 if a check fails.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import dgkit
from dgkit.errors import AccessDenied, DescriptorError, TransferError

SIZE, EDGE = 1 << 20, 4093
ADDRESS = ("10.9.0.1", 7003)
CONNECT_S = 120.0  # an emulated guest may take a while to start Python
BEFORE, AFTER = bytes(range(256)) * (SIZE >> 8), bytes(range(255, -1, -1)) * (SIZE >> 8)
# Of a descriptor, native/src/share/descriptor.h, and of its blob, native/src/share/bar.h.
CHECKSUM, EXPORT_SIZE, BLOB = 12, 48, 184
KEY, OFFSET, LENGTH, PAGE = BLOB + 16, BLOB + 32, BLOB + 40, BLOB + 48


def check(condition: object, what: object) -> None:
    """Raise AssertionError with `what` unless the condition holds."""
    if not condition:
        raise AssertionError(what)


class Link:
    """Lines to and from the other guest."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r")

    def say(self, line: str) -> None:
        """Send a line."""
        self._connection.sendall(line.encode() + b"\n")

    def hear(self, line: str = "") -> str:
        """Return the next line, which must be `line` if that is given; "" at the end."""
        heard = self._lines.readline().strip()
        check(not line or heard == line, f"{heard!r}, not {line!r}")
        return heard


def accepted() -> Link:
    """Return the connection of the DPU guest."""
    with socket.create_server(ADDRESS, reuse_port=False) as listener:
        return Link(listener.accept()[0])


def connected() -> Link:
    """Return the connection to the host guest, which may not be listening yet."""
    deadline = time.monotonic() + CONNECT_S
    while time.monotonic() < deadline:
        with suppress(ConnectionRefusedError):
            return Link(socket.create_connection(ADDRESS))
        time.sleep(0.1)
    raise TimeoutError(f"{ADDRESS} does not answer")


def host() -> None:
    """Lend memory, see what was written, close the region, and see nothing more."""
    with dgkit.Device("soft") as device, dgkit.empty(SIZE, on="bar") as memory:
        memory.buffer[:] = BEFORE
        region = device.register(memory)
        link = accepted()
        link.say(region.export().hex())
        link.say(region.export("r").hex())
        link.hear("written")
        check(region.importers == 2, region.importers)
        check(memory.buffer[:EDGE] == BEFORE[:EDGE], "bytes that nobody wrote have changed")
        check(memory.buffer[EDGE:] == AFTER[EDGE:], "what the DPU wrote is not here")
        region.close(30)
        memory.buffer[:] = bytes(SIZE)
        link.say("closed")
        link.hear("refused")
        check(not any(memory.buffer), "a byte moved after the close")


def dpu() -> None:
    """Import it, and no forged descriptor of it; read, write, and be refused."""
    link = connected()
    whole, narrow = bytes.fromhex(link.hear()), bytes.fromhex(link.hear())
    with dgkit.Device("soft") as device, device.queue() as queue:
        for at in (KEY, OFFSET, LENGTH, PAGE, EXPORT_SIZE, BLOB):
            with suppress(DescriptorError, dgkit.NativeError):
                device.import_region(forged(whole, at))
                raise AssertionError(f"a descriptor with another byte {at} opens something")
        bytes_here = bytearray(SIZE)
        local = device.register(bytes_here)
        remote, readable = device.import_region(whole), device.import_region(narrow)
        check((remote.method, readable.access) == ("bar", dgkit.Access.READ), remote)
        for text in (repr(remote), remote._repr_html_(), repr(queue), repr(device)):
            check("emulated" in text and "bar" in text, text)
        queue.read(local, remote).wait()
        check(bytes_here == BEFORE, "what was read is not what the host guest wrote")
        bytes_here[:] = AFTER
        shape = {"local_offset": EDGE, "remote_offset": EDGE}
        queue.write(local, remote, size=SIZE - EDGE, **shape).wait()
        try:
            queue.write(local, readable)
        except AccessDenied:
            link.say("written")
        link.hear("closed")
        check(refused(queue, local, remote) and remote.revoked, remote)
        link.say("refused")


def forged(descriptor: bytes, at: int) -> bytes:
    """Return a descriptor with another byte and a checksum that fits (FNV-1a)."""
    changed = bytearray(descriptor)
    changed[at] ^= 1
    changed[CHECKSUM : CHECKSUM + 4] = bytes(4)
    checksum = 2166136261
    for byte in changed:
        checksum = (checksum ^ byte) * 16777619 % (1 << 32)
    changed[CHECKSUM : CHECKSUM + 4] = checksum.to_bytes(4, "little")
    return bytes(changed)


def refused(queue: dgkit.Queue, local: dgkit.Region, remote: dgkit.RemoteRegion) -> bool:
    """Whether a write is refused."""
    try:
        queue.write(local, remote).wait()
    except TransferError as error:
        return error.completion.status is dgkit.Status.REMOTE_ACCESS_ERROR
    return False


def killed() -> None:
    """Lend memory, and be killed."""
    with dgkit.Device("soft") as device, dgkit.empty(SIZE, on="bar") as memory:
        region = device.register(memory)
        link = accepted()
        link.say(region.export().hex())
        link.hear("written")
        os.kill(os.getpid(), signal.SIGKILL)


def lost() -> None:
    """Write to memory of a process that is killed, until another one uses the BAR."""
    link = connected()
    with dgkit.Device("soft") as device, device.queue() as queue:
        remote = device.import_region(bytes.fromhex(link.hear()))
        local = device.register(bytearray(b"x") * SIZE)
        queue.write(local, remote).wait()
        link.say("written")
        check(link.hear() == "", "the exporter lives")
        link = connected()
        link.hear("has allocated")
        check(refused(queue, local, remote), "a write reaches another one's memory")
        check(remote.lost, remote)
        link.say("refused")


def next_process() -> None:
    """Get the memory of the killed process, all of it zero."""
    with dgkit.empty(SIZE, on="bar") as memory:
        check(not any(memory.buffer), "the other one's bytes are still here")
        link = accepted()
        link.say("has allocated")
        link.hear("refused")
        check(not any(memory.buffer), "a byte moved after the exporter's end")


KERNELS = """
#include <dgkit_device.cuh>
extern "C" __global__ void fill(unsigned char *bytes, unsigned factor)
{
    const unsigned threads = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < 1 << 20; i += threads)
        bytes[i] = (unsigned char)(i * factor);
}
extern "C" __global__ void post(dg_gpu_queue *q, unsigned remote, unsigned local, int *status)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    status[i] = dg_wait(q, dg_put(q, remote, 64 * i, local, 64 * i, 64));
}
"""
THREADS = 128  # of post, twice the depth of its queue; a thread puts 64 bytes


def filled(factor: int) -> bytes:
    """Return what the kernel fill writes to SIZE bytes."""
    return bytes(i * factor % 256 for i in range(256)) * (SIZE >> 8)


def posts() -> None:
    """Fill arrays by a kernel; then put one of them to the DPU by doorbells that Arm serves."""
    import numpy as np

    from dgkit.gpu_initiated import emulate

    module, status = emulate(KERNELS), np.full(THREADS, -1, np.int32)
    with (
        dgkit.Device("verbs") as rdma, dgkit.Device("soft") as device,
        dgkit.empty(SIZE) as array, dgkit.empty(SIZE, on="bar") as source,
    ):  # fmt: skip
        module["fill"](1, 32, (array, np.uint32(7)))
        module["fill"](1, 32, (source, np.uint32(11)))
        check(bytes(array.buffer) == filled(7), "the kernel's bytes in an array")
        check(bytes(source.buffer) == filled(11), "the kernel's bytes in the BAR")
        reached, local = rdma.register(array), device.register(source)
        dgkit.testbed.share("by-rdma", reached)
        dgkit.testbed.share("by-bar", local)
        with dgkit.testbed.gpu_queue("bell", device, [local], trace=True) as queue:
            names = (np.uint32(queue.remote), np.uint32(queue.id_of(local)))
            module["post"](THREADS // 32, 32, (queue, *names, status))
            check(not status.any(), status)
            check(queue.completed == THREADS, queue.completed)
            check(len(queue.trace()) == queue.depth, queue.trace())
            module["post"](1, 1, (queue, names[0] + np.uint32(1), names[1], status))
            check(status[0] == dgkit.Status.REMOTE_ACCESS_ERROR, status[0])
            check(queue.first_error[1] == THREADS, queue.first_error)
            link = accepted()
            link.say("posted")
            link.hear("closed")
            module["post"](1, 1, (queue, *names, status))
            check(status[0] == dgkit.Status.CLOSED, status[0])


def serves() -> None:
    """Read the arrays by RDMA and by the BAR; serve the queue; see the kernel's bytes here."""
    with dgkit.Device("verbs") as rdma, dgkit.Device("soft") as device:
        for through, name, factor in ((rdma, "by-rdma", 7), (device, "by-bar", 11)):
            remote, here = dgkit.testbed.receive(name, through), bytearray(SIZE)
            with through.queue() as queue, through.register(here) as local:
                queue.read(local, remote).wait()
            check(here == filled(factor), name)
        inbox = dgkit.empty(SIZE)
        with dgkit.testbed.serve_gpu_queue("bell", device, device.register(inbox)) as served:
            link = connected()
            link.hear("posted")
            check(served.records == THREADS + 1, served.records)
        put = THREADS * 64
        check(bytes(inbox.buffer[:put]) == filled(11)[:put], "what the kernel put")
        check(not any(inbox.buffer[put:]), "bytes that no kernel put")
        link.say("closed")


PARTS: dict[str, Callable[[], None]] = {
    "host": host,
    "dpu": dpu,
    "killed": killed,
    "lost": lost,
    "next": next_process,
    "posts": posts,
    "serves": serves,
}

if __name__ == "__main__":
    PARTS[sys.argv[1]]()
    print("ok", sys.argv[1])
