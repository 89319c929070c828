# SPDX-License-Identifier: Apache-2.0
"""Litmus test of signals: a kernel on the emulated GPU waits for words that all ranks add to."""

import ctypes
import threading
import time
from ctypes import byref, c_bool, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np
import pytest

import dgkit
from dgkit import nccl
from dgkit.errors import KernelError
from dgkit.gpu_initiated import emulate

RANKS, PUTS, BLOCK = 3, 400, 64
BALLAST = 1 << 20  # bytes whose copy takes longer than a signal
LIMIT_S = 40  # for a test; a kernel that waits for a lost addition is stopped then
INC, ADD, HOST = 1, 2, 1

# The first word has a field of 16 bits for each rank: with its put number n, counted from 1, rank r
# adds 1 << 16 * r. All words of that put's block become n. So a word that counts n puts of rank r
# promises n blocks. The second word counts every second put of all ranks.
KERNEL = """
#include <dgkit_device.cuh>
typedef unsigned long long u64;

extern "C" __global__ void wait(u64 *words, volatile u64 *window, u64 *found, int ranks, int puts,
                                int length)
{
    u64 before = 0;
    for (bool all = false; !all; __nanosleep(100)) {
        const u64 word = atomicAdd(words, 0);
        all = true;
        __threadfence_system();
        for (int r = 0; r < ranks; r++) {
            const u64 is = word >> 16 * r & 0xffff, was = before >> 16 * r & 0xffff;
            found[0] += is < was || is > (u64)puts;
            for (u64 n = was + 1; n <= is; n++)
                for (int i = 0; i < length; i++)
                    found[1] += window[(r * (u64)puts + n - 1) * length + i] != n;
            all = all && is == (u64)puts;
        }
        found[2] += word != before;
        before = word;
    }
}
"""
FIRST = "init devices properties listen connect create_context register register_dmabuf deregister"
NAMES = f"{FIRST} destroy_context close_comm close_listener put put_signal get flush test progress"


class Rank:
    """A rank, driven as NCCL's proxy does it. Its calls must succeed."""

    def __init__(self, table: ctypes.Array[c_void_p]) -> None:
        self._table = table
        self.ctx, self.listener, self.comm, self.rma = (c_void_p() for _ in range(4))
        self.handle = ctypes.create_string_buffer(128)
        self("init", byref(self.ctx), c_uint64(1), None)
        self("listen", self.ctx, 0, self.handle, byref(self.listener))

    def __call__(self, name: str, *args: Any) -> None:
        function = ctypes.CFUNCTYPE(c_int)(self._table[1 + NAMES.split().index(name)])
        assert function(*args) == 0, name

    def connect(self, handles: ctypes.Array[c_void_p], rank: int) -> None:
        self("connect", self.ctx, handles, RANKS, rank, self.listener, byref(self.comm))
        self("create_context", self.comm, (c_int * 3)(1, -1, 1), byref(self.rma))

    def register(self, at: "np.ndarray[Any, Any]") -> c_void_p:
        memory = c_void_p()
        address, size = c_void_p(at.ctypes.data), c_size_t(at.nbytes)
        self("register", self.comm, address, size, HOST, c_uint64(0), byref(memory))
        return memory

    def put(self, source: c_void_p, offset: int, window: c_void_p, to: int, size: int) -> c_void_p:
        """Put bytes to rank 0."""
        request = c_void_p()
        self(
            "put", self.rma, 0, c_uint64(offset), source, c_size_t(size), c_uint64(to), window,
            c_uint32(0), byref(request),
        )  # fmt: skip
        return request

    def put_signal(
        self, memory: tuple[c_void_p, ...], number: int, to: int, word: int, op: int, value: int
    ) -> c_void_p:
        """Put block `number` to rank 0, or nothing if `to` < 0, with a weak signal."""
        request, (source, window, words, _) = c_void_p(), memory
        size = c_size_t(BLOCK if to >= 0 else 0)
        self(
            "put_signal", self.rma, 0, c_uint64(number * BLOCK), source, size, c_uint64(max(to, 0)),
            window, c_uint32(0), c_uint64(8 * word), words, c_uint64(value), c_uint32(op),
            c_bool(False), byref(request),
        )  # fmt: skip
        return request

    def progress(self, requests: list[c_void_p], until: int) -> None:
        """Make progress until at most `until` requests are in flight."""
        done, end = c_int(), time.monotonic() + LIMIT_S
        while True:
            assert time.monotonic() < end, f"{len(requests)} requests are not finished"
            self("progress", self.rma)
            for request in list(requests):
                self("test", self.comm, request, byref(done))
                if done.value:
                    requests.remove(request)
            if len(requests) <= until:
                return


