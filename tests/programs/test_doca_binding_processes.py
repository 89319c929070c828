"""dgkit.doca: a host's process and a DPU's, and what goes from one to the other: bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doca.binding import START, copying
from support.processes.children import child

from dgkit import doca
from dgkit.doca import Access

# The host: exports `size` bytes with permissions argv[1], then evaluates the lines that it reads.
SENDER = (
    START
    + """
device = doca.Device()
memory = bytearray(range(256)) * 64
mapped = doca.Mmap(memory, device, permissions=doca.Access[sys.argv[1]])
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


@pytest.fixture(params=["PCI_READ_WRITE"])
def pair(request):
    with (
        child(SENDER, request.param, SOFTDOCA_SIDE="host") as host,
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


def test_any_part_can_be_copied_alone(pair):
    host, dpu = pair
    assert dpu.ask("(read(300, 5), memory[299:306].hex())") == "('OK', '002c2d2e2f3000')"
    assert dpu.ask("memory.__setitem__(slice(9, 11), b'AB') or write(9, 2)") == "OK"
    assert host.ask("memory[8:12]") == r"bytearray(b'\x08AB\x0b')"


def test_lists_reach_into_the_senders_memory(pair):
    _, dpu = pair
    gather = (
        "(head := inventory.buf_by_data(remote, 10, 2))"
        ".chain(inventory.buf_by_data(remote, 200, 2))"
    )
    assert dpu.ask(f"len({gather}.parts)") == "2"
    assert (
        dpu.ask("dma.memcpy(head, inventory.buf_by_addr(local)).submit().wait(20).done") == "True"
    )
    assert dpu.ask("memory[:4].hex()") == "0a0bc8c9"


def test_the_senders_memory_is_not_the_receivers_python_memory(pair):
    _, dpu = pair
    said = dpu.ask("inventory.buf_by_data(remote).data")
    assert said.startswith("NotSupported ")
    assert "copy it by DMA" in said


@pytest.mark.parametrize("pair", ["PCI_READ_ONLY"], indirect=True)
def test_an_export_that_may_only_be_read_is_not_written(pair):
    host, dpu = pair
    assert dpu.ask("read()") == "OK"
    assert dpu.ask("write()") == "IO_FAILED"
    assert host.ask("memory == bytearray(range(256)) * 64") == "True"
    assert dpu.ask("read()") == "OK"


def test_a_map_that_its_sender_closed_is_read_no_more(pair):
    host, dpu = pair
    assert dpu.ask("read()") == "OK"
    assert host.ask("mapped.close()") == "None"
    assert host.ask("memory.append(1)") == "None"
    assert dpu.ask("read()") == "IO_FAILED"
    assert dpu.end() == (0, "")


def test_a_sender_that_is_killed_ends_the_copies(pair):
    host, dpu = pair
    assert dpu.ask("read()") == "OK"
    host.kill()
    assert dpu.ask("read()") == "IO_FAILED"
    assert dpu.ask("remote.close()") == "None"
    assert dpu.end() == (0, "")


def test_a_receiver_that_is_killed_is_nothing_to_the_sender(pair):
    host, dpu = pair
    dpu.kill()
    assert host.ask("mapped.close()") == "None"
    assert host.end() == (0, "")


def test_a_descriptor_of_one_who_is_gone_is_refused():
    with child(SENDER, "PCI_READ_WRITE", SOFTDOCA_SIDE="host") as host:
        token = bytes.fromhex(host.line())
    with doca.Device() as device, pytest.raises(doca.DocaError):
        doca.Mmap.from_export(token, device)


def test_a_side_has_the_devices_of_that_side():
    say = "print([(d.ibdev, d.iface, d.export_pci, d.from_export_pci) for d in doca.devices()])"
    seen = []
    for side in ("host", "dpu"):
        with child(START + say, SOFTDOCA_SIDE=side) as it:
            seen.append(it.line())
    assert seen[0] != seen[1]
    assert "'p0'" in seen[1]


def test_the_host_has_no_representors_and_the_dpu_has():
    say = (
        "\nwith doca.Device() as device:\n"
        "    try:\n        print(device.representors())\n"
        "    except doca.DocaError as error:\n        print(type(error).__name__)\n"
    )
    with child(START + say, SOFTDOCA_SIDE="dpu") as dpu:
        assert "RepresentorInfo(pci='0000:3b:00.0'" in dpu.line()
    with child(START + say, SOFTDOCA_SIDE="host") as host:
        assert host.line() in ("NotSupported", "[]")


@pytest.fixture(scope="module")
def exported():
    with copying(64) as copy:
        flags = Access.PCI_READ_WRITE
        with doca.Mmap(copy.source, copy.device, permissions=flags) as mapped:
            yield mapped.export_pci(), copy.device


@given(data=st.data())
def test_a_descriptor_with_one_bit_changed_is_refused(data, exported):
    token, device = exported
    at, bit = data.draw(st.integers(0, len(token) - 1)), data.draw(st.integers(0, 7))
    altered = bytearray(token)
    altered[at] ^= 1 << bit
    with pytest.raises(doca.DocaError):
        doca.Mmap.from_export(bytes(altered), device)


@given(size=st.integers(0, 511))
def test_a_descriptor_that_is_cut_is_refused(size, exported):
    token, device = exported
    with pytest.raises(doca.DocaError):
        doca.Mmap.from_export(token[: min(size, len(token) - 1)], device)


@given(token=st.binary(max_size=600))
def test_bytes_that_are_no_descriptor_are_refused(token, exported):
    _, device = exported
    with pytest.raises(doca.DocaError):
        doca.Mmap.from_export(token, device)


@pytest.mark.parametrize("token", [None, 3, "text", ["a"]])
def test_a_descriptor_is_bytes(token, exported):
    with pytest.raises(TypeError):
        doca.Mmap.from_export(token, exported[1])
