# SPDX-License-Identifier: Apache-2.0
"""A hostile process beside a software NIC: its table, its queue pairs and its end.

    python fuzz_nic_peers.py SEED EXAMPLES

A process that keeps the rules connects queue pairs to it and posts entries, some of them wrong, as
a kernel may, and reads no completions. Whatever the other writes into its table, and wherever it is
killed, each entry ends or waits for what a peer may take its time for; bytes beside the memory
stay, other queue pairs go on, and no descriptor is left.
"""

import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import dgkit
from dgkit.dma.nic import NicKey, VerbsQueue

SIZE = GUARD = 4096
ROUNDS = 5  # with one hostile process
WRITE, SEND, READ, COMPARE_SWAP, FETCH_ADD = 0x08, 0x0A, 0x10, 0x11, 0x12
LIMIT_S = 30.0  # a peer that is not ready ends an entry after 4 s; the machine may be busy
PATIENT = {"a receive of the peer"}  # without a time limit, as the peer's program decides
NUMBERS = [0, 1, 3, 6, 63, 64, 65, 768, 769, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1]
# Offsets in a NIC's table (nic_table.h).
KEYS, KEY_SIZE, BOXES, BOX_SIZE = 4096, 816, (4096 + 8192 * 816 + 4095) & ~4095, 51648

HOSTILE = """
import ctypes, random, sys
sys.path.insert(0, sys.argv[2])
from safety.fuzz_nic_peers import BOX_SIZE, BOXES, KEY_SIZE, KEYS, NUMBERS
import dgkit
chance = random.Random(int(sys.argv[1]))
device = dgkit.Device("soft")
nic, region = device.nic(), device.register(dgkit.empty(4096), "rw")
maps = [line for line in open("/proc/self/maps") if "rw-s" in line and "dgkit-nic" in line]
table = int(maps[0].split("-")[0], 16)
for line in sys.stdin:
    gid, number = line.split()
    key, queue = nic.key(region, "rw"), nic.queue_pair(8, receives=4)
    queue.connect((bytes.fromhex(gid), int(number)))
    print(nic.gid.hex(), queue.number, key.number, key.address, flush=True)
    for _ in range(chance.choice([0, 100, 10000])):
        at, size = chance.choice([
            (KEYS + KEY_SIZE * (key.number >> 8), KEY_SIZE),
            (KEYS + KEY_SIZE * (key.number >> 8) + 8, 40),  # what is read with its descriptor
            (BOXES + BOX_SIZE * (queue.number & 1023), 128),
            (BOXES + BOX_SIZE * (queue.number & 1023), BOX_SIZE),
        ])
        word = ctypes.c_uint32.from_address(table + at + 4 * chance.randrange(size // 4))
        near = word.value + chance.randrange(-2, 3)
        word.value = chance.choice([near, near, chance.choice(NUMBERS)]) & 0xFFFFFFFF
"""


def entry(
    queue: VerbsQueue, opcode: int, count: int, local: tuple[int, int], far: tuple[int, int]
) -> bytes:
    """Return a work queue entry of 8 bytes between keys and addresses."""
    segments = b"" if opcode == SEND else struct.pack(">QII", far[1], far[0], 0)
    segments += struct.pack(">QQ", 1, 0) if opcode > READ else b""
    segments += struct.pack(">IIQ", 8, *local)
    blocks = queue.number << 8 | 1 + len(segments) // 16
    control = struct.pack(">IIII", (count & 0xFFFF) << 8 | opcode, blocks, 8, 0)
    return (control + segments).ljust(64, b"\0")


def put(queue: VerbsQueue, count: int, words: bytes) -> None:
    """Store an entry in the ring."""
    at = queue.config.offsets[2] + 64 * (count % queue.config.entries)
    queue._memory[at : at + 64] = words


def ring(queue: VerbsQueue, count: int) -> None:
    """Announce entries."""
    struct.pack_into("<Q", queue._memory, queue._DOORBELL, count)


