# SPDX-License-Identifier: Apache-2.0
"""NIXL: writes into another process's memory, one reused request. Prints "SIZE US" lines.

python peer_nixl.py SIZE...   starts its own target. See peers.py.
"""

import statistics
import subprocess
import sys
import time

import numpy as np
from nixl._api import nixl_agent, nixl_agent_config

LIMIT = 1 << 20


def agent(name):
    """An agent with one registered array, and the array."""
    made = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    array = np.zeros(LIMIT, np.uint8)
    made.register_memory([(array.ctypes.data, LIMIT, 0, "")], "DRAM")
    return made, array


def target():
    """Prints its metadata and address, and stays until stdin ends."""
    made, array = agent("target")
    print(made.get_agent_metadata().hex(), array.ctypes.data, flush=True)
    sys.stdin.read()


def one(made, request):
    """One transfer, polled to its end."""
    made.transfer(request)
    while (state := made.check_xfer_state(request)) != "DONE":
        if state == "ERR":
            raise SystemExit("NIXL reports an error")


def measure(sizes):
    """Median us of a transfer of each size."""
    command = [sys.executable, __file__, "target"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        lines = iter(child.stdout.readline, b"")
        words = next(line.split() for line in lines if len(line.split()) == 2)
        made, array = agent("initiator")
        name = made.add_remote_agent(bytes.fromhex(words[0].decode()))
        for size in sizes:
            here = made.get_xfer_descs([(array.ctypes.data, size, 0)], "DRAM")
            there = made.get_xfer_descs([(int(words[1]), size, 0)], "DRAM")
            request = made.initialize_xfer("WRITE", here, there, name)
            calls = 1000 if size < 65536 else 50
            blocks = []
            for _ in range(11):
                start = time.perf_counter_ns()
                for _ in range(calls):
                    one(made, request)
                blocks.append((time.perf_counter_ns() - start) / calls)
            print(size, statistics.median(blocks) / 1e3, flush=True)
        child.stdin.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["target"]:
        target()
    else:
        measure([int(word) for word in sys.argv[1:]])
