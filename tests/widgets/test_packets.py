# SPDX-License-Identifier: Apache-2.0
"""PacketPanel: a capture that grows, the filter, a packet by layers, damaged files and frames."""

import io
import os
import resource
import struct

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doca.captures import BEGIN, HEAD, PING, block, option, packet
from support.jupyter.panels import PanelError
from support.processes.waiting import until

import dgkit
from dgkit.widgets.packets.layers import layers, summary


@pytest.fixture
def capture(tmp_path):
    path = tmp_path / "ping.pcapng"
    path.write_bytes(
        HEAD
        + packet(PING, queue=0, rule="ROOT entry 2")
        + packet(PING, at_ns=1_500_000, sent=True, queue=3)
        + packet(b"\xff" * 20, at_ns=10**9, rule="ROOT no entry; dropped: no queue")
    )
    return path


def test_rows_say_queue_layers_addresses_and_rule(capture, view):
    shown = view(dgkit.PacketPanel(capture)).ask("hello")
    ping = ["ICMP", "10.0.0.1", "10.0.0.2", "47", "echo request, id 7, number 1, 5 bytes"]
    assert [row[:4] for row in shown["rows"]] == [
        ["1", "0.000000 s", "received", "0"],
        ["2", "0.001500 s", "sent", "3"],
        ["3", "1.000000 s", "received", ""],
    ]
    assert shown["rows"][0][4:] == ["ROOT entry 2", *ping]
    assert shown["rows"][1][4:] == ["", *ping]
    assert shown["rows"][2][4] == "ROOT no entry; dropped: no queue"
    assert [row[:4] for row in shown["rates"]] == [
        ["none", "received", "1", "1"], ["0", "received", "1", "0"], ["3", "sent", "1", "0"],
    ]  # fmt: skip


def test_a_packet_is_shown_by_layers_that_cover_its_bytes(capture, view):
    shown = view(dgkit.PacketPanel(capture))
    shown.ask("hello")
    reply = shown.ask("show", number=1)
    parts = [(layer["name"], layer["start"], layer["stop"]) for layer in reply["layers"]]
    assert parts == [
        ("Ethernet II", 0, 14), ("IP", 14, 34), ("ICMP", 34, 38), ("ICMP.Echo", 38, 42),
        ("Data", 42, 47),
    ]  # fmt: skip
    assert ("src", "10.0.0.1") in map(tuple, reply["layers"][1]["fields"])
    with pytest.raises(PanelError, match="packet 4 is not here: those kept are 1 to 3"):
        shown.ask("show", number=4)


def test_a_filter_selects_what_is_shown_and_saved(capture, view, tmp_path):
    panel = dgkit.PacketPanel(capture)
    shown = view(panel)
    shown.ask("filter", text="ICMP sent")
    assert [row["number"] for row in panel.rows()] == ["2"]
    assert panel.save(tmp_path / "sent.pcap") == 1
    saved = list(dpkt.pcap.Reader(io.BytesIO((tmp_path / "sent.pcap").read_bytes())))
    assert saved[0][1] == PING
    assert round(saved[0][0] * 10**9) == BEGIN + 1_500_000
    shown.ask("filter", text="nothing has this")
    assert panel.rows() == []
    with pytest.raises(PanelError, match="201 characters; at most 200"):
        shown.ask("filter", text="x" * 201)


def test_a_visible_view_follows_the_file_also_by_half_packets_and_when_it_is_written_anew(
    capture, view
):
    shown = view(dgkit.PacketPanel(capture))
    assert len(shown.ask("watch", view="one", on=True)["rows"]) <= 3
    more = packet(PING, at_ns=2 * 10**9, queue=0)
    with capture.open("ab") as file:
        file.write(more[:30])
        file.flush()
        shown.panel._read_all()
        assert shown.panel._capture.count == 3
        file.write(more[30:])
    shown.wait_for("frame", lambda fields: len(fields["rows"]) == 4)
    capture.unlink()
    capture.write_bytes(HEAD + packet(PING, queue=5))
    shown.wait_for("frame", lambda fields: [row[3] for row in fields["rows"]] == ["5"])


def test_only_the_newest_packets_are_kept(tmp_path, monkeypatch, view):
    monkeypatch.setattr("dgkit.widgets.packets.packets._MAX_PACKETS", 10)
    path = tmp_path / "many.pcapng"
    path.write_bytes(HEAD + packet(PING, queue=0) * 25)
    shown = view(dgkit.PacketPanel(path))
    state = shown.ask("hello")
    assert [row[0] for row in state["rows"]] == [str(n) for n in range(16, 26)]
    assert state["rates"][0][2] == "25"
    assert shown.ask("show", number=16)["row"][0] == "16"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"GIF89a, not a capture", "is not a pcapng file"),
        (HEAD + struct.pack("<II", 6, 7) + b"\0" * 8, "has a block of 7 bytes at 60; it must be"),
        (HEAD + block(6, b"\xff" * 24), "packet 1 is damaged"),
        (HEAD + packet(PING, extra=option(6, b"\xff" * 2000)), "option queue has 2,000 bytes; it"),
        (HEAD + packet(PING, extra=struct.pack("<HH", 6, 2000)), "option 6 has 4 of 2,000 bytes"),
        (HEAD + packet(PING)[:-4] + b"\1\0\0\0", "packet 1 is damaged: its block does not end"),
        (b"", "has no packets yet"),
    ],
    ids=["other", "block", "packet", "long option", "cut option", "end", "empty"],
)
def test_a_file_that_is_no_capture_is_said_in_words(tmp_path, view, content, said):
    path = tmp_path / "file"
    path.write_bytes(content)
    shown = view(dgkit.PacketPanel(path))
    assert said in shown.ask("hello")["line"]
    assert said in shown.panel.static_text()


