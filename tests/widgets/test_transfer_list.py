"""The list of TransferPanel: a sequence of transfers that is put together, run, and stops."""

import pytest
from support.jupyter.panels import PanelError
from support.jupyter.transfer import ended, form

from dgkit.widgets.transfer.transfer_panel import TransferPanel

MIB = 1 << 20


@pytest.fixture
def panel(session, view):
    return view(TransferPanel(session))


@pytest.fixture
def region(session):
    with session.empty(MIB, name="r") as region:
        yield region


def test_the_list_is_run_from_the_top(panel, session, region):
    panel.ask("append", form=form(region, payload="first"))
    panel.ask("append", form=form(region, payload="2nd", repeat="3"))
    panel.ask("append", form=form(region, op="read", size="5"))
    listed = panel.ask("hello")["requests"]
    assert [request["op"] for request in listed] == ["write", "write", "read"]
    assert listed[0]["payload"] == "text 'first'"
    panel.ask("run")
    records = ended(panel)["completions"]
    assert [record["what"] for record in records] == ["write r"] * 4 + ["read r"]
    assert panel.ask("hello")["read_result"]["lines"][0].endswith("2ndst")
    assert [request["state"] for request in panel.of("requests")[-1]["requests"]] == ["done"] * 3
    panel.ask("run")
    assert len(ended(panel, 2)["completions"]) == 10


def test_the_list_can_be_reordered_and_emptied(panel, region):
    for text in ("a", "b", "c"):
        panel.ask("append", form=form(region, payload=text))
    first, second, third = (request["id"] for request in panel.ask("hello")["requests"])
    ids = lambda: [request["id"] for request in panel.of("requests")[-1]["requests"]]  # noqa: E731
    panel.ask("move", request=third, by=-1)
    assert ids() == [first, third, second]
    panel.ask("move", request=first, by=-1)
    assert ids() == [first, third, second]
    panel.ask("move", request=first, by=1)
    assert ids() == [third, first, second]
    for request in (first, second, third):
        panel.ask("remove", request=request)
    assert ids() == []
    for name, fields in (("remove", {}), ("move", {"by": 1})):
        with pytest.raises(PanelError, match="no transfer"):
            panel.ask(name, request=first, **fields)
    with pytest.raises(PanelError, match="the list is empty"):
        panel.ask("run")


def test_the_list_is_bounded(panel, region, monkeypatch):
    monkeypatch.setattr("dgkit.widgets.transfer.transfer_panel._MAX_REQUESTS", 2)
    for _ in range(2):
        panel.ask("append", form=form(region))
    with pytest.raises(PanelError, match="the list is full, the limit is 2"):
        panel.ask("append", form=form(region))


def test_the_data_that_the_list_holds_is_bounded(panel, region, monkeypatch):
    panel.ask("append", form=form(region, kind="pattern", payload="ones", size="1K"))
    monkeypatch.setattr("dgkit.widgets.transfer.request.MAX_PAYLOAD", 64)
    panel.ask("append", form=form(region, payload="x" * 40))
    with pytest.raises(PanelError, match="would hold 80 B of data; the limit is 64 B") as caught:
        panel.ask("append", form=form(region, payload="x" * 40))
    assert caught.value.field == "payload"
    assert len(panel.ask("hello")["requests"]) == 2


def test_a_sequence_stops_at_the_first_failure(panel, session, region):
    with session.empty(64, name="gone") as gone:
        panel.ask("append", form=form(region))
        panel.ask("append", form=form(gone, payload="x"))
        panel.ask("append", form=form(region, payload="never"))
    panel.ask("run")
    records = ended(panel)["completions"]
    assert [record["status"] for record in records] == ["OK", "CLOSED"]
    assert "'gone' is closed" in records[1]["error"]
    states = [request["state"] for request in panel.of("requests")[-1]["requests"]]
    assert states == ["done", "failed", "waiting"]
    assert panel.of("requests")[-1]["requests"][1]["freed"]
    assert "is closed" in panel.wait_for("failed")["error"]["text"]
    assert panel.of("run")[-1]["ended"] == "1 transfer completed, then one failed."
    assert region.array[:5].tobytes() == b"hello"


def test_the_views_show_which_transfer_of_the_list_runs(panel, region):
    for text in ("a", "b"):
        panel.panel.add("write", region, text.encode())
    panel.panel.run_all().wait(10)
    seen = [
        [request["state"] for request in message["requests"]] for message in panel.of("requests")
    ]
    assert seen[-1] == ["done", "done"]
    assert ["running", "waiting"] in seen or ["done", "running"] in seen
