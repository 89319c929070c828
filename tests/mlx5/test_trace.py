# SPDX-License-Identifier: Apache-2.0
"""Traces of programs of rdma-core: lines, and packets of RoCE v2."""

import re
import struct
import zlib
from pathlib import Path

import pytest
from support.processes.rdma_pair import pair

import dgkit
from dgkit.cli import main
from dgkit.gpu_initiated.mlx5 import OPCODES, SYNDROMES
from dgkit.widgets.packets.capture import Capture

ENDED = re.compile(r"entry=(\d+) op=(\w+) completion=(\w+)")


def traced(folder, *program, suffix, fault=(), succeeds=True):
    """Run a program as server and client; return the file of the client's trace."""
    path = Path(folder, f"trace{suffix}")
    with pair(folder, *program, options=["--trace", path, *fault]) as both:
        outputs = [each.communicate(timeout=60)[0] for each in both]
    assert (both[1].returncode == 0) is succeeds, outputs
    return path


def packets(path):
    """Return the packets of a capture."""
    capture = Capture(path)
    capture.restarted()
    return list(capture.read())


def rows(path):
    """Return the rows that a PacketPanel shows of a capture."""
    panel = dgkit.PacketPanel(path)
    try:
        return panel.rows()
    finally:
        panel.close()


def invariant_crc(frame):
    """Return the CRC that a frame must end with: annex A17 of the InfiniBand specification."""
    masked = bytearray(b"\xff" * 8 + frame[14:-4])
    for at in (8 + 1, 8 + 8, 8 + 10, 8 + 11, 28 + 6, 28 + 7, 36 + 4):
        masked[at] = 0xFF
    return struct.pack("<I", zlib.crc32(masked))


def test_each_entry_and_completion_is_a_line(home):
    path = traced(home, "ib_write_lat", "-x", "0", "-n", "20", "-s", "512", suffix=".txt")
    lines = path.read_text().splitlines()
    for line in lines:
        assert re.match(r"\d{10}\.\d{9} pid=\d+ qp=0x[\da-f]+ entry=\d+ op=WRITE ", line), line
    posted = [line for line in lines if "size=512 rkey=0x" in line]
    assert all(re.search(r" remote=0x\w+ lkey=0x\w+ local=0x\w+\+512 flags=c", p) for p in posted)
    assert len(posted) == 20
    assert [found[0] for line in lines if (found := ENDED.search(line))] == [
        f"entry={index} op=WRITE completion=ok" for index in range(20)
    ]


def test_a_line_names_the_fault_and_the_syndrome(home):
    fault = ["--fault", "error,skip=3,syndrome=0x13,vendor=0x88"]
    program = ["ib_write_bw", "-x", "0", "-n", "20"]
    text = traced(home, *program, suffix=".txt", fault=fault, succeeds=False).read_text()
    assert re.search(r"entry=3 op=WRITE .* fault=error\n", text), text
    error = "error syndrome=0x13 vendor=0x88 (remote access error)"
    assert f"entry=3 op=WRITE completion={error}\n" in text


def test_traces_and_reports_name_operations_and_syndromes_alike():
    source = (Path(__file__).parents[2] / "native/mlx5/trace.c").read_text()
    syndromes = re.findall(r'\[0x(\w\w)\] =\s+"([^"]+)"', source)
    assert {int(number, 16): name for number, name in syndromes} == SYNDROMES
    assert set(re.findall(r'\[WQE_\w+\] =\s+"(\w+)"', source)) == set(OPCODES.values())


@pytest.mark.parametrize(
    ("program", "kinds"),
    [
        ("ib_write_lat -s 2", ["RC WRITE only", "RC acknowledge"]),
        (
            "ib_write_bw -s 9000",
            ["RC WRITE first", "RC WRITE middle", "RC WRITE last", "RC acknowledge"],
        ),
        (
            "ib_read_lat -s 9000",
            [
                "RC READ request", "RC READ response first", "RC READ response middle",
                "RC READ response last",
            ],
        ),
        ("ib_send_lat -s 300", ["RC SEND only", "RC acknowledge"]),
        ("ib_atomic_lat", ["RC FETCH_ADD", "RC atomic acknowledge"]),
        ("ib_write_lat -s 5000 -c UC", ["UC WRITE first", "UC WRITE last"]),
    ],
)  # fmt: skip
def test_the_packets_of_an_entry_are_those_of_roce(program, kinds, home):
    path = traced(home, *program.split(), "-x", "0", "-n", "5", suffix=".pcapng")
    shown = rows(path)
    assert [row["info"].split(" to queue")[0] for row in shown] == kinds * 5
    numbers = [int(re.search(r"0x\w+, (\d+)", row["info"])[1]) for row in shown]
    requests = [n for n, row in zip(numbers, shown, strict=True) if row["direction"] == "sent"]
    step = 3 if "read" in program else 1  # a READ has the numbers of its response
    first = requests[0]
    assert requests == [(first + at * step) % (1 << 24) for at in range(len(requests))]
    for packet in packets(path):
        assert packet.data[-4:] == invariant_crc(packet.data)
        ip, udp = packet.data[14:34], packet.data[34:42]
        assert sum(struct.unpack(">10H", ip)) % 0xFFFF == 0  # by its checksum
        assert struct.unpack(">HH", udp[2:6]) == (4791, len(packet.data) - 34)


def test_the_packet_of_a_refused_entry_is_answered_by_its_error(home):
    fault = ["--fault", "error,skip=3,syndrome=0x13"]
    program = ["ib_write_bw", "-x", "0", "-n", "20", "-s", "64"]
    path = traced(home, *program, suffix=".pcapng", fault=fault, succeeds=False)
    *_, request, answer = rows(path)
    assert (request["rule"], answer["direction"]) == ("remote access error", "received")
    assert answer["info"].endswith(", remote access error")


def test_a_file_that_cannot_be_written_is_refused_before_the_program_starts(tmp_path, capsys):
    started = tmp_path / "started"
    trace = tmp_path / "none" / "trace.txt"
    assert main(["mlx5", "run", "--trace", str(trace), "--", "touch", str(started)]) != 0
    assert str(trace) in capsys.readouterr().err
    assert not started.exists()
