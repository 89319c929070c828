# SPDX-License-Identifier: Apache-2.0
"""Two Python processes transfer bytes both ways; the second may be of another architecture.

    python two_processes.py PYTHON...    runs PYTHON... with this file and a descriptor

PYTHONPATH_THERE, if it is set, is the second one's PYTHONPATH.
"""

import os
import platform
import subprocess
import sys

import dgkit

SIZE = 1 << 20
QUESTION = bytes(range(251)) * (SIZE // 251 + 1)


def exporter(python: list[str]) -> None:
    """Export memory, which the other process reads and overwrites with its bytes reversed."""
    with dgkit.Device("soft") as device, dgkit.empty(SIZE) as memory:
        memory.buffer[:] = QUESTION[:SIZE]
        with device.register(memory, access="rw") as region:
            there = os.environ.get("PYTHONPATH_THERE")
            environment = {**os.environ, **({"PYTHONPATH": there} if there else {})}
            command = [*python, __file__, "import", region.export().hex()]
            subprocess.run(command, env=environment, check=True, timeout=120)
        assert bytes(memory.buffer) == QUESTION[:SIZE][::-1]


def importer(token: bytes) -> None:
    """Import the region from its descriptor, which is all that this side knows."""
    with dgkit.Device("soft") as device, device.queue() as queue:
        remote = device.import_region(token, timeout=10)
        bounce = bytearray(SIZE)
        with device.register(bounce, access="rw") as local:
            queue.read(local, remote, size=SIZE).wait(timeout=30)
            assert bounce == QUESTION[:SIZE]
            bounce.reverse()
            queue.write(local, remote, size=SIZE).wait(timeout=30)
    print(f"{SIZE} bytes read and written by dgkit {dgkit.__version__} on {platform.machine()}")


if sys.argv[1] == "import":
    importer(bytes.fromhex(sys.argv[2]))
else:
    exporter(sys.argv[1:])
