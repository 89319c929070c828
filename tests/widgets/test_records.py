"""The table of records of a hex view: a region's dtype, pages, filters and orders."""

import numpy as np
import pytest
from support.processes.waiting import until

import dgkit

RECORD = np.dtype(
    [("id", "<u4"), ("kind", "S4"), ("load", "<f8"), ("big", ">i2"), ("raw", "u1", 2)]
)


@pytest.fixture
def session(own_session):
    return own_session


@pytest.fixture
def region(session):
    made = session.empty(1000, dtype=RECORD, name="records")
    rng = np.random.default_rng(1)
    made.array["id"] = np.arange(1000)
    made.array["kind"] = rng.choice([b"dma", b"rdma"], 1000)
    made.array["load"] = rng.random(1000)
    made.array["big"] = rng.integers(-9, 9, 1000)
    return made


@pytest.fixture
def view(session, region):
    panel = dgkit.HexView(session, region)
    yield panel
    panel.close()


def arranged(view, where="", **order):
    view.arrange(where, **order)
    until(lambda: not view.state()["records"]["busy"], "the records are arranged")
    count = view.state()["records"]["shown"]
    rows = []
    while len(rows) < count:
        rows += view._records.records(len(rows), 64)["rows"]
    return [row[0] for row in rows]


def test_the_dtype_of_a_region_is_its_structure_until_another_is_assigned(view, session):
    assert view.structure == RECORD
    assert view.state()["structure"]["size"] == RECORD.itemsize
    view.structure = {"a": "u32"}
    assert view.state()["records"]["count"] == 5000
    view.structure = None
    assert view.structure == RECORD
    view.region = session.empty(64)
    assert view.structure is None
    assert view.state()["records"] is None


def test_a_page_has_the_values_of_its_records(view, region):
    state = view.state()["records"]
    assert [name for name, _ in state["columns"]] == ["id", "kind", "load", "big", "raw"]
    assert (state["count"], state["size"]) == (1000, 20)
    page = view._records.records(998, 12)
    one = region.array[999]
    assert page["rows"][1] == [
        999, "999", repr(one["kind"].item()), f"{one['load']:.9g}", str(one["big"]), "[0, 0]",
    ]  # fmt: skip
    assert len(page["rows"]) == 2
    assert len(view._records.records(0, 10**9)["rows"]) == 64


@pytest.mark.parametrize("field", ["id", "kind", "load", "big"])
@pytest.mark.parametrize("descending", [False, True])
def test_records_are_sorted_and_equal_ones_stay_in_order(view, region, field, descending):
    values = region.array[field].tolist()
    wanted = sorted(range(1000), key=lambda number: values[number], reverse=descending)
    assert arranged(view, sort=field, descending=descending) == wanted


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("id >= 0x3e0", lambda one: one["id"] >= 992),
        ("kind == 'dma' and load < 0.5", lambda one: one["kind"] == b"dma" and one["load"] < 0.5),
        ("big!=-3", lambda one: one["big"] != -3),
        ("id < 0", lambda one: False),
    ],
)
def test_a_filter_shows_the_records_that_satisfy_all_its_conditions(view, region, where, chosen):
    wanted = [number for number, one in enumerate(region.array) if chosen(one)]
    assert arranged(view, where) == wanted
    assert arranged(view, where, sort="load") == sorted(
        wanted, key=lambda number: region.array["load"][number]
    )
    assert arranged(view) == [*range(1000)]


def test_a_sorted_page_shows_the_values_of_now(view, region):
    first = arranged(view, sort="load")[0]
    region.array["big"][first] = 77
    assert view._records.records(0, 1)["rows"][0][4] == "77"


@pytest.mark.parametrize(
    ("where", "sort", "text"),
    [
        ("id", "", "'id' is no condition; write for example: size > 0x40 and kind == 3"),
        ("di > 3", "", "there is no field 'di'; fields: id, kind, load, big, raw"),
        ("id > many", "", "'many' is no value of field 'id' (u32)"),
        ("", "raw", "field 'raw' is u8[2]: records are compared by single values"),
    ],
)
def test_a_wrong_order_is_refused_and_changes_nothing(view, where, sort, text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        view.arrange(where, sort=sort)
    assert str(caught.value) == text
    assert view.state()["records"]["where"] == ""


def test_an_order_ends_with_the_structure_that_it_belongs_to(view):
    arranged(view, "id < 3")
    view.structure = {"a": "u16"}
    assert view.state()["records"]["shown"] == 10_000
    assert view.state()["records"]["where"] == ""


def test_a_view_of_dpu_memory_has_records_in_order_only(session):
    region = session.empty(400, on="dpu")
    view = dgkit.HexView(session, region)
    view.structure = {"a": "u32"}
    assert len(view._records.records(0, 12)["rows"]) == 12
    with pytest.raises(ValueError, match="sorted and filtered in the host's memory"):
        view.arrange(sort="a")
    view.close()
