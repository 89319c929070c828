# SPDX-License-Identifier: Apache-2.0
"""State that panels of one session share: regions, the selection, and notifications."""

import gc
import threading

import pytest
from support.processes.waiting import until

import dgkit
from dgkit.widgets.base.panel import Panel
from dgkit.widgets.base.session_model import SessionModel, describe


class Sample(Panel):
    name = "figure"  # any panel's
    title = "A sample"


@pytest.fixture
def shown(session, view):
    """A view of a panel that subscribed."""
    made = view(Sample())
    SessionModel.of(session).subscribe(made.panel)
    return made


def test_a_session_has_one_model(session):
    assert SessionModel.of(session) is SessionModel.of(session)
    with dgkit.connect() as other:
        assert SessionModel.of(other) is not SessionModel.of(session)


def test_a_region_is_described_in_plain_values(session):
    region = session.empty((2, 3), "f4", name="grid")
    about = describe(region)
    assert (about["name"], about["size"], about["dtype"], about["shape"]) == (
        "grid", 24, "float32", [2, 3],
    )  # fmt: skip
    assert (about["side"], about["place"], about["access"]) == ("host", "host", "rw")
    assert about["local"]
    at_the_dpu = describe(session.empty(16, on="dpu"))
    assert (at_the_dpu["side"], at_the_dpu["local"], at_the_dpu["shape"]) == ("dpu", False, [16])


def test_views_hear_of_regions_that_a_cell_makes_and_frees(session, shown):
    region = session.empty(64, name="made in a cell")
    message = shown.wait_for("session", lambda message: message["session"]["regions"])
    assert message["change"] == "regions"
    assert [about["name"] for about in message["session"]["regions"]] == ["made in a cell"]
    assert message["session"]["label"] == "software DPU"
    region.close()
    shown.wait_for("session", lambda message: not message["session"]["regions"])


def test_the_first_region_is_looked_at_until_another_is_chosen(session, shown):
    model = SessionModel.of(session)
    assert model.selected == 0
    with pytest.raises(ValueError, match=r"no live region 0; live regions: none"):
        model.region()
    first, second = session.empty(64), session.empty(64)
    assert model.region() is first
    model.select(second.id)
    assert shown.of("session")[-1]["session"]["selected"] == second.id
    second.close()
    assert model.region() is first
    with pytest.raises(ValueError, match=f"no live region {second.id}; live regions: {first.id}"):
        model.select(second.id)


def test_who_listens_is_called_until_that_is_undone(session):
    heard = []
    model = SessionModel.of(session)
    undo = model.listen(heard.append, "regions", "written")
    region = session.empty(64)
    until(lambda: heard == ["regions"], "it heard of the region")
    model.written(region.id)
    assert heard == ["regions", "written"]
    undo()
    undo()
    model.written(region.id)
    assert heard == ["regions", "written"]


def test_bytes_that_were_written_carry_no_state(session, shown):
    region = session.empty(64)
    shown.wait_for("session")
    SessionModel.of(session).written(region.id)
    assert shown.of("session")[-1] == {"kind": "session", "change": "written", "id": region.id}


def test_of_many_regions_the_newest_travel_and_the_one_that_is_looked_at(session, monkeypatch):
    monkeypatch.setattr("dgkit.widgets.base.session_model._MAX_REGIONS", 3)
    made = [session.empty(64).id for _ in range(6)]
    model = SessionModel.of(session)
    model.select(made[1])
    state = model.state()
    assert [about["id"] for about in state["regions"]] == [made[1], *made[3:]]
    assert (state["count"], state["selected"]) == (6, made[1])
    model.select(made[4])
    assert [about["id"] for about in model.state()["regions"]] == made[3:]


def test_one_that_fails_takes_nothing_from_the_others(session, shown, view, caplog, monkeypatch):
    class Listener:
        def hear(self, what):
            heard.append(what)
            raise LookupError("it cannot hear")

    heard, bad, model = [], view(Sample()), SessionModel.of(session)
    model.subscribe(bad.panel)
    listeners = Listener(), Listener()
    for listener in listeners:
        model.listen(listener.hear, "written")
    monkeypatch.setattr(bad.panel, "broadcast", lambda *_, **__: 1 / 0)
    model.written(1)
    assert [message["change"] for message in shown.of("session")] == ["written"]
    assert heard == ["written", "written"]
    assert "ZeroDivisionError" in caplog.text
    assert "it cannot hear" in caplog.text


def test_panels_may_come_while_others_are_notified(session):
    class Quiet:
        def broadcast(self, *_, **__):
            pass

        def on_close(self, _call):
            pass

    model, ended, kept, errors = SessionModel.of(session), threading.Event(), [], []

    def notify():
        try:
            while not ended.is_set():
                model.written(1)
        except RuntimeError as error:
            errors.append(error)

    notifying = threading.Thread(target=notify)
    notifying.start()
    for _ in range(20_000):
        kept = [*kept[-50:], Quiet()]
        model.subscribe(kept[-1])
    ended.set()
    notifying.join()
    assert not errors


def test_a_closed_session_is_reported_and_has_no_regions(session, shown):
    session.empty(64)
    session.close()
    message = shown.wait_for("session", lambda message: message["session"]["closed"])
    assert (message["session"]["regions"], message["session"]["label"]) == ([], "closed")


def test_a_model_does_not_keep_its_session():
    session = dgkit.connect()
    model = SessionModel.of(session)
    session.close()
    until(lambda: model._notifying is None, "all were notified")
    del session
    gc.collect()
    with pytest.raises(ReferenceError):
        _ = model.session


def test_memory_that_is_a_panel_s_own_is_not_offered(session, shown):
    model = SessionModel.of(session)
    own = session.empty(64, name="own")
    model.hide(own)
    assert model.state()["regions"] == []
    assert model.selected == 0
    region = session.empty(64, name="mine")
    message = shown.wait_for("session", lambda message: message["session"]["regions"])
    assert [about["name"] for about in message["session"]["regions"]] == ["mine"]
    assert model.region() is region
    with pytest.raises(ValueError, match="no live region"):
        model.select(own.id)
