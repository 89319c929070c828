# SPDX-License-Identifier: Apache-2.0
"""Runs in both guests of the stage `testbed`: the host guest's memory as a BAR of the DPU guest.

The argument says which part: `host` and `dpu` move bytes; `killed`, `next` and `lost` do until the
exporter is killed; kernels of the emulated GPU write and post in `posts`, and Arm reads and serves
in `serves`, until a process that serves is killed. Descriptors and turns go over TCP. Exits with 1
if a check fails.
"""

import dataclasses
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
        report = dgkit.testbed.latency(remote, count=200)
        print(report)
        check(report.label == "software DPU, emulated PCI bar, emulated", report.label)
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
#include <doca_gpunetio_dev_verbs_onesided.cuh>
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
typedef unsigned long long address;
extern "C" __global__ void post_entry(doca_gpu_dev_verbs_qp *q, address remote, unsigned rkey,
                                      address local, unsigned lkey, int *status)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    doca_gpu_dev_verbs_ticket_t ticket;
    doca_gpu_dev_verbs_put(q, {remote + 64 * i, rkey}, {local + 64 * i, lkey}, 64, &ticket);
    status[i] = doca_gpu_dev_verbs_poll_cq_at(doca_gpu_dev_verbs_qp_get_cq_sq(q), ticket);
}
"""
THREADS = 128  # twice the depth of its queue; a thread puts 64 bytes
SIDE = THREADS * 64
FLUSHED, REMOTE_ACCESS, RETRIES = 0x05, 0x13, 0x15  # syndromes of completions


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
        posts_entries(module, device, local, link)
        loses_arm(module, device, local, link)


def entry(queue, local, rkey, status):
    """Return the arguments of the kernel post_entry."""
    import numpy as np

    lkey = queue.key_of(local)
    ends = ((key.address, key.big_endian) for key in (rkey, lkey))
    return (queue, *(kind(each) for end in ends for kind, each in
                     zip((np.uint64, np.uint32), end, strict=True)), status)  # fmt: skip


def syndrome(queue) -> int | None:
    """Return the syndrome of the queue pair's error completions, None without any."""
    from dgkit.gpu_initiated.mlx5 import decode_cqe

    found = {decode_cqe(each).syndrome for each in queue.completions()} - {None}
    check(len(found) < 2, found)
    return found.pop() if found else None


def posts_entries(module, device: dgkit.Device, local: dgkit.Region, link: Link) -> None:
    """Put by entries of an mlx5 queue pair, which a software NIC on the Arm cores executes."""
    import numpy as np

    status = np.full(THREADS, -1, np.int32)
    with dgkit.testbed.gpu_queue("entries", device, [local], doorbell="record") as queue:
        module["post_entry"](THREADS // 32, 32, entry(queue, local, queue.remote, status))
        check(not status.any() and syndrome(queue) is None, status)
        link.say("posted")
        link.hear("closed")
        module["post_entry"](1, 1, entry(queue, local, queue.remote, status))
        check(status[0] < 0 and syndrome(queue) == FLUSHED, status[0])
    with dgkit.testbed.gpu_queue("wrong", device, [local], doorbell="proxy") as queue:
        wrong = dataclasses.replace(queue.remote, number=queue.remote.number + 1)
        module["post_entry"](1, 1, entry(queue, local, wrong, status))
        check(status[0] < 0 and syndrome(queue) == REMOTE_ACCESS, status[0])


def loses_arm(module, device: dgkit.Device, local: dgkit.Region, link: Link) -> None:
    """Wait in kernels for a process that is killed before it serves them."""
    import numpy as np

    status, states = np.full(1, -1, np.int32), np.full(1, -1, np.int32)
    ring = dgkit.testbed.gpu_queue("to-be-lost", device, [local])
    pair = dgkit.testbed.gpu_queue("also-lost", device, [local], doorbell="no record")
    link.hear("stopped")
    names = (np.uint32(ring.remote), np.uint32(ring.id_of(local)))
    waits = module["post"].start(1, 1, (ring, *names, status))
    waits_too = module["post_entry"].start(1, 1, entry(pair, local, pair.remote, states))
    link.say("kernels wait")
    begun = time.monotonic()
    waits.wait()
    waits_too.wait()
    print(f"kernels saw the end of the Arm process after {time.monotonic() - begun:.1f} s")
    check(status[0] == dgkit.Status.CLOSED and ring.lost, status[0])
    check(ring.first_error == (dgkit.Status.PEER_LOST, 0), ring.first_error)
    check(states[0] < 0 and syndrome(pair) == RETRIES and pair.lost, states[0])
    link.hear("imported")
    ring.close()
    pair.close()


def serves() -> None:
    """Read the arrays by RDMA and by the BAR; serve the queue; see the kernel's bytes here."""
    from dgkit.gpu_initiated import queue_report

    served_by_child, serving = os.pipe()
    child = os.fork()  # before there is a device
    if not child:
        is_killed(serving)
    with dgkit.Device("verbs") as rdma, dgkit.Device("soft") as device:
        for through, name, factor in ((rdma, "by-rdma", 7), (device, "by-bar", 11)):
            remote, here = dgkit.testbed.receive(name, through), bytearray(SIZE)
            with through.queue() as queue, through.register(here) as local:
                queue.read(local, remote).wait()
            check(here == filled(factor), name)
        inbox = dgkit.empty(SIZE)
        region = device.register(inbox)
        with dgkit.testbed.serve_gpu_queue("bell", device, region) as served:
            link = connected()
            link.hear("posted")
            check(served.records == THREADS + 1, served.records)
        check_inbox(inbox)
        link.say("closed")
        with dgkit.testbed.serve_gpu_queue("entries", device, region) as served:
            link.hear("posted")
            check(served.records == THREADS, served.records)
            print(queue_report(served.queue_pair))
        check_inbox(inbox)
        link.say("closed")
        served = dgkit.testbed.serve_gpu_queue("wrong", device, region)
        while not served.queue_pair.closed:  # by the host guest
            time.sleep(0.05)
        check(not any(inbox.buffer), "bytes that came with a wrong key")
        check(os.read(served_by_child, 1), "the child has failed")
        os.kill(child, signal.SIGSTOP)
        link.say("stopped")
        link.hear("kernels wait")
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        dgkit.testbed.receive("by-bar", device)  # takes back the process's slots in the BAR
        link.say("imported")


def is_killed(serving: int) -> None:
    """Serve two queues until the end of this process."""
    with dgkit.Device("soft") as device:
        region = device.register(dgkit.empty(SIZE))
        served = [dgkit.testbed.serve_gpu_queue(each, device, region, timeout=300)
                  for each in ("to-be-lost", "also-lost")]  # fmt: skip
        os.write(serving, b"x")
        signal.pause()
        raise AssertionError(f"{served} outlive a SIGKILL")


def check_inbox(inbox: dgkit.memory.HostMemory) -> None:
    """Check that it has what kernels put, and no more; clear it."""
    check(bytes(inbox.buffer[:SIDE]) == filled(11)[:SIDE], "what the kernel put")
    check(not any(inbox.buffer[SIDE:]), "bytes that no kernel put")
    inbox.buffer[:SIDE] = bytes(SIDE)


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