def test_control_characters_of_a_capture_are_shown_escaped(tmp_path, view):
    path = tmp_path / "\x1b[2J.pcapng"
    rule = "\x1b]0;you\a \u202egpj\nAAAA"
    path.write_bytes(HEAD + packet(PING, rule=rule).replace(b"AAAA", b"A\xff\xfeA"))
    panel = view(dgkit.PacketPanel(path)).panel
    said = r"\x1b]0;you\x07 \u202egpj\nA\xff\xfeA"
    assert panel.rows()[0]["rule"] == said
    assert said in panel.static_text().split("\n")[0]
    assert panel.state()["line"].isprintable()
    path.write_bytes(b"GIF89a, not a capture")
    assert view(dgkit.PacketPanel(path)).panel.state()["line"].isprintable()


def test_what_cannot_be_saved_leaves_the_older_file(capture, view, tmp_path):
    panel = view(dgkit.PacketPanel(capture)).panel
    saved = tmp_path / "saved.pcap"
    saved.write_bytes(b"older")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))  # as on a full disk
    try:
        with pytest.raises(OSError, match=r"saved\.pcap"):
            panel.save(saved)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert saved.read_bytes() == b"older"
    with capture.open("ab") as file:
        file.write(packet(PING, at_ns=(1 << 32) * 10**9 - BEGIN))
    with pytest.raises(ValueError, match=r"packet 4 is of 4,294,967,296 s since 1970; .* in 2106"):
        panel.save(saved)
    assert sorted(tmp_path.iterdir()) == [capture, saved]
    assert saved.read_bytes() == b"older"


def test_a_large_capture_is_read_beside_the_view_that_says_how_much(
    tmp_path, monkeypatch, view, occupied
):
    monkeypatch.setattr("dgkit.widgets.packets.packets._CATCH_UP_S", 0.0)
    path = tmp_path / "large.pcapng"
    path.write_bytes(HEAD + packet(PING, queue=0, rule="ROOT entry 2") * 30_000)
    panel = dgkit.PacketPanel(path)
    shown = view(panel)
    assert shown.ask("hello")["line"].endswith("; reading: 256 KiB of 3.32 MiB")
    occupied.set()  # the frame thread goes on
    shown.ask("watch", view="one", on=True)
    shown.wait_for("frame", lambda fields: fields["line"].endswith("the last 10,000 kept"))
    until(lambda: not panel._behind, "all is read")
    assert panel.static_html().count("30,000 packets of") == 1
    assert len(panel.rows()) == 10_000


@pytest.mark.timeout(20)
def test_what_has_no_end_or_would_block_is_no_capture(tmp_path, view):
    os.mkfifo(tmp_path / "fifo")
    for path in ("/dev/zero", tmp_path / "fifo", tmp_path):
        shown = view(dgkit.PacketPanel(path))
        assert "not a regular file" in shown.ask("hello")["line"]
        assert "not a regular file" in shown.panel.static_text()


def test_a_file_that_is_not_there_yet_is_awaited(tmp_path, capture, view):
    path = tmp_path / "later.pcapng"
    shown = view(dgkit.PacketPanel(path))
    assert "has no packets yet" in shown.ask("watch", view="one", on=True)["line"]
    path.write_bytes(capture.read_bytes())
    shown.wait_for("frame", lambda fields: len(fields["rows"]) == 3)
    assert "echo request" in shown.panel.static_html()
    assert "3 packets" in shown.panel.static_html()


@pytest.mark.parametrize(
    ("kind", "info"), [(135, "neighbor solicitation"), (200, "type 200, code 0")]
)
def test_icmp6_is_named(kind, info):
    """What a kernel sends by itself when an interface comes up."""
    data = dpkt.icmp6.ICMP6(type=kind, data=b"\0" * 20)
    ip = dpkt.ip6.IP6(
        src=b"\0" * 16, dst=b"\xff\2" + b"\0" * 14, nxt=58, hlim=255, plen=24, data=data
    )
    row = summary(bytes(dpkt.ethernet.Ethernet(type=0x86DD, data=ip)))
    assert (row.protocol, row.source, row.info) == ("ICMPv6", "::", info)


@given(st.binary(max_size=80), st.integers(0, 46))
def test_any_frame_has_a_row_and_layers_that_cover_it(data, kept):
    """Random bytes, and a ping with some of its bytes replaced."""
    for frame in (data, PING[:kept] + data):
        found = layers(frame)
        assert summary(frame).protocol
        ends = [0, *(layer.stop for layer in found)]
        assert [layer.start for layer in found] == ends[:-1]
        assert ends[-1] == len(frame)
