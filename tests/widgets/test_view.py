# SPDX-License-Identifier: Apache-2.0
"""view() of all kinds of things that have bytes."""

import os

import numpy as np
import pytest
from support.doca.captures import HEAD, PING, packet

import dgkit
from dgkit.widgets import view as module
from dgkit.widgets.doctor import DoctorPanel
from dgkit.widgets.hexview import HexView
from dgkit.widgets.packets import PacketPanel


@pytest.fixture
def shown(session):
    panels = []

    def show(thing):
        panels.append(dgkit.view(thing, session=session))
        return panels[-1]

    yield show
    for panel in panels:
        panel.close()
    assert not session.regions


def test_objects_are_shown_in_place_and_their_regions_end_with_the_view(shown, session):
    pixels = np.arange(12, dtype="u1").reshape(3, 4)
    panel = shown(pixels)
    assert isinstance(panel, HexView)
    assert (panel.image["dtype"], panel.image["width"]) == ("u8", 4)
    assert shown(np.ones((2, 3, 5), "f4")).image["width"] == 5
    assert shown(np.ones((2, 5), "c8")).image is None
    panel.select(0, 12)
    assert panel.value == pixels.tobytes()
    assert [shown(thing).image for thing in (b"bytes", bytearray(8), dgkit.empty(8))] == [None] * 3
    region = session.empty((2, 8), name="mine")
    panel = shown(region)
    assert (panel.region, panel.image["width"]) == (region, 8)
    panel.close()
    assert not region.closed
    region.close()


def test_a_descriptor_has_its_fields(shown):
    with dgkit.Device("soft") as device, device.register(bytearray(4096)) as region:
        panel = shown(region.export())
        names = [field[0] for field in panel._structure.state()["fields"]]
        fields = dict(zip(names, panel._structure.fields()["values"], strict=True))
    assert "DGKIT" in fields["magic"]
    assert fields["size"].replace(",", "").startswith("4096")


def test_files_are_shown_by_what_they_are(shown, tmp_path):
    capture, text = tmp_path / "a.pcapng", tmp_path / "a.txt"
    capture.write_bytes(HEAD + packet(PING))
    text.write_bytes(b"text")
    panel = shown(str(text))
    panel.select(0, 4)
    assert (panel.region.name, panel.value) == ("a.txt", b"text")
    assert isinstance(shown(capture), PacketPanel)
    recorded = "notebooks/tutorials/machines/machine-a.snap"
    assert isinstance(shown(recorded), DoctorPanel)
    text.write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.txt has 0 bytes"):
        shown(text)
    with pytest.raises(FileNotFoundError):
        shown(tmp_path / "none")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ValueError, match="fifo is no regular file"):
        shown(tmp_path / "fifo")


def test_what_has_no_bytes_is_refused_and_one_dpu_serves_all(monkeypatch):
    with pytest.raises(TypeError):
        dgkit.view(3)
    [session] = module._own
    panel = dgkit.view(b"more")
    assert panel.session is session
    panel.close()
    session.close()
