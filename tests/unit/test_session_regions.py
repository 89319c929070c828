# SPDX-License-Identifier: Apache-2.0
"""A session's regions as a list, and who is told when it changes."""

import pytest

import dgkit


@pytest.fixture
def session():
    with dgkit.connect() as made:
        yield made


def test_the_regions_are_those_that_are_open_in_the_order_made(session):
    one, two, three = (session.empty(64) for _ in range(3))
    assert session.regions == (one, two, three)
    two.close()
    four = session.register(bytearray(8))
    assert session.regions == (one, three, four)
    session.close()
    assert session.regions == ()
    assert all(region.closed for region in (one, three, four))


def test_who_asked_is_told_after_each_change_and_not_after_taking_it_back(session):
    seen = []
    undo = session.on_change(lambda: seen.append([region.name for region in session.regions]))
    one = session.empty(64, name="one")
    with pytest.raises(ValueError, match="-1"):
        session.empty(-1)
    two = session.empty(64, name="two")
    one.close()
    one.close()
    assert seen == [["one"], ["one", "two"], ["two"]]
    undo()
    undo()
    two.close()
    assert len(seen) == 3


def test_a_region_that_closed_is_closed_when_it_is_told(session):
    region = session.empty(64)
    seen = []
    session.on_change(lambda: seen.append((region.closed, session.closed)))
    region.close()
    session.close()
    session.close()
    assert seen == [(True, False), (True, True)]


def test_a_call_that_fails_is_warned_of_and_stops_nothing(session):
    told = []
    session.on_change(lambda: 1 / 0)
    session.on_change(lambda: told.append(1))
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
        region = session.empty(64)
    assert told == [1]
    assert session.write(region, b"works").size == 5
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
        session.close()
    assert session.closed


@pytest.mark.parametrize("make", ["empty", "register"])
def test_replace_closes_the_regions_of_the_same_name_and_no_other(session, make):
    argument = {"empty": 64, "register": bytearray(64)}[make]
    other = session.empty(64, name="other")
    old = [session.empty(64, name="mine")]
    with pytest.warns(UserWarning, match="an open region 'mine'") as warned:
        old.append(getattr(session, make)(argument, name="mine"))
    assert warned[0].filename == __file__
    new = getattr(session, make)(argument, name="mine", replace=True)
    assert session.regions == (other, new)
    assert [region.closed for region in old] == [True, True]
    assert session.read(new, 64) == bytes(64)


def test_replace_closes_nothing_if_the_new_region_cannot_be_made(session):
    old = session.empty(64, name="mine")
    with pytest.raises(ValueError, match="-1"):
        session.empty(-1, name="mine", replace=True)
    for wrong, text in ((None, "pass name="), ("", "pass name=")):
        with pytest.raises(ValueError, match=text):
            session.empty(64, name=wrong, replace=True)
    with pytest.raises(TypeError, match="replace is 1"):
        session.empty(64, name="mine", replace=1)
    assert session.regions == (old,)


def test_the_new_region_is_freed_if_the_old_one_is_busy(session, monkeypatch):
    old = session.empty(64, name="mine")

    def busy(*_):
        raise dgkit.RegionBusy(16, "a transfer is in flight")

    with monkeypatch.context() as patched:
        patched.setattr(session.dpu, "forget", lambda region, _: busy() if region is old else None)
        with pytest.raises(dgkit.RegionBusy):
            session.empty(64, name="mine", replace=True)
    assert session.regions == (old,)


def test_a_region_lists_what_its_user_needs(session):
    region = session.empty(64, name="mine")
    names = {name for name in dir(region) if not name.startswith("_")}
    assert {"array", "close", "name", "size"} <= names
    assert not names & {"creations", "free_at_agents", "handle", "local", "producer", "token"}
    assert all(hasattr(region, name) for name in names)
