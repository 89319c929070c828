# SPDX-License-Identifier: Apache-2.0
"""A process whose NIC or runtime folder is not what it says cannot harm the process of its peer."""

import os
import struct

import pytest
from support.processes.agents import program

import dgkit

READ, WRITE, FETCH_ADD = 0x10, 0x08, 0x12
PEER = """
import ctypes, struct, sys
import dgkit
OPEN = r'''
device = dgkit.Device("soft")
nic = device.nic()
memory = dgkit.empty(4096)
region = device.register(memory, sys.argv[1])
key = nic.key(region, sys.argv[1])
queue = nic.queue_pair(8, receives=4)
print(nic.gid.hex(), queue.number, key.number, key.address, flush=True)
gid, number, far_key, far_address = sys.stdin.readline().split()
queue.connect((bytes.fromhex(gid), int(number)))
'''
exec(OPEN)
"""
# Rewrites the access in its table's entry of the key (nic_table.h): 4096 + 816 * index, + 8 + 4.
HOSTILE = (
    PEER
    + """
at = next(int(line.split("-")[0], 16)
          for line in open("/proc/self/maps") if "rw-s" in line and "dgkit-nic" in line)
access = ctypes.c_uint32.from_address(at + 4096 + 816 * (key.number >> 8) + 12)
assert access.value == 4, access.value  # remote reads
access.value = 15
print("ready", flush=True)
sys.stdin.readline()
"""
)
VICTIM = (
    PEER
    + """
sys.stdin.readline()
for count, (opcode, more) in enumerate(eval(sys.argv[2])):
    segments = struct.pack(">QII", int(far_address), int(far_key), 0) + more
    segments += struct.pack(">IIQ", 8, key.number, key.address)
    blocks = queue.number << 8 | 1 + len(segments) // 16
    control = struct.pack(">IIII", count << 8 | opcode, blocks, 8, 0)
    start = queue.config.offsets[2] + 64 * count
    queue._memory[start : start + 16 + len(segments)] = control + segments
    struct.pack_into("<Q", queue._memory, queue._DOORBELL, count + 1)
    while queue.info().completions <= count:
        pass
print(queue.info().why, flush=True)
"""
)


@pytest.mark.parametrize("operation", [(WRITE, b""), (FETCH_ADD, struct.pack(">QQ", 1, 0))])
def test_a_peer_that_grants_more_than_its_region_permits_gets_an_error_not_a_signal(operation):
    entries = [(READ, b""), operation]
    with program(HOSTILE, "r") as peer, program(VICTIM, "rw", repr(entries)) as victim:
        theirs, ours = peer.stdout.readline(), victim.stdout.readline()
        victim.stdin.write(theirs)
        peer.stdin.write(ours)
        peer.stdin.flush()
        assert peer.stdout.readline() == "ready\n"
        victim.stdin.write("\n")
        victim.stdin.flush()
        assert "access of the rkey" in victim.stdout.readline()


WRONG = {
    "a FIFO": os.mkfifo,
    "a folder": os.mkdir,
    "an empty file": lambda path: path.touch(),
    "a large file": lambda path: path.write_bytes(bytes(1 << 20)),
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "no permission": lambda path: path.mkdir(0),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_file_that_is_no_descriptor_of_a_nic_is_refused(tmp_path, monkeypatch, what):
    gid = bytes(range(16))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with dgkit.Device("soft") as device, device.nic() as nic, nic.queue_pair(8) as queue:
        WRONG[what](tmp_path / "dgkit/nic" / gid.hex())
        with pytest.raises(dgkit.DgkitError, match=r"NIC|cannot open"):
            queue.connect((gid, 1 << 10))
