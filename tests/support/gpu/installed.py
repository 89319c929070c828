# SPDX-License-Identifier: Apache-2.0
"""A kernel of the emulated GPU, compiled and run by the installed package alone.

    python tests/support/gpu/installed.py

Exit status 0 if it put the bytes where they belong.
"""

import sys

import dgkit
from dgkit.gpu_initiated import emulate, include_dir

KERNEL = """
#include <dgkit_device.cuh>
extern "C" __global__ void put(dg_gpu_queue *q, unsigned remote, unsigned local, int *status)
{
    const unsigned at = threadIdx.x * 8;
    status[threadIdx.x] = dg_wait(q, dg_put(q, remote, at, local, at, 8));
}
"""


def main() -> int:
    """Puts 512 bytes by 64 threads, and compares."""
    wanted = bytes(range(256)) * 2
    status = bytearray(b"\xff" * 256)
    with (
        dgkit.Device("soft") as device,
        dgkit.empty(512) as source,
        dgkit.empty(512) as target,
    ):
        source.buffer[:] = wanted
        local, owned = device.register(source), device.register(target)
        remote = device.import_region(owned.export())
        with device.gpu_queue(64) as q:
            emulate(KERNEL)["put"](1, 64, (q, remote.id, local.id, status))
        if any(status) or bytes(target.buffer) != wanted:
            print(f"a kernel did not put its bytes: {bytes(status[:16])}", file=sys.stderr)
            return 1
    print(f"a kernel of the emulated GPU, compiled with {include_dir()}, put its bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