def settle(queue: VerbsQueue, count: int) -> None:
    """Wait until `count` entries are complete, or one may wait without end, or has failed."""
    end = time.monotonic() + LIMIT_S
    while True:
        info = queue.info()
        if info.state == "error" or info.completed == count or info.waiting in PATIENT:
            return
        assert time.monotonic() < end, info
        time.sleep(0.001)


def post(queue: VerbsQueue, key: NicKey, far: tuple[int, int], chance: random.Random) -> None:
    """Post entries in some steps; the last doorbell may jump."""
    count = 0
    for _ in range(chance.randrange(1, 12)):
        for _ in range(chance.randrange(1, 5)):
            opcode = chance.choice([WRITE, WRITE, READ, READ, SEND, COMPARE_SWAP, FETCH_ADD])
            local = key.number, key.address + 8 * chance.randrange(SIZE // 8)
            remote = far[0], far[1] + 8 * chance.randrange(SIZE // 8 + 1)
            words = bytearray(entry(queue, opcode, count, local, remote))
            if chance.random() < 0.05:
                struct.pack_into(
                    ">I", words, 4 * chance.randrange(16), chance.choice(NUMBERS) & 0xFFFFFFFF
                )
            put(queue, count, bytes(words))
            count += 1
        if chance.random() < 0.05:
            count = chance.choice([count + 100, 1 << 63, (1 << 64) - 1])
        ring(queue, count)
        settle(queue, count)
        if queue.info().state == "error" or queue.info().waiting:
            return


class Honest:
    """The process that keeps the rules: a NIC, its memory, and a queue pair with itself."""

    def __init__(self) -> None:
        self.device = dgkit.Device("soft")
        self.nic = self.device.nic()
        self.whole = np.full(2 * GUARD + SIZE, 0x5A, np.uint8)
        self.key = self.nic.key(self.device.register(self.whole[GUARD:-GUARD], "rw"), "rw")

    def round(self, peer: "subprocess.Popen[str]", chance: random.Random, kills: bool) -> None:
        """Connect a queue pair, post, and look at everything else."""
        assert peer.stdin is not None
        assert peer.stdout is not None
        with self.nic.queue_pair(8, receives=4) as queue:
            peer.stdin.write(f"{self.nic.gid.hex()} {queue.number}\n")
            peer.stdin.flush()
            gid, number, key, address = peer.stdout.readline().split()
            queue.connect((bytes.fromhex(gid), int(number)))
            if kills and chance.random() < 0.5:
                peer.kill()
            post(queue, self.key, (int(key), int(address)), chance)
            if kills:
                peer.kill()
            self.check()
        self.check()

    def check(self) -> None:
        """A queue pair with itself moves bytes; those beside the memory are as they were."""
        with self.nic.queue_pair(8) as own:
            own.connect((self.nic.gid, own.number))
            place = self.key.number, self.key.address
            for count in range(3 * own.config.entries):
                put(own, count, entry(own, WRITE, count, place, place))
                ring(own, count + 1)
                settle(own, count + 1)
            assert own.info().completions == 3 * own.config.entries, own.info()
        assert (self.whole[:GUARD] == 0x5A).all()
        assert (self.whole[-GUARD:] == 0x5A).all()


def descriptors() -> int:
    """Return the number of open file descriptors."""
    return len(list(Path("/proc/self/fd").iterdir()))


def batch(seed: int, examples: int) -> None:
    """Run examples in a process, which must end by itself and without a failure."""
    command = [sys.executable, "-P", __file__, str(seed), str(examples)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"


def main(seed: int, examples: int) -> None:
    """Run examples of a seed; no file descriptor may be left."""
    honest, before = Honest(), 0
    for number in range(seed, seed + -(-examples // ROUNDS)):
        print(number, end=" ", flush=True)
        command = [sys.executable, "-P", "-c", HOSTILE, str(number), str(Path(__file__).parents[1])]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as peer:
            for at in range(ROUNDS):
                honest.round(peer, random.Random(number * ROUNDS + at), at == ROUNDS - 1)
        before = before or descriptors()
    # the server's thread closes those of a killed peer when it has seen its end
    end = time.monotonic() + 10
    while (after := descriptors()) > before:
        assert time.monotonic() < end, f"{after} file descriptors, {before} before"
        time.sleep(0.01)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
