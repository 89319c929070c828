# SPDX-License-Identifier: Apache-2.0
"""DPU for the tests of a real GPU, in the tests' process or in another process."""

import contextlib
import hashlib
import os
import select
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from support.processes.children import Child, child

import dgkit
from dgkit import WC_DTYPE, WR_DTYPE, Device
from dgkit.errors import TransferError

SLOT = 4096  # bytes between the places of a batch's records
SIZES = (1, 3, 7, 8, 16, 24, 64, 100, 1000, 4096)  # sizes of records

# Imports the descriptor argv[1] by the provider argv[2]; evaluates each line that it reads, and
# prints the result.
PROGRAM = """
import sys
from support.gpu.dpu_work import Dpu, answer
dpu = Dpu(bytes.fromhex(sys.argv[1]), sys.argv[2])
print(dpu.remote.method, flush=True)
for line in sys.stdin:
    print(answer(line, dpu), flush=True)
dpu.close()
"""


def noise(size: int, seed: int) -> np.ndarray:
    """Return the bytes of a seed."""
    return np.random.default_rng(seed).integers(0, 256, size, "u1")


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


def answer(line: str, dpu: "Dpu") -> str:
    """Return the value of an expression, or the error it raises, as one line of text."""
    try:
        return str(eval(line, {"dpu": dpu, "noise": noise, "digest": digest}))
    except Exception as error:
        return f"{type(error).__name__} {error}"


def batch_of(n: int, op: int, seed: int, local: int = 0, remote: int = 0) -> np.ndarray:
    """Return n work requests, each with its own slot on both sides, shuffled in the remote one."""
    rng = np.random.default_rng(seed)
    batch = np.zeros(n, WR_DTYPE)
    batch["local"], batch["remote"], batch["op"] = local, remote, op
    batch["size"] = rng.choice(SIZES, n)
    room = SLOT - batch["size"] + 1
    batch["local_offset"] = np.arange(n) * SLOT + rng.integers(0, room)
    batch["remote_offset"] = rng.permutation(n) * SLOT + rng.integers(0, room)
    return batch


class Echo:
    """`count` writes of `size` bytes of noise, each read back behind a fence, posted at once.

    `statuses()` waits for all; `right()` says whether each read that ended as OK returned the bytes
    that were written.
    """

    def __init__(self, device: Device, remote: Any, size: int, count: int) -> None:
        self.size, self.count = size, count
        self.sent, self.back = (dgkit.empty(size * count) for _ in range(2))
        self.sent.array[:] = noise(size * count, 5)
        self.regions = [device.register(memory) for memory in (self.sent, self.back)]
        self.queue = device.queue(2 * count)
        self.transfers = []
        for i in range(count):
            place = {"size": size, "local_offset": i * size, "remote_offset": i * size}
            self.transfers += [
                self.queue.write(self.regions[0], remote, **place),
                self.queue.read(self.regions[1], remote, fence=True, **place),
            ]
        self.completions: list[Any] = []

    def statuses(self) -> set[Any]:
        for transfer in self.transfers:
            try:
                self.completions.append(transfer.wait(30))
            except TransferError as error:
                self.completions.append(error.completion)
        return {completion.status for completion in self.completions}

    def right(self) -> bool:
        done = [c.status is dgkit.Status.OK for c in self.completions[1::2]]
        pairs = zip(*(np.split(m.array, self.count) for m in (self.sent, self.back)), strict=True)
        return all((sent == back).all() for (sent, back), ok in zip(pairs, done, strict=True) if ok)

    def ended_after(self, t_ns: int) -> int:
        """Return how many operations completed as OK after a time of CLOCK_MONOTONIC."""
        ok = dgkit.Status.OK
        return sum(c.status is ok and c.complete_ns > t_ns for c in self.completions)

    def close(self) -> None:
        for end in (self.queue, *self.regions):
            end.close()


