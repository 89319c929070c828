# SPDX-License-Identifier: Apache-2.0
"""The hex view over GPU memory: the host's view is a copy of what is in view, and no more."""

import cupy
import pytest
from support.jupyter.panels import View
from support.processes.waiting import until

import dgkit
from dgkit.widgets.hexview import fetch as hexbytes
from dgkit.widgets.hexview.hexview import HexView

SIZE = 3 << 20


@pytest.fixture(scope="module")
def session():
    with dgkit.connect(provider="cuda") as made:
        yield made


@pytest.fixture
def region(session):
    with session.empty((SIZE // 4,), "u4", on="gpu", name="g") as region:
        region.array[:] = cupy.arange(SIZE // 4, dtype="u4")
        yield region


@pytest.fixture
def hexview(session, region):
    made = View(HexView(session, region))
    yield made
    made.panel.close()


@pytest.mark.any_gpu
def test_the_gpu_and_the_dpu_have_the_same_bytes(hexview, region):
    hexview.ask("show", source="both")
    reply = hexview.ask("fetch", view="one", at=4000, n=400)
    expected = region.array.get().tobytes()[4000:4400]
    assert reply["buffers"] == [expected, expected]
    hexview.ask("compare", start=0, count=True)
    counted = hexview.wait_for("search", lambda fields: fields["status"] == "counted", seconds=30)
    assert counted["bytes"] == 0


def test_no_more_than_what_is_in_view_leaves_the_gpu(region, monkeypatch):
    sizes, get = [], cupy.ndarray.get
    monkeypatch.setattr(
        cupy.ndarray, "get", lambda self, *a, **k: sizes.append(self.nbytes) or get(self, *a, **k)
    )
    assert hexbytes.host_bytes(region, 1 << 20, 256) == bytes(
        byte for number in range(1 << 18, (1 << 18) + 64) for byte in number.to_bytes(4, "little")
    )
    assert sizes == [256]


def test_a_typed_byte_reaches_the_gpu_and_what_is_there_is_found(hexview, region):
    region.array[:] = 0
    hexview.ask("put", at=8, buffers=[b"\xaa\xbb"])
    until(lambda: hexview.of("edited"), "the write")
    assert region.array[2].get() == 0xBBAA
    for source in ("dpu", "host"):
        hexview.ask("show", source=source)
        hexview.messages.clear()
        hexview.ask("search", text="aa bb", kind="hex", start=9)
        found = hexview.wait_for("search", lambda fields: fields["status"] == "found", seconds=30)
        assert (found["at"], found["wrapped"]) == (8, True)
