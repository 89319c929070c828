# SPDX-License-Identifier: Apache-2.0
"""Copy as Python: the lines are run, and do what the panel did."""

import numpy as np
import pytest
from support.jupyter.panels import PanelError, View
from support.jupyter.transfer import start
from support.processes.waiting import until

import dgkit
from dgkit.widgets.dashboard.panels import create_panels

SIZE = 1 << 16
SECOND = pytest.mark.filterwarnings("ignore:there is an open region")  # its lines make another


@pytest.fixture(scope="module", autouse=True)
def imported():
    """All panels are imported before `notebook` replaces IPython."""
    with dgkit.connect() as session:
        for panel in create_panels(session):
            panel.close()


@pytest.fixture
def region(session):
    region = session.empty(SIZE, name="grid")
    region.array[:] = np.arange(SIZE) % 251
    return region


@pytest.fixture
def named(notebook, session):
    """The notebook has the session as `dpu`."""
    notebook["dpu"] = session
    return notebook


def run(text, variables):
    """Run lines in the notebook; they import what they need."""
    scope = {key: value for key, value in variables.items() if key not in ("np", "dgkit")}
    exec(compile(text, "copied", "exec"), scope)
    return scope


def copied(view, **fields):
    return view.ask("as_python", **fields)["text"]


def counted(session):
    return session.stats()["your_moves"]


@pytest.mark.parametrize(
    "fields",
    [
        {"payload": "hello 'µ'"},
        {"kind": "hex", "payload": "de ad be ef", "offset": "0x10"},
        {"kind": "pattern", "payload": "counter", "size": "1000"},
        {"kind": "pattern", "payload": "zeros", "size": "1000"},
        {"kind": "pattern", "payload": "ones", "size": "1000"},
        {"kind": "pattern", "payload": "random:7", "size": "1001", "offset": "3"},
        {"kind": "pattern", "payload": "checkerboard", "size": "999"},
        {"kind": "pattern", "payload": "byte:0xab", "size": "5"},
        {"kind": "pattern", "payload": "text:abc", "size": "100"},
        {"kind": "expression", "payload": "np.arange(9, dtype='u4')"},
        {"kind": "expression", "payload": "b'by\\0tes'"},
        {"payload": "again", "repeat": "5"},
        {"payload": "at once", "repeat": "9", "depth": "4"},
    ],
)
def test_the_lines_of_a_write_write_the_same_as_often(session, view, region, named, fields):
    panel = view(dgkit.TransferPanel(session))
    before, clean = counted(session), bytes(region.array)
    record = start(panel, region, **fields)[-1]
    moves, written = counted(session) - before, bytes(region.array)
    assert record["status"] == "OK"
    assert written != clean
    region.array[:] = np.frombuffer(clean, "u1")
    run(copied(panel, number=record["number"]), named)
    assert bytes(region.array) == written
    assert counted(session) - before == 2 * moves


def test_the_lines_of_a_read_read_the_same(session, view, region, named):
    panel = view(dgkit.TransferPanel(session))
    record = start(panel, region, op="read", size="100", offset="50", repeat="2")[-1]
    scope = run(copied(panel, number=record["number"]), named)
    assert scope["data"] == bytes(region.array[50:150])
    with pytest.raises(PanelError, match="no completion 99 is listed"):
        copied(panel, number=99)
    panel.panel.transfer("read", region, size=1, repeat=60).wait()
    with pytest.raises(PanelError, match="no completion 1 is listed"):
        copied(panel, number=1)
    assert len(panel.panel._requested) == 50


@SECOND
@pytest.mark.parametrize(
    "fields",
    [
        {"shape": "4096", "dtype": "u1", "on": "host", "fill": "random:3"},
        {"shape": "32, 8", "dtype": "f4", "on": "host", "fill": "counter"},
        {"shape": "300", "dtype": "i2", "on": "dpu", "fill": "text:dgkit "},
        {"shape": "64", "dtype": "u1", "on": "dpu", "fill": "zeros"},
    ],
)
def test_the_lines_of_an_allocation_make_an_equal_region(session, view, named, fields):
    panel = view(dgkit.AllocatePanel(session))
    panel.ask("make", name="made", **fields)
    made = until(lambda: session.regions and not panel.panel._jobs and session.regions[0], "made")
    other = run(copied(panel, region=made.id), named)["region"]
    assert other is not made
    assert other in session.regions
    for name in ("name", "size", "on", "place", "access"):
        assert getattr(other, name) == getattr(made, name)
    if made.on == "host":
        assert (other.array.dtype, other.array.shape) == (made.array.dtype, made.array.shape)
    assert session.read(other, other.size) == session.read(made, made.size)


@SECOND
@pytest.mark.parametrize("align", [False, True])
def test_the_lines_of_a_region_of_records_have_its_dtype(session, view, named, align):
    panel = view(dgkit.AllocatePanel(session))
    dtype = np.dtype([("head", [("magic", "<u4"), ("kind", "u1")]), ("xyz", "<f4", 3)], align=align)
    made = session.empty(10, dtype=dtype, name="records")
    other = run(copied(panel, region=made.id), named)["region"]
    assert (other.array.dtype, other.array.shape) == (dtype, (10,))


