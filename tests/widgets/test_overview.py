# SPDX-License-Identifier: Apache-2.0
"""The overview of a region: what is read, what it says of each part, when it is renewed."""

import math
from itertools import pairwise

import numpy as np
import pytest
from support.processes.waiting import until

import dgkit
from dgkit.widgets.hexview import fetch
from dgkit.widgets.hexview.overview import PARTS, SAMPLE_BYTES, WHOLE_BYTES, reads_of


@pytest.fixture
def region(session):
    return session.empty(1 << 20, name="page")


@pytest.fixture
def hexview(session, region, view):
    return view(dgkit.HexView(session))


def renewed(view, act=None):
    """The message and its buffers (value, entropy, changed) that follow an act of the user."""
    before = len(view.of("overview"))
    (act or (lambda: view.ask("overview", view="one")))()
    until(lambda: len(view.of("overview")) > before, "an overview", timeout=20)
    found = [message for message in view.messages if message[0]["kind"] == "overview"]
    return found[before][0], found[before][1]


@pytest.mark.parametrize("size", [1, 7, 255, 256, 257, 100_003, 1 << 20, WHOLE_BYTES])
def test_a_region_of_up_to_4_mib_is_read_whole_in_bounded_reads(size):
    reads = reads_of(size)
    parts = [part for read in reads for part in read]
    assert len(parts) == min(PARTS, size)
    assert parts[0][0] == 0
    assert all(at + n == later for (at, n), (later, _) in pairwise(parts))
    assert sum(parts[-1]) == size
    assert max(sum(n for _, n in read) for read in reads) <= 256 << 10


@pytest.mark.parametrize("size", [WHOLE_BYTES + 1, 1 << 30, (1 << 40) + 5])
def test_of_a_larger_region_one_mib_is_read_a_piece_of_each_part(size):
    parts = [part for read in reads_of(size) for part in read]
    assert len(parts) == PARTS
    assert sum(n for _, n in parts) == PARTS * SAMPLE_BYTES
    for number, (at, n) in enumerate(parts):
        assert size * number // PARTS <= at
        assert at + n <= size * (number + 1) // PARTS


def test_nothing_is_read_until_a_view_asks(session, hexview, region):
    before = session.stats()["moves"]
    hexview.ask("hello")
    hexview.panel.goto(5)
    assert session.stats()["moves"] == before
    assert renewed(hexview)[0]["read"] == region.size
    assert session.stats()["moves"] == before + 4


def test_mean_and_entropy_of_each_part_are_those_of_its_bytes(hexview, region):
    region.array[: 4 * 4096] = np.repeat([0, 200, 0, 0], 4096).astype("u1")
    region.array[8192:12288] = np.tile(np.arange(256, dtype="u1"), 16)
    region.array[12288:16384:2] = 255
    message, (value, entropy, changed) = renewed(hexview)
    assert (message["region"], message["source"], message["size"]) == (region.id, "dpu", 1 << 20)
    assert list(value[:5]) == [0, 200, 128, 128, 0]
    assert list(entropy[:5]) == [0, 0, 255, round(255 / 8), 0]
    assert changed == bytes(PARTS)


def test_the_entropy_is_shannons(hexview, region):
    region.array[:4096] = np.random.default_rng(1).integers(0, 3, 4096)
    shares = np.bincount(region.array[:4096]) / 4096
    expected = -sum(share * math.log2(share) for share in shares)
    assert renewed(hexview)[1][1][0] == round(expected * 255 / 8)


def test_changed_parts_are_marked_until_they_are_marked_as_seen(hexview, region):
    renewed(hexview)
    region.array[4096 * 7] = 1
    assert [at for at, one in enumerate(renewed(hexview)[1][2]) if one] == [7]
    assert [at for at, one in enumerate(renewed(hexview)[1][2]) if one] == [7]
    assert renewed(hexview, lambda: hexview.ask("mark"))[1][2] == bytes(PARTS)


def test_what_a_panel_writes_is_shown_without_asking(session, hexview, view):
    renewed(hexview)
    _, buffers = renewed(hexview, lambda: hexview.panel.edit(4096 * 3, b"\xff"))
    assert [at for at, one in enumerate(buffers[2]) if one] == [3]


def test_live_viewing_renews_it_and_a_view_that_left_ends_that(hexview, region):
    renewed(hexview, lambda: hexview.ask("overview", view="one"))
    renewed(hexview, lambda: hexview.ask("watch", on=True))
    changed = renewed(hexview, lambda: region.array.__setitem__(0, 9))[1][2]
    assert changed[0]
    hexview.ask("visible", view="one", on=False)
    until(lambda: not hexview.panel._overview._running, "no more scans", timeout=20)
    hexview.ask("watch", on=False)


def test_the_host_sees_it_without_dma_where_the_host_is_the_source(session, hexview):
    renewed(hexview)
    before = session.stats()["moves"]
    message, _ = renewed(hexview, lambda: hexview.ask("show", source="host"))
    assert message["source"] == "host"
    assert session.stats()["moves"] == before


def test_another_region_begins_anew(session, hexview):
    renewed(hexview)
    other = session.empty(100, name="small")
    message, buffers = renewed(hexview, lambda: hexview.ask("choose", number=other.id))
    assert (message["region"], message["read"], len(buffers[0])) == (other.id, 100, 100)


def test_what_cannot_be_read_is_said_in_the_strip_alone(hexview, monkeypatch):
    def refuse(*_about):
        raise dgkit.PeerTimeout("the DPU has not answered")

    monkeypatch.setattr(fetch.Reader, "start", refuse)
    assert renewed(hexview)[0]["error"] == "the DPU has not answered"
    assert not hexview.errors


def test_a_region_that_is_freed_meanwhile_is_not_an_error(hexview, region):
    hexview.ask("overview", view="one")
    region.close()
    until(lambda: not hexview.panel._overview._running, "the scan has ended", timeout=20)
    assert not hexview.errors


def test_a_closed_panel_scans_no_more(hexview):
    hexview.ask("overview", view="one")
    scan = hexview.panel._overview
    hexview.panel.close()
    assert not scan._running
