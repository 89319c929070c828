# SPDX-License-Identifier: Apache-2.0
"""dgkit.doca: a host's process and a DPU's, and what goes from one to the other: bytes."""

import pytest
from support.doca.binding import START
from support.processes.children import child

from dgkit import doca

# The host: exports memory, then evaluates the lines that it reads.
SENDER = (
    START
    + """
device = doca.Device()
memory = bytearray(range(256)) * 64
mapped = doca.Mmap(memory, device, permissions=doca.Access.PCI_READ_WRITE)
print(mapped.export_pci().hex(), flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
device.close()
"""
)

# The DPU: imports, and copies both ways.
RECEIVER = (
    START
    + """
device = doca.Device()
pe, dma = doca.ProgressEngine(), doca.Dma(device)
pe.connect(dma)
dma.start()
inventory = doca.BufInventory(16)
remote = doca.Mmap.from_export(bytes.fromhex(sys.argv[1]), device)
memory = bytearray(remote.size)
local = doca.Mmap(memory, device)

def copy(source, target, offset=0, size=None):
    src = inventory.buf_by_data(source, offset, size)
    dst = inventory.buf_by_addr(target, offset, size)
    try:
        dma.memcpy(src, dst).submit().wait(20)
    except doca.DocaError as error:
        dma.stop()
        dma.start()
        return error.code.name
    finally:
        src.close()
        dst.close()
    return "OK"

def read(*part):
    return copy(remote, local, *part)

def write(*part):
    return copy(local, remote, *part)

print(remote.size, remote.imported, flush=True)
for line in sys.stdin:
    try:
        print(eval(line), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
for one in (pe, inventory, device):
    one.close()
"""
)
SIZE = 256 * 64


@pytest.fixture
def pair():
    with (
        child(SENDER, SOFTDOCA_SIDE="host") as host,
        child(RECEIVER, host.line(), SOFTDOCA_SIDE="dpu") as dpu,
    ):
        assert dpu.line() == f"{SIZE} True"
        yield host, dpu


def test_the_receiver_sees_what_the_sender_has_and_writes_back_what_the_sender_sees(pair):
    host, dpu = pair
    assert dpu.ask("read()") == "OK"
    assert dpu.ask("memory == bytearray(range(256)) * 64") == "True"
    assert host.ask("memory.__setitem__(0, 99)") == "None"
    assert dpu.ask("(read(0, 1), memory[0])") == "('OK', 99)"
    assert dpu.ask("memory.reverse() or write()") == "OK"
    assert host.ask("(memory[-1], memory[:3].hex())") == "(99, 'fffefd')"
    assert dpu.end() == (0, "")
    assert host.end() == (0, "")


def test_the_senders_memory_is_not_the_receivers_python_memory(pair):
    _, dpu = pair
    said = dpu.ask("inventory.buf_by_data(remote).data")
    assert said.startswith("NotSupported ")
    assert "copy it by DMA" in said


def test_a_sender_that_is_killed_ends_the_copies(pair):
    host, dpu = pair
    assert dpu.ask("read()") == "OK"
    host.kill()
    assert dpu.ask("read()") == "IO_FAILED"
    assert dpu.ask("remote.close()") == "None"
    assert dpu.end() == (0, "")


@pytest.mark.parametrize("token", [None, 3, "text", ["a"]])
def test_a_descriptor_is_bytes(token):
    with doca.Device() as device, pytest.raises(TypeError):
        doca.Mmap.from_export(token, device)
