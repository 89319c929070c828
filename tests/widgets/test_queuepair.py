# SPDX-License-Identifier: Apache-2.0
"""QueuePanel: what is in a queue pair as it changes, errors, and its end."""

import struct
import time

import pytest
from support.jupyter.panels import PanelError
from support.processes.waiting import until

import dgkit
from dgkit.errors import ClosedError

WRITE = 0x08


@pytest.fixture
def queue():
    """A queue pair of 8 places, connected to another one; its keys are in `queue.keys`."""
    with (
        dgkit.Device("soft") as device,
        device.nic() as nic,
        dgkit.empty(64) as near,
        dgkit.empty(64) as far,
        device.register(near) as local,
        device.register(far) as remote,
        nic.queue_pair(8) as queue,
        nic.queue_pair(8) as peer,
    ):
        queue.connect(peer)
        peer.connect(queue)
        queue.keys = nic.key(local), nic.key(remote)
        yield queue


def post(queue, index, *, wrong=0, ring=True):
    """Put 16 bytes as a kernel does: reserve a place, write the entry, ring the doorbell."""
    near, far = queue.keys
    struct.pack_into("<Q", queue._memory, queue._POSTED, index + 1)
    entry = struct.pack(">IIII", index << 8 | WRITE, queue.number << 8 | 3, 8, 0)
    entry += struct.pack(
        ">QIIIIQ", far.address, far.number + wrong, 0, 16, near.number, near.address
    )
    at = queue.config.offsets[2] + index % queue.depth * 64
    queue._memory[at : at + len(entry)] = entry
    if ring:
        struct.pack_into("<Q", queue._memory, queue._DOORBELL, index + 1)


def complete(queue, count):
    until(lambda: queue.info().completions >= count, "completions")


def test_a_view_gets_the_entries_and_completions_decoded(queue, view):
    post(queue, 0)
    complete(queue, 1)
    near, far = queue.keys
    shown = view(dgkit.QueuePanel(queue)).ask("hello")
    assert shown["title"] == f"Queue pair {queue.number:#x}"
    assert (shown["status"], shown["why"]) == ("ready to send", "")
    assert shown["label"] == "software NIC"
    assert [dict(zip(shown["entry_columns"], row, strict=True)) for row in shown["entries"]] == [
        {
            "number": "0", "state": "complete", "operation": "WRITE", "bytes": "16",
            "local address": f"{near.address:#x}", "lkey": f"{near.number:#x}",
            "remote address": f"{far.address:#x}", "rkey": f"{far.number:#x}", "flags": "signaled",
        }
    ]  # fmt: skip
    assert [list(row) for row in shown["completions"]] == [["0", "send queue", "", ""]]
    assert dict(shown["places"]) == {
        "posted": 0, "announced": 0, "running": 0, "not polled": 1, "free": 7,
    }  # fmt: skip


def test_a_visible_view_follows_the_queue_and_a_hidden_one_costs_nothing(queue, view):
    shown = view(dgkit.QueuePanel(queue))
    assert shown.ask("watch", view="one", on=True)["entries"] == []
    post(queue, 0, ring=False)
    frame = shown.wait_for("frame", lambda fields: dict(fields["places"])["posted"] == 1)
    assert not frame["entries"], "it is not announced yet"
    post(queue, 0)
    shown.wait_for("frame", lambda fields: dict(fields["places"])["not polled"] == 1)
    struct.pack_into("<Q", queue._memory, queue._POLLED, 1)
    shown.wait_for("frame", lambda fields: "polled 1" in fields["line"] and fields["entries"])
    shown.ask("watch", view="one", on=False)
    until(lambda: shown.panel._task.due > time.monotonic() + 60, "it sleeps")


def test_an_idle_queue_sends_nothing(queue, view, monkeypatch):
    shown = view(dgkit.QueuePanel(queue))
    looks, info = [], queue.info
    monkeypatch.setattr(queue, "info", lambda: looks.append(1) or info())
    shown.ask("watch", view="one", on=True)
    until(lambda: len(looks) > 3, "it looks at the queue pair")
    assert not shown.of("frame")


def test_an_error_is_in_words_and_marks_its_entry_and_what_was_flushed(queue, view):
    post(queue, 0, wrong=1)
    complete(queue, 1)
    post(queue, 1)
    complete(queue, 2)
    shown = view(dgkit.QueuePanel(queue))
    state = shown.ask("hello")
    assert state["status"] == "error"
    assert "rkey" in state["why"]
    assert [row[1] for row in state["entries"]] == ["failed", "failed"]
    assert [row[3] for row in state["completions"]] == [
        "remote access error (0x13)", "flushed (0x05)",
    ]  # fmt: skip
    text = shown.ask("as_text")["text"]
    assert "remote access error (0x13)" in text
    assert state["why"] in text
    assert "remote access error" in shown.panel.static_html()
    assert state["why"] in shown.panel.static_html()


def test_a_queue_pair_that_is_closed_keeps_its_last_state(queue, view):
    post(queue, 0)
    complete(queue, 1)
    shown = view(dgkit.QueuePanel(queue))
    shown.ask("watch", view="one", on=True)
    queue.close()
    shown.wait_for("frame", lambda fields: fields["status"] == "closed")
    state = shown.ask("hello")
    assert (state["status"], len(state["entries"])) == ("closed", 1)
    assert not shown.errors
    with pytest.raises(ClosedError):
        dgkit.QueuePanel(queue)


def test_what_is_no_queue_pair_is_refused(queue, view):
    with pytest.raises(TypeError, match="queue is 5; it must be a queue pair"):
        dgkit.QueuePanel(5)
    with pytest.raises(PanelError, match="no handler 'connect'"):
        view(dgkit.QueuePanel(queue)).ask("connect")
