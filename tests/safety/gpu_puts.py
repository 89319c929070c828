# SPDX-License-Identifier: Apache-2.0
"""Puts of the emulated GPU, verified byte by byte: in one process, and through a session's DPU.

    python tests/safety/gpu_puts.py --puts 10000000 --json FILE

Each launch has its own bytes, and puts of 1 to 16 bytes; after it the whole target must be as
computed here, the bytes between the puts included.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import dgkit
from dgkit.gpu_initiated import emulate

BLOCKS, THREADS, EACH, SLOT = 4, 128, 128, 16
SLOTS = BLOCKS * THREADS * EACH
SIZE = SLOTS * SLOT
# Queue, ids of remote and local region, the source; functions that read and clear the target.
Rig = tuple[Any, int, int, Any, Callable[[], bytes], Callable[[], None]]
KERNEL = """
#include <dgkit_device.cuh>
extern "C" __global__ void put_slots(dg_gpu_queue *q, unsigned remote, unsigned local, int *status,
                                const unsigned char *sizes)
{
    const unsigned me = threadIdx.x + blockIdx.x * blockDim.x;
    const unsigned each = 128;
    unsigned long long last = 0;
    int worst = DG_OK;
    for (unsigned i = 0; i < each; i++) {
        const unsigned slot = me * each + i, start = slot % 3;
        last = dg_put(q, remote, slot * 16 + start, local, slot * 16 + start, sizes[slot] - start);
        if (i % 32 == 31) {
            const int s = dg_wait(q, last);
            worst = s ? s : worst;
        }
    }
    const int s = dg_quiet(q);
    status[me] = s ? s : worst;
}
"""


def expected(source: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the target after all puts into zeros."""
    slots = np.arange(SLOTS)
    at = np.arange(SLOT)
    moved = (at >= (slots % 3)[:, None]) & (at < sizes[:, None])
    return np.where(moved, source.reshape(SLOTS, SLOT), 0).reshape(-1)


@contextmanager
def in_one_process() -> Iterator[Rig]:
    with (
        dgkit.empty(SIZE) as source,
        dgkit.empty(SIZE) as target,
        dgkit.Device("soft") as device,
    ):
        local, owned = device.register(source), device.register(target)
        remote = device.import_region(owned.export())
        zeros = bytes(SIZE)
        with device.gpu_queue(1024, regions=(local, remote)) as queue:
            yield (
                queue, remote.id, local.id, np.frombuffer(source.buffer, np.uint8),
                lambda: bytes(target.buffer), lambda: target.buffer.__setitem__(slice(None), zeros),
            )  # fmt: skip
            assert queue.stats().failed == 0


@contextmanager
def through_a_session() -> Iterator[Rig]:
    with dgkit.connect() as session:
        source, target = session.empty(SIZE), session.empty(SIZE, on="dpu")
        with session.gpu_queue(target, source) as queue:
            yield (
                queue, queue.id_of(target), queue.id_of(source), source.array,
                lambda: session.read(target, SIZE), lambda: session.write(target, bytes(SIZE)),
            )  # fmt: skip
            assert queue.first_error == (dgkit.Status.OK, None)


RIGS = {"one process": in_one_process, "session": through_a_session}


def verify(rig: str, puts: int) -> dict[str, Any]:
    """Run `puts` puts, or a few more; return the verdict."""
    kernel = emulate(KERNEL)["put_slots"]
    random = np.random.default_rng(puts)
    launches, begin = -(-puts // SLOTS), time.monotonic()
    with RIGS[rig]() as (queue, remote, local, source, read, clear):
        for launch in range(launches):
            source[:] = random.integers(1, 256, SIZE, np.uint8)
            sizes = random.integers(3, SLOT + 1, SLOTS).astype(np.uint8)
            clear()
            status = np.full(BLOCKS * THREADS, -7, np.int32)
            kernel(
                BLOCKS, THREADS, (queue, np.uint32(remote), np.uint32(local), status, sizes),
                seed=launch, timeout=120,
            )  # fmt: skip
            if status.any() or read() != expected(np.asarray(source), sizes).tobytes():
                return {"rig": rig, "ok": False, "launch": launch, "status": set(status.tolist())}
    seconds = round(time.monotonic() - begin, 1)
    return {"rig": rig, "ok": True, "puts": launches * SLOTS, "seconds": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--puts", type=int, default=10_000_000, metavar="N", help="of each rig")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store the verdict there")
    args = parser.parse_args()
    verdicts = [verify(rig, args.puts) for rig in RIGS]
    text = json.dumps(verdicts, default=sorted)
    print(text)
    if args.json:
        args.json.write_text(text + "\n")
    return 0 if all(verdict["ok"] for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
