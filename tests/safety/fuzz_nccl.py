# SPDX-License-Identifier: Apache-2.0
"""A hostile rank and a hostile agent of NCCL's plugin.

Of the rank, the handle, first message, descriptors and signals are damaged; of the agent that moves
the bytes (DGKIT_NCCL_DPU), the replies and the ring.

    python fuzz_nccl.py SEED EXAMPLES

A rank that keeps the rules connects to it, registers memory, and puts, gets and signals. Its calls
may fail. It must not crash or wait, bytes beside its memory must stay, and no descriptor be left.
"""

import array
import contextlib
import ctypes
import mmap
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from ctypes import byref, c_bool, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from dgkit import nccl

FIRST = "init devices properties listen connect create_context register register_dmabuf deregister"
NAMES = f"{FIRST} destroy_context close_comm close_listener put put_signal get flush test progress"
NUMBERS = [0, 1, 2, 7, 8, 63, 64, 4096, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1]
SIZE, GUARD = 4096, 4096
HELLO, MESSAGE = 16, 1568  # bytes
MOVER_MESSAGE, COMPLETED, COMPLETIONS, DEPTH = 792, 64, 128 + 1024 * 48, 1024  # mover_ring.h
HOST = 1
TABLE: Any = (c_void_p * (1 + len(NAMES.split()))).in_dll(
    ctypes.CDLL(str(nccl.plugin_path())), "ncclRmaPlugin_v14"
)


def call(name: str, *args: Any) -> int:
    """Call a function of the plugin."""
    return int(ctypes.CFUNCTYPE(c_int)(TABLE[1 + NAMES.split().index(name)])(*args))


def damaged(data: bytes, chance: random.Random, most: int = 3) -> bytes:
    """Change up to `most` bytes or words."""
    new = bytearray(data)
    for _ in range(chance.randrange(most + 1)):
        at = chance.randrange(len(new)) if chance.random() < 0.5 else chance.randrange(0, 36, 4)
        word = chance.choice(NUMBERS) if chance.random() < 0.5 else chance.getrandbits(64)
        size = min(chance.choice([1, 4, 8]), len(new) - at)
        new[at : at + size] = word.to_bytes(8, "little")[: max(size, 0)]
    return bytes(new[: len(data)])