@SECOND
def test_the_lines_of_a_registration_register_the_same_variable(session, view, named):
    named["mine"] = bytearray(b"in place")
    panel = view(dgkit.AllocatePanel(session))
    panel.ask("register", variable="mine", access="r", name="of mine")
    until(lambda: panel.panel._variables, "registered")
    (made,) = session.regions
    text = copied(panel, region=made.id)
    made.close()
    other = run(text, named)["region"]
    assert (other.name, str(other.access), session.read(other, 8)) == ("of mine", "r", b"in place")


@pytest.mark.parametrize("own", [False, True])
def test_the_lines_of_a_measurement_measure_the_same(session, view, region, named, own, capsys):
    plot = view(dgkit.LatencyPlot(session, None if own else region, size=4096, op="read"))
    text = copied(plot).replace("sleep(5)", "sleep(0.5)")
    opened = []
    monitor = session.monitor

    def record(*args, **kwargs):
        opened.append(monitor(*args, **kwargs))
        return opened[-1]

    session.monitor = record
    try:
        scope = run(text, named)
        plot.panel.start()
    finally:
        del session.monitor
    copy, original = opened
    for name in ("size", "op", "path", "count", "every_s", "provider", "where"):
        if not (own and name == "where"):
            assert getattr(copy, name) == getattr(original, name)
    assert (scope["region"] is region) != own
    assert capsys.readouterr().out.count("µs") == 3


@pytest.mark.parametrize("source", ["dpu", "host"])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("start", [0, 250, 251, 252, 60_000, SIZE])
def test_the_lines_of_a_search_find_the_same(session, view, region, named, source, backward, start):
    hexview = view(dgkit.HexView(session))
    hexview.panel.source = source
    for text, kind, dtype in (
        ("fa 00", "hex", "hex"), ("01", "hex", "hex"), ("ff ff", "hex", "hex"),
        ("?5 f? 0?", "hex", "hex"), ("0xf8f7..0xfaf9", "value", "u16"), ("0..1", "value", "bf16"),
    ):  # fmt: skip
        hexview.messages.clear()
        hexview.ask("search", text=text, kind=kind, dtype=dtype, start=start, backward=backward)
        found = hexview.wait_for("search", lambda fields: fields["status"] != "running")
        assert run(copied(hexview), named)["at"] == found.get("at", -1)


def test_the_lines_of_a_comparison_find_and_count_the_same(
    session, view, region, named, monkeypatch, capsys
):
    from dgkit.widgets.hexview import fetch

    def other(region, at, size):
        data = bytearray(bytes(SIZE))
        data[5], data[6], data[5000] = 1, 1, 1
        return bytes(data[at : at + size])

    region.array[:] = 0
    hexview = view(dgkit.HexView(session))
    monkeypatch.setattr(fetch, "host_bytes", other)
    hexview.ask("show", source="both")
    for fields in ({"start": 0}, {"start": 6}, {"start": 5001}, {"start": 5, "backward": True}):
        hexview.messages.clear()
        hexview.ask("compare", **fields)
        found = hexview.wait_for("search", lambda fields: fields["status"] == "found")
        text = copied(hexview).replace("region.array.tobytes()", "other")
        assert run(text, named | {"other": other(region, 0, SIZE)})["at"] == found["at"]
    hexview.ask("compare", start=0, count=True)
    text = copied(hexview).replace("region.array.tobytes()", "other")
    run(text, named | {"other": other(region, 0, SIZE)})
    assert capsys.readouterr().out == "3 bytes in 2 places\n"


def test_the_names_that_the_notebook_has_now_are_used(session, view, region, notebook):
    panel = view(dgkit.TransferPanel(session))
    number = start(panel, region)[-1]["number"]
    found = "next(one for one in session.regions if one.name == 'grid')"
    assert copied(panel, number=number).startswith(f"region = {found}\n")
    notebook["board"] = panel.panel
    text = copied(panel, number=number)
    assert text.startswith(f"session = board.session\nregion = {found}\n")
    notebook["dpu"], notebook["grid"] = session, region
    assert copied(panel, number=number).startswith("session = dpu\nregion = grid\n")
    with pytest.warns(UserWarning, match="an open region .grid."):
        twin = session.empty(SIZE, name="grid")
    by_number = copied(panel, number=start(panel, twin)[-1]["number"])
    assert f"if one.id == {twin.id})" in by_number
    twin.close()


def test_python_of_a_write_keeps_no_large_data(session, view):
    panel = view(dgkit.TransferPanel(session))
    region = session.empty(2 * SIZE)
    panel.panel.transfer("write", region, bytes(2 * SIZE)).wait(10)
    assert "data = data\n" in copied(panel, number=1)
    assert panel.panel._requested[1].payload.data is None


def test_nothing_searched_is_said(session, view, region):
    with pytest.raises(PanelError, match="nothing was searched yet"):
        copied(view(dgkit.HexView(session)))


def test_a_dashboards_own_session_is_named(notebook, view):
    board = dgkit.dashboard()
    try:
        session = board.session
        region = session.empty(64, name="x")
        panel = View(board.panels.transfer)
        record = start(panel, region)[-1]
        text = copied(panel, number=record["number"])
        assert text.startswith("import dgkit\n\nsession = dgkit.dashboard().session\n")
        region.array[:] = 0
        run(text, notebook)
        assert bytes(region.array[:5]) == b"hello"
    finally:
        board.close()
