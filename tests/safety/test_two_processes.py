# SPDX-License-Identifier: Apache-2.0
"""Two processes with nothing between them but a descriptor."""

import hashlib

import pytest
from support.dma import keep, pattern
from support.processes.children import EXPORTER, IMPORTER, child, run

import dgkit
from dgkit import Device
from dgkit.errors import PeerRefused

SIZE = 3 << 20
KINDS = [("memfd", "0", "map"), ("bytearray", "0", "vm"), ("bytearray", "1", "proxy")]


@pytest.mark.parametrize(("kind", "no_vm", "method"), KINDS)
def test_bytes_move_both_ways_whole(kind, no_vm, method, monkeypatch):
    monkeypatch.setenv("DGKIT_NO_PROCESS_VM", no_vm)
    counted = (bytes(range(251)) * (SIZE // 251 + 1))[:SIZE]
    memory = bytearray(SIZE)
    with child(EXPORTER, SIZE, kind, "rw") as exporter, Device() as device:
        remote = keep(device).import_region(bytes.fromhex(exporter.line()), timeout=10)
        assert (remote.size, remote.method, remote.peer_pid) == (SIZE, method, exporter.pid)
        local, queue = device.register(memory), device.queue()
        assert queue.read(local, remote).wait(30).size == SIZE
        assert memory == counted
        memory.reverse()
        assert queue.write(local, remote).wait(30).size == SIZE
        assert exporter.ask("digest") == hashlib.sha256(counted[::-1]).hexdigest()
        assert exporter.ask("importers") == "1"
        rows = {"size": 3, "rows": 5, "local_stride": 100, "remote_stride": 7}
        queue.read_2d(local, remote, **rows).wait(5)
        assert memory[100:103] == counted[::-1][7:10]
        remote.close()
        assert exporter.end() == (0, "")


def test_share_process_lets_an_importer_copy_itself():
    memory = bytearray(pattern(4096))
    with Device() as device:
        region = keep(device).register(memory, share_process=True)
        with child(IMPORTER, region.export().hex()) as importer:
            assert importer.line() == "vm"
            assert importer.ask("queue.read(local, remote).wait(5).size") == "4096"
            assert importer.ask(f"bytes(memory) == {bytes(memory)!r}") == "True"
            assert importer.end() == (0, "")
        wrapped = device.register(dgkit.wrap(bytearray(8), share_process=True))
        assert wrapped.memory.share_process


def test_many_regions_of_one_memory_are_mapped_once():
    with Device() as device:
        memory = keep(device).register(dgkit.empty(1 << 20)).memory
        tokens = [device.register(memory, offset=i * 64, size=64).export() for i in range(200)]
        with child(IMPORTER, tokens[0].hex()) as importer:
            importer.line()
            hexes = [t.hex() for t in tokens]
            many = (
                f"len(kept.extend(device.import_region(bytes.fromhex(t)) for t in {hexes}) or kept)"
            )
            assert importer.ask(many) == "200"
            maps = "sum('memfd:dgkit ' in line for line in open('/proc/self/maps'))"
            assert importer.ask(maps) == "1"


def test_a_program_that_closes_nothing_ends_well_and_leaves_no_socket(tmp_path):
    program = """
import dgkit
device = dgkit.Device()
region = device.register(dgkit.empty(64))
remote = device.import_region(region.export())
queue = device.queue()
transfer = queue.write(device.register(bytearray(64)), remote)
print("done")
"""
    assert run(program, XDG_RUNTIME_DIR=str(tmp_path)) == "done\n"
    assert list((tmp_path / "dgkit").iterdir()) == []


def test_the_socket_of_a_killed_process_is_swept_by_the_next_one(tmp_path):
    with child(EXPORTER, 64, "memfd", "rw", XDG_RUNTIME_DIR=str(tmp_path)) as exporter:
        exporter.line()
        exporter.kill()
    assert len(list((tmp_path / "dgkit").iterdir())) == 1
    run(
        "import dgkit\nwith dgkit.Device() as d, d.register(bytearray(8)) as r:\n r.export()",
        XDG_RUNTIME_DIR=str(tmp_path),
    )
    assert list((tmp_path / "dgkit").iterdir()) == []


def test_a_folder_for_sockets_that_others_may_enter_is_refused(tmp_path):
    (tmp_path / "dgkit").mkdir(mode=0o755)
    program = """
import dgkit
with dgkit.Device() as device, device.register(bytearray(8)) as region:
    try:
        region.export()
    except dgkit.PeerRefused as error:
        print(error)
"""
    text = run(program, XDG_RUNTIME_DIR=str(tmp_path))
    assert "must be a folder of this user with mode 0700" in text
    assert issubclass(PeerRefused, PermissionError)