def memory_of(size: int, chance: random.Random) -> int:
    """Return what a hostile rank sends as the memory of its signals."""
    kind = chance.randrange(12)
    if kind == 0:
        return os.open("/dev/null", os.O_RDWR)
    fd = os.memfd_create("hostile", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, chance.choice([0, 64, size - 1]) if kind == 1 else size)
    if kind != 2:
        ctypes.CDLL(None).fcntl(fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
    return fd


def scribble(mapped: mmap.mmap, chance: random.Random) -> None:
    """Write numbers that are nearly right, and any others, into the rings of both ranks."""
    for _ in range(chance.randrange(60)):
        at = 8 * chance.randrange(min(80, len(mapped) // 8))
        if chance.random() < 0.3:
            at = 8 * chance.randrange(len(mapped) // 8)
        number = chance.choice([*NUMBERS, 3, 4, 5, 16, chance.getrandbits(64)])
        mapped[at : at + 8] = number.to_bytes(8, "little")


def play(listener: socket.socket, chance: random.Random) -> None:
    """Be rank 0: answer each message with one that is nearly right, until the other ends."""
    peer, _ = listener.accept()
    peer.settimeout(20)
    with peer:
        hello, fds, _, _ = socket.recv_fds(peer, HELLO, 4)
        size = os.fstat(fds[0]).st_size
        own = memory_of(size, chance)
        answer = hello[:8] + bytes(4) + hello[12:]
        extra = [own] * chance.choice([1] * 12 + [0, 2, 3])
        cmsg = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", extra))] if extra else []
        peer.sendmsg([damaged(answer, chance) if chance.random() < 0.2 else answer], cmsg)
        with mmap.mmap(fds[0], size) as mapped:
            while message := peer.recv(MESSAGE):
                if chance.random() < 0.05:
                    break
                peer.send(damaged(message, chance) if chance.random() < 0.7 else message)
                scribble(mapped, chance)
        for fd in (own, *fds):
            os.close(fd)


def move(listener: socket.socket, chance: random.Random) -> None:
    """Be an agent: reply to each message, and complete requests that there are, or are not."""
    peer, _ = listener.accept()
    with peer:
        hello, fds, _, _ = socket.recv_fds(peer, MOVER_MESSAGE, 1)
        peer.send(hello[:4].ljust(24, b"\0") + b"soft".ljust(768, b"\0"))
        peer.settimeout(0.0005)
        with mmap.mmap(fds[0], os.fstat(fds[0]).st_size) as ring:
            while chance.random() > 0.001:
                with contextlib.suppress(TimeoutError):
                    if not (message := peer.recv(MOVER_MESSAGE)):
                        break
                    if message[:4] == b"\2\0\0\0":  # an import
                        reply = message[:16].ljust(MOVER_MESSAGE, b"\0")
                        peer.send(damaged(reply, chance) if chance.random() < 0.1 else reply)
                complete(ring, chance)
        os.close(fds[0])


def complete(ring: mmap.mmap, chance: random.Random) -> None:
    """Complete all requests in flight, or some that are nearly right."""
    head, completed = (int.from_bytes(ring[at : at + 8], "little") for at in (0, COMPLETED))
    for number in range(completed, head):
        at, user = 128 + number % DEPTH * 48, COMPLETIONS + number % DEPTH * 16
        ring[user : user + 8] = ring[at : at + 8]
        if chance.random() < 0.1:
            ring[user : user + 8] = chance.choice(NUMBERS).to_bytes(8, "little")
        ring[user + 8 : user + 12] = chance.choice([0, 0, 0, 1, 9, 1 << 31]).to_bytes(4, "little")
    if chance.random() < 0.02:
        head = chance.choice([*NUMBERS, head + 1, head + 1025])
    ring[COMPLETED : COMPLETED + 8] = head.to_bytes(8, "little")


def one(seed: int, folder: str) -> int:
    """Connect a rank to a hostile one; return how many of its calls succeeded."""
    chance = random.Random(seed)
    path = f"{folder}/{seed}.sock"
    has_agent = chance.random() < 0.5
    os.environ["DGKIT_NCCL_DPU"] = f"ipc://{path}" if has_agent else ""
    with contextlib.ExitStack() as stack:
        stack.enter_context(hostile(path, play, random.Random(seed + 1)))
        if has_agent:
            stack.enter_context(hostile(f"{path}.mover", move, random.Random(seed + 2)))
        return honest(chance, path)


@contextlib.contextmanager
def hostile(
    path: str, role: Callable[[socket.socket, random.Random], None], chance: random.Random
) -> Iterator[None]:
    """Play a role in a thread; the other side may end the connection, or not connect at all."""

    def guarded() -> None:
        with contextlib.suppress(OSError):
            role(listener, chance)

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(0.3)
        peer = threading.Thread(target=guarded)
        peer.start()
        try:
            yield
        finally:
            peer.join()


def honest(chance: random.Random, path: str) -> int:
    """Do what NCCL does with the handle of a hostile rank; return how many calls succeeded."""
    ctx, listener, comm, rma = (c_void_p() for _ in range(4))
    own, other = (ctypes.create_string_buffer(128) for _ in range(2))
    assert call("init", byref(ctx), c_uint64(1), None) == 0
    assert call("listen", ctx, 0, own, byref(listener)) == 0
    right = own.raw[:16] + path.encode().ljust(112, b"\0")
    other.raw = damaged(right, chance, 2) if chance.random() < 0.2 else right
    handles = (c_void_p * 2)(ctypes.addressof(other), ctypes.addressof(own))
    done = 0
    if call("connect", ctx, handles, 2, 1, listener, byref(comm)) == 0:
        done = 1 + transfers(chance, comm, rma)
        assert call("close_comm", comm) == 0
    assert call("close_listener", listener) == 0
    return done


def transfers(chance: random.Random, comm: c_void_p, rma: c_void_p) -> int:
    """Register, put, get and signal; bytes beside the memory must stay."""
    assert call("create_context", comm, (c_int * 3)(1, -1, 1), byref(rma)) == 0
    whole, memory = np.full(2 * GUARD + SIZE, 0x5A, np.uint8), c_void_p()
    at = c_void_p(whole.ctypes.data + GUARD)
    done = 0
    if call("register", comm, at, c_size_t(SIZE), HOST, c_uint64(0), byref(memory)) == 0:
        done += 1 + sum(transfer(chance, comm, rma, memory) for _ in range(20))
        call("deregister", comm, memory)
    assert (whole[:GUARD] == 0x5A).all()
    assert (whole[-GUARD:] == 0x5A).all()
    call("destroy_context", rma)
    return done


def transfer(chance: random.Random, comm: c_void_p, rma: c_void_p, memory: c_void_p) -> bool:
    """Start one request to either rank, and make some progress; return whether it was taken."""
    request, ended, rank = c_void_p(), c_int(), c_uint32(chance.randrange(2))
    size, to = c_size_t(chance.choice([0, 8, 64])), c_uint64(8 * chance.randrange(500))
    common = (rma, 0, c_uint64(0), memory, size, to, memory, rank)
    kind = chance.choice(["put", "put_signal", "put_signal", "get"])
    signal = (to, memory, c_uint64(1), c_uint32(1), c_bool(True)) if kind == "put_signal" else ()
    taken = call(kind, *common, *signal, byref(request)) == 0
    for _ in range(10):
        call("progress", rma)
        if taken and request and call("test", comm, request, byref(ended)) == 0 and ended.value:
            break
    return taken


def batch(seed: int, examples: int) -> None:
    """Run examples in a process, which must end by itself and without a failure."""
    command = [sys.executable, "-P", __file__, str(seed), str(examples)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"


def descriptors() -> int:
    """Return the number of open file descriptors."""
    return len(list(Path("/proc/self/fd").iterdir()))


def main(seed: int, examples: int) -> None:
    """Run examples of a seed; no file descriptor may be left."""
    with tempfile.TemporaryDirectory() as folder:
        done, before = one(seed, folder), descriptors()
        for number in range(examples):
            print(seed + number, end=" ", flush=True)
            done += one(seed + number + 1, folder)
        after = descriptors()
    assert after <= before, f"{after} file descriptors, {before} before"
    assert done > examples, f"only {done} calls succeeded"


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