def run(
    rank: Rank, me: int, handles: Any, target: list[Any], seen: threading.Event, planted: str
) -> None:
    """Put all blocks; go on with progress until the kernel has seen all signals."""
    source = np.repeat(np.arange(1, PUTS + 1, dtype=np.uint64), BLOCK // 8)
    rank.connect(handles, me)
    own = target if me == 0 else [np.zeros_like(at) for at in target]
    ballast = np.zeros(BALLAST, np.uint8)
    memory = tuple(rank.register(at) for at in (source, *own, ballast))
    requests: list[c_void_p] = []
    for i in range(PUTS):
        lost = planted == "lost" and i == me == 2
        early = planted == "early" and i >= PUTS // 2
        if early:  # a signal that does not wait for its bytes
            requests.append(rank.put_signal(memory, 0, -1, 0, ADD, 1 << 16 * me))
            rank.progress(requests, 0)
            time.sleep(0.001)
        value, to = 0 if lost or early else 1 << 16 * me, (me * PUTS + i) * BLOCK
        if i % 2:
            requests.append(rank.put_signal(memory, i, to, 0, ADD, value))
            requests.append(rank.put_signal(memory, 0, -1, 1, INC, 0))
        else:  # as NCCL's device code posts a put with a signal in a window
            requests.append(rank.put(memory[3], 0, memory[3], 0, BALLAST))
            requests.append(rank.put(memory[0], i * BLOCK, memory[1], to, BLOCK))
            requests.append(rank.put_signal(memory, 0, -1, 0, ADD, value))
        rank.progress(requests, 16)
    rank.progress(requests, 0)
    while not seen.wait(0.001):
        rank("progress", rank.rma)
    for at in memory:
        rank("deregister", rank.comm, at)


def litmus(seed: int, planted: str = "", timeout: float = LIMIT_S) -> tuple[Any, Any]:
    """Return what the kernel found, and the words that the ranks added to."""
    table = (c_void_p * (1 + len(NAMES.split()))).in_dll(
        ctypes.CDLL(str(nccl.plugin_path())), "ncclRmaPlugin_v14"
    )
    words, window = dgkit.empty(64), dgkit.empty(RANKS * PUTS * BLOCK)
    target = [np.asarray(words).view(np.uint64), np.asarray(window).view(np.uint64)]
    for at in target:
        at[:] = 0
    found = np.zeros(3, np.uint64)
    launch = emulate(KERNEL)["wait"].start(
        1, 1, (words, window, found, RANKS, PUTS, BLOCK // 8), seed=seed, timeout=timeout
    )
    ranks, seen, failures = [Rank(table) for _ in range(RANKS)], threading.Event(), []

    def guarded(*args: Any) -> None:
        try:
            run(*args)
        except BaseException as exc:
            failures.append(exc)

    handles = (c_void_p * RANKS)(*(ctypes.addressof(rank.handle) for rank in ranks))
    threads = [
        threading.Thread(target=guarded, args=(rank, i, handles, target[::-1], seen, planted))
        for i, rank in enumerate(ranks)
    ]
    for thread in threads:
        thread.start()
    try:
        launch.wait()
    finally:
        seen.set()
        for thread in threads:
            thread.join()
        for rank in ranks:
            rank("destroy_context", rank.rma)
            rank("close_comm", rank.comm)
            rank("close_listener", rank.listener)
    assert not failures
    return found, target[0]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_kernel_sees_each_signal_after_its_bytes_and_loses_none(seed: int) -> None:
    found, words = litmus(seed)
    assert list(found[:2]) == [0, 0]  # counts that went back; words seen before their bytes
    assert found[2] > 10  # the kernel looked while the ranks added
    assert words[1] == RANKS * PUTS // 2


def test_a_signal_that_does_not_wait_for_its_bytes_is_found() -> None:
    found, _ = litmus(0, planted="early")
    assert found[1] > 0


def test_a_lost_addition_ends_in_the_time_limit() -> None:
    with pytest.raises(KernelError, match="did not end within 3 s"):
        litmus(0, planted="lost", timeout=3)