class Dpu:
    """A provider over an imported region, and host memory of its size under `local`."""

    def __init__(self, token: bytes, provider: str = "cuda") -> None:
        self.device = Device(provider)
        self.remote = self.device.import_region(token, timeout=10)
        self.memory = dgkit.empty(self.remote.size)
        self.local = self.device.register(self.memory)
        self.queue = self.device.queue(4096)
        self.array = self.memory.array
        self.opened: list[Any] = []
        self.kept: list[Any] = []

    def close(self) -> None:
        for end in (self.queue, *self.opened, self.remote, self.local, self.device):
            end.close()

    def open(self, token: str) -> int:
        """Import another region, and return its size in bytes."""
        self.opened.append(self.device.import_region(bytes.fromhex(token), timeout=10))
        return self.opened[-1].size

    def fill(self, seed: int) -> None:
        self.array[:] = noise(len(self.array), seed)

    def put(self, seed: int, size: int, at: int, far: int) -> int:
        """Write the bytes of a seed."""
        self.array[at : at + size] = noise(size, seed)
        place = {"size": size, "local_offset": at, "remote_offset": far}
        return self.queue.write(self.local, self.remote, **place).wait(20).size

    def get(self, size: int, at: int, far: int) -> tuple[str, bool]:
        """Read; return the digest of the bytes, and whether the byte behind them is unchanged."""
        self.array[at : at + size + 1] = 0xEE
        place = {"size": size, "local_offset": at, "remote_offset": far}
        self.queue.read(self.local, self.remote, **place).wait(20)
        return digest(self.array[at : at + size]), bool(self.array[at + size] == 0xEE)

    def many(self, n: int, op: int, seed: int) -> str:
        """Run a batch, and return the digest of the local bytes afterwards."""
        self.fill(seed)
        batch, out = batch_of(n, op, seed, self.local.id, self.remote.id), np.zeros(n, WC_DTYPE)
        self.queue.run(batch, out, timeout=20)
        assert set(out["status"].tolist()) == {0}
        assert (out["size"] == batch["size"]).all()
        return digest(self.array)

    def rows(self, op: str, **shape: int) -> int:
        return getattr(self.queue, f"{op}_2d")(self.local, self.remote, **shape).wait(20).size

    def scribble(self, value: int, turns: int) -> int:
        """Write words of one value at random places of the first 64 KiB."""
        self.array[:1024] = value
        rng = np.random.default_rng(value)
        batch, out = np.zeros(500, WR_DTYPE), np.zeros(500, WC_DTYPE)
        batch["local"], batch["remote"] = self.local.id, self.remote.id
        batch["op"], batch["size"] = 1, 8
        for _ in range(turns):
            at, size = int(rng.integers(0, 8000)) * 8, int(rng.choice([8, 16, 24, 104, 1024]))
            self.queue.write(self.local, self.remote, size=size, remote_offset=at).wait(20)
            batch["remote_offset"] = rng.integers(0, 8192, 500) * 8
            self.queue.run(batch, out, timeout=20)
            assert set(out["status"].tolist()) == {0}
        return turns

    def count(self, words: int, writes: int) -> int:
        """Write that many words at once, whose halves are equal; the last have all bits set."""
        view = self.array[: 8 * words].view("u8")
        with self.queue.prepare_write(self.local, self.remote, size=8 * words) as put:
            for value in range(1, writes + 1):
                view[:] = value * 0x100000001
                put.run()
            view[:] = 0xFFFFFFFFFFFFFFFF
            put.run()
        return writes

    def asleep(self, turns: int) -> int:
        """Wait without spinning, by wait() and by the queue's fd."""
        pair = (self.local, self.remote)
        with self.device.queue(64, spin_us=0) as queue:
            for i in range(turns):
                size = 8 if i % 2 else min(1 << 20, self.remote.size)
                assert queue.read(*pair, size=size).wait(20).size == size
                transfer = queue.write(*pair, size=size)
                if queue.arm():
                    assert select.select([queue.fileno()], [], [], 20)[0]
                assert transfer.wait(20).size == size
        return turns

    def by_gpu(self, size: int) -> int:
        """Read into GPU memory of this process, and write half of it behind."""
        with dgkit.empty(size, on="gpu") as mine, self.device.register(mine) as near:
            self.queue.read(near, self.remote, size=size).wait(20)
            half = {"size": size // 2, "remote_offset": size}
            return self.queue.write(near, self.remote, **half).wait(20).size

    def post(self, n: int) -> int:
        """Post n writes of all bytes without waiting for them."""
        self.kept += [self.queue.write(self.local, self.remote) for _ in range(n)]
        return len(self.kept)

    def cycle(self, token: str) -> str:
        """Import a region, use it and close it."""
        with (
            self.device.import_region(bytes.fromhex(token), timeout=10) as far,
            self.device.queue(8) as queue,
            self.device.register(dgkit.empty(8192)) as near,
        ):
            queue.write(near, far, size=100).wait(20)
            queue.read(near, far, size=8192).wait(20)
        return "done"


# Provider that exports GPU memory to a DPU's provider: DOCA imports only its own exports.
LENDERS = {"cuda": "soft", "softdoca": "softdoca"}
METHODS = {"cuda": "gpu", "softdoca": "doca"}


@contextlib.contextmanager
def here(memory: Any, provider: str = "cuda") -> Iterator[Callable[[str], str]]:
    """Yield a function that evaluates a line at a DPU in this process, over its GPU memory."""
    with Device(LENDERS[provider]) as device, device.register(memory) as region:
        dpu = Dpu(region.export(), provider)
        yield lambda line: answer(line, dpu)
        dpu.close()


class Side:
    """An array of this process and the DPU that copies it; `do` evaluates a line at the DPU."""

    def __init__(self, memory: Any, do: Callable[[str], str]) -> None:
        self.memory, self.array, self.do = memory, memory.array, do
        self.bytes = noise(memory.size + 5000, 1)

    def set(self, seed: int) -> np.ndarray:
        """Fill the array, and return its content."""
        wanted = self.bytes[seed % 5000 :][: self.memory.size].copy()
        self.array.set(wanted)
        self.memory.synchronize()
        return wanted

    def holds(self, wanted: np.ndarray) -> bool:
        """Return whether a kernel sees these bytes."""
        import cupy

        return bool(cupy.array_equal(self.array, cupy.asarray(wanted)))


@contextlib.contextmanager
def second(region: Any, provider: str = "cuda") -> Iterator[Child]:
    """Start a DPU in another process, which has imported the region."""
    with child(PROGRAM, region.export().hex(), provider) as dpu:
        assert dpu.line(60) == METHODS[provider]
        yield dpu
        if dpu.process.poll() is None:
            assert dpu.end(60) == (0, "")


@contextlib.contextmanager
def there(memory: Any, provider: str = "cuda") -> Iterator[Callable[[str], str]]:
    """Do the same as `here`, with the DPU in another process."""
    with (
        Device(LENDERS[provider]) as device,
        device.register(memory) as region,
        second(region, provider) as dpu,
    ):
        yield lambda line: dpu.ask(line, timeout=60)


def kill(dpu: Child) -> None:
    os.kill(dpu.pid, signal.SIGKILL)
    dpu.process.wait(20)
