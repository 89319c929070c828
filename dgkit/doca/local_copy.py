# SPDX-License-Identifier: Apache-2.0
"""The sample of which `dgkit bluefield up` records the DOCA calls: a copy within this machine.

`python -m dgkit.doca.local_copy` copies with the DOCA that is installed; an argument names another
kind, "softdoca". Its exit code is 1 if the bytes differ.
"""

from __future__ import annotations

import os
import sys

from . import BufInventory, Device, Dma, Mmap, ProgressEngine, use

_SIZE = 1 << 16


def main(kind: str = "doca") -> int:
    """Copy random bytes by DOCA's DMA engine; return 0 if they arrived."""
    use(kind)
    source, target = bytearray(os.urandom(_SIZE)), bytearray(_SIZE)
    with (
        Device() as device,
        Mmap(source, device) as read,
        Mmap(target, device) as written,
        BufInventory(2) as inventory,
        ProgressEngine() as engine,
        Dma(device, tasks=1) as dma,
    ):
        engine.connect(dma)
        dma.start()
        src, dst = inventory.buf_by_data(read), inventory.buf_by_addr(written)
        with src, dst, dma.memcpy(src, dst) as task:
            task.submit().wait()
    return 0 if target == source else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
