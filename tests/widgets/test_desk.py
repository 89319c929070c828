"""What the panels of one session share: regions, the selected one, and who is told when."""

import gc
import threading

import pytest
from support.processes.waiting import until

import dgkit
from dgkit.widgets.base.panel import Panel
from dgkit.widgets.base.session_model import Desk, describe


class Sample(Panel):
    name = "sample"
    title = "A sample"


@pytest.fixture
def shown(session, view):
    """A view of a panel that subscribed."""
    made = view(Sample())
    Desk.of(session).subscribe(made.panel)
    return made


def test_a_session_has_one_desk(session):
    assert Desk.of(session) is Desk.of(session)
    with dgkit.connect() as other:
        assert Desk.of(other) is not Desk.of(session)


def test_a_region_is_described_in_plain_values(session):
    region = session.empty((2, 3), "f4", name="grid")
    about = describe(region)
    assert (about["name"], about["size"], about["dtype"], about["shape"]) == (
        "grid", 24, "float32", [2, 3],
    )  # fmt: skip
    assert (about["side"], about["place"], about["access"]) == ("host", "host", "rw")
    assert about["here"]
    at_the_dpu = describe(session.empty(16, on="dpu"))
    assert (at_the_dpu["side"], at_the_dpu["here"], at_the_dpu["shape"]) == ("dpu", False, [16])


def test_views_hear_of_regions_that_a_cell_makes_and_frees(session, shown):
    region = session.empty(64, name="made in a cell")
    message = shown.wait_for("desk", lambda told: told["desk"]["regions"])
    assert message["what"] == "regions"
    assert [about["name"] for about in message["desk"]["regions"]] == ["made in a cell"]
    assert message["desk"]["label"] == "software DPU"
    region.close()
    shown.wait_for("desk", lambda told: not told["desk"]["regions"])


def test_the_first_region_is_looked_at_until_another_is_chosen(session, shown):
    desk = Desk.of(session)
    assert desk.selected == 0
    with pytest.raises(ValueError, match=r"no live region 0; live are: none"):
        desk.region()
    first, second = session.empty(64), session.empty(64)
    assert desk.region() is first
    desk.select(second.id)
    assert shown.of("desk")[-1]["desk"]["selected"] == second.id
    second.close()
    assert desk.region() is first
    with pytest.raises(ValueError, match=f"no live region {second.id}; live are: {first.id}"):
        desk.select(second.id)


def test_who_listens_is_called_for_as_long_as_it_lives(session):
    class Listener:
        def __init__(self):
            self.heard = heard

        def hear(self, what):
            self.heard.append(what)

    heard = []
    listener = Listener()
    desk = Desk.of(session)
    desk.listen(listener.hear)
    region = session.empty(64)
    until(lambda: heard == ["regions"], "it heard of the region")
    desk.written(region.id)
    assert heard == ["regions", "written"]
    del listener
    gc.collect()
    desk.written(region.id)
    assert heard == ["regions", "written"]


def test_bytes_that_were_written_carry_no_state(session, shown):
    region = session.empty(64)
    shown.wait_for("desk")
    Desk.of(session).written(region.id)
    assert shown.of("desk")[-1] == {"kind": "desk", "what": "written", "id": region.id}


def test_of_many_regions_the_newest_travel_and_the_one_that_is_looked_at(session, monkeypatch):
    monkeypatch.setattr("dgkit.widgets.base.session_model._MOST", 3)
    made = [session.empty(64).id for _ in range(6)]
    desk = Desk.of(session)
    desk.select(made[1])
    state = desk.state()
    assert [about["id"] for about in state["regions"]] == [made[1], *made[3:]]
    assert (state["count"], state["selected"]) == (6, made[1])
    desk.select(made[4])
    assert [about["id"] for about in desk.state()["regions"]] == made[3:]


def test_one_that_fails_takes_nothing_from_the_others(session, shown, view, caplog, monkeypatch):
    class Listener:
        def hear(self, what):
            heard.append(what)
            raise LookupError("it cannot hear")

    heard, bad, desk = [], view(Sample()), Desk.of(session)
    desk.subscribe(bad.panel)
    listeners = Listener(), Listener()
    for listener in listeners:
        desk.listen(listener.hear)
    monkeypatch.setattr(bad.panel, "tell", lambda *_, **__: 1 / 0)
    desk.written(1)
    assert [told["what"] for told in shown.of("desk")] == ["written"]
    assert heard == ["written", "written"]
    assert "ZeroDivisionError" in caplog.text
    assert "it cannot hear" in caplog.text


def test_panels_may_come_while_the_others_are_told(session):
    class Quiet:
        def tell(self, *_, **__):
            pass

    desk, ended, kept, errors = Desk.of(session), threading.Event(), [], []

    def tell():
        try:
            while not ended.is_set():
                desk.written(1)
        except RuntimeError as error:
            errors.append(error)

    telling = threading.Thread(target=tell)
    telling.start()
    for _ in range(20_000):
        kept = [*kept[-50:], Quiet()]
        desk.subscribe(kept[-1])
    ended.set()
    telling.join()
    assert not errors


def test_a_closed_session_is_told_and_has_no_regions(session, shown):
    session.empty(64)
    session.close()
    told = shown.wait_for("desk", lambda told: told["desk"]["closed"])
    assert (told["desk"]["regions"], told["desk"]["label"]) == ([], "closed")


def test_a_desk_does_not_keep_its_session():
    session = dgkit.connect()
    desk = Desk.of(session)
    session.close()
    until(lambda: desk._telling is None, "all were told")
    del session
    gc.collect()
    with pytest.raises(ReferenceError):
        _ = desk.session


def test_memory_that_is_a_panel_s_own_is_not_offered(session, shown):
    desk = Desk.of(session)
    own = session.empty(64, name="own")
    desk.hide(own)
    assert desk.state()["regions"] == []
    assert desk.selected == 0
    region = session.empty(64, name="mine")
    told = shown.wait_for("desk", lambda told: told["desk"]["regions"])
    assert [about["name"] for about in told["desk"]["regions"]] == ["mine"]
    assert desk.region() is region
    with pytest.raises(ValueError, match="no live region"):
        desk.select(own.id)
