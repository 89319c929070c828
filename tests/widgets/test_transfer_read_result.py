"""The result of a read of TransferPanel: shown, kept as a variable, held no longer than that."""

import weakref

import numpy as np
import pytest
from support.jupyter.panels import PanelError
from support.jupyter.transfer import start
from support.processes.waiting import until

from dgkit.session import SessionTransfer
from dgkit.widgets.transfer.transfer_panel import TransferPanel

MIB = 1 << 20


@pytest.fixture
def panel(session, view):
    return view(TransferPanel(session))


@pytest.fixture
def region(session):
    with session.empty(MIB, name="r") as region:
        yield region


def test_the_bytes_of_a_read_are_shown_and_can_be_kept(panel, session, region, notebook):
    region.array[:] = np.arange(MIB) % 251
    with pytest.raises(PanelError, match="nothing has been read"):
        panel.ask("keep", name="data")
    start(panel, region, op="read", size="1K", offset="64K")
    result = panel.ask("hello")["read_result"]
    assert (result["size"], result["what"]) == (1024, "read r")
    assert result["lines"][0].startswith("00010000  19 1a 1b")
    assert "1,024 bytes" in panel.ask("keep", name="data")["text"]
    assert notebook["data"] == region.array[1 << 16 :][:1024].tobytes()
    assert not panel.of("results")[-1]["read_result"]["whole"]
    with pytest.raises(PanelError, match="read them again"):
        panel.ask("keep", name="other")
    start(panel, region, op="read", size="1K")
    panel.ask("keep", name="data")
    assert notebook["data"] == region.array[:1024].tobytes()
    start(panel, region, op="read", size="1K")
    notebook["data"] = notebook["mine"] = 4
    for name in ("mine", "data", "2x"):
        with pytest.raises(PanelError) as caught:
            panel.ask("keep", name=name)
        assert caught.value.field == "keep"
    assert (notebook["mine"], notebook["data"]) == (4, 4)


def test_the_result_of_a_read_is_held_until_it_is_kept_or_discarded(panel, region, notebook):
    held = panel.panel._read_result
    run = panel.panel.transfer("read", region, size=MIB).wait(10)
    whole = weakref.ref(held._read.transfer)
    assert panel.ask("hello")["read_result"]["whole"]
    panel.ask("discard")
    del run
    until(lambda: whole() is None, "its memory is given back")
    result = panel.ask("hello")["read_result"]
    assert (result["whole"], result["size"], len(result["lines"])) == (False, MIB, 8)
    panel.panel.transfer("read", region, size=MIB).wait(10)
    panel.ask("keep", name="data")
    assert list(held._kept) == ["data"]
    del notebook["data"]
    panel.panel.transfer("write", region, b"x").wait(10)
    assert held._kept == {}


def test_a_view_asks_for_the_first_bytes_of_a_read_and_copies_no_more(panel, region, monkeypatch):
    copied = []
    first = SessionTransfer.first
    monkeypatch.setattr(SessionTransfer, "first", lambda *args: copied.append(args) or first(*args))
    panel.panel.transfer("read", region, size=MIB).wait(10)
    for _ in range(3):
        panel.ask("hello")
    assert [size for _, size in copied] == [128]
