# SPDX-License-Identifier: Apache-2.0
"""What a saved notebook shows of panels and figures: published, renewed, small."""

import base64
import io
import tracemalloc

import numpy as np
import pytest
from bokeh.models import FactorRange, LinearColorMapper
from bokeh.palettes import Colorblind8
from bokeh.plotting import figure
from bokeh.transform import factor_cmap
from PIL import Image
from support.jupyter.latency import measured
from support.processes.waiting import until

import dgkit
from dgkit.widgets.base import static_output
from dgkit.widgets.dashboard import dashboard
from dgkit.widgets.figure.figure import BokehView

drawing = pytest.importorskip("dgkit.widgets.figure.matplotlib_drawing")
pytest.importorskip("matplotlib", reason="not for Python 3.15 yet")

BLUE, ORANGE = (30, 136, 229), (216, 67, 21)
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def published(monkeypatch):
    """What is put out: (data, display id, update), in order."""
    made = []

    def publish(data, metadata=None, transient=None, update=False):
        made.append((data, (transient or {}).get("display_id"), update))

    monkeypatch.setattr("IPython.display.publish_display_data", publish)
    monkeypatch.setattr(static_output, "_WAIT_S", 0.05)
    return made


def opened(png):
    return Image.open(io.BytesIO(png)).convert("RGB")


def share(png, colour, near=40):
    """The part of a picture that has about this colour."""
    pixels = np.asarray(opened(png)).astype(int)
    return float((np.abs(pixels - colour).max(axis=2) < near).mean())


def states_of(panel):
    return {
        name: output["metadata"]["dgkit"]["state"]
        for name, output in panel._static.outputs().items()
    }


def test_a_panel_is_put_out_with_its_card_below(session, view, published):
    session.empty(64, name="shown")
    panel = view(dgkit.AllocatePanel(session)).panel
    panel._ipython_display_()
    (live, none, _), (static, display_id, update) = published
    assert VIEW in live
    assert live["text/html"] == ""  # a reader without widgets sees the card, once
    assert none is None
    assert display_id
    assert not update
    assert ">shown</td>" in static["text/html"]
    assert static["text/plain"] == "<dgkit.AllocatePanel>"


def test_a_click_makes_nothing_and_the_next_cell_renews_what_has_changed(session, view, published):
    panel = view(dgkit.AllocatePanel(session)).panel
    panel._ipython_display_()
    until(lambda: not static_output._cell_ended() and not panel._static.stale(), "it is drawn")
    until(lambda: all(task.done for task in static_output._renewing), "nothing is renewed")
    before = panel.changes
    session.empty(64, name="new")
    until(lambda: panel.changes > before, "the views were told")
    assert len(published) == 2
    static_output._cell_ended()
    data, display_id, update = until(lambda: published[2:] and published[2], "it is renewed")
    assert update
    assert display_id == published[1][1]
    assert ">new</td>" in data["text/html"]
    panel.close()
    static_output._cell_ended()
    assert len(published) == 3


def test_a_page_that_asks_gets_the_outputs_of_another_state_than_it_has(session, view, published):
    panel = view(dgkit.AllocatePanel(session)).panel
    panel._ipython_display_()
    states = states_of(panel) | {"of another kernel": "0"}
    assert static_output.renewed(states) == {}
    session.empty(64, name="new")
    ((name, output),) = static_output.renewed(states).items()
    assert output["metadata"]["dgkit"]["picture"] == name
    assert output["metadata"]["dgkit"]["state"] != states[name]
    assert ">new</td>" in output["data"]["text/html"]
    assert len(published) == 3  # other pages see it, too
    assert static_output.renewed(states_of(panel)) == {}
    panel.close()
    assert static_output.renewed(states) == {}


def test_a_figure_is_drawn_when_it_is_saved_and_again_only_after_a_change(
    session, view, published, monkeypatch
):
    region = session.empty(4096, name="pixels")
    shown = view(dgkit.HexView(session, region))
    shown.panel._ipython_display_()
    assert [*published[2][0]] == ["text/html"]
    shown.panel.image = {"width": 64}
    shown.ask("draw_image", view="one")
    shown.wait_for("image")
    drawn = []
    real = drawing.picture
    monkeypatch.setattr(drawing, "picture", lambda figures: drawn.append(1) or real(figures))
    assert shown.panel._static.flush()
    assert "image/png" in published[-1][0]
    until(lambda: not shown.panel._static.flush(), "nothing changes any more")
    count = len(drawn)
    session.write(region, b"bytes without a message")
    assert shown.panel._static.flush()
    assert len(drawn) == count


def test_a_dashboard_takes_less_than_80_kilobytes(session, view):
    board = view(dashboard(session)).panel
    for number in range(30):
        session.empty(1 << 16, name=f"region number {number}")
    random = np.random.default_rng(1).bytes(1 << 16)
    session.write(session.regions[0], random)
    board.panels.transfer.transfer("read", session.regions[0], size=64, repeat=50).wait(20)
    board.panels.plot.start()
    measured(board.panels.plot)
    board.panels.plot.stop()
    page = board.static_html()
    assert page.count("<table") > 5
    png = drawing.picture(board.static_figures())
    assert len(page) + len(base64.b64encode(png)) < 80_000


@pytest.mark.parametrize("name", ["AllocatePanel", "TransferPanel", "HexView", "LatencyPlot"])
def test_a_panel_of_a_session_that_is_closed_or_empty_has_a_card(view, name):
    with dgkit.connect() as session:
        panel = view(getattr(dgkit, name)(session)).panel
        assert "<strong>" in panel.static_html()
    assert "<strong>" in panel.static_html()
    assert panel.static_figures() == []


def test_the_card_of_a_running_plot_copies_no_samples(session, view):
    plot = view(dgkit.LatencyPlot(session)).panel
    plot.start()
    measured(plot)
    plot.static_html(), plot.static_figures()  # loads modules
    tracemalloc.start()
    try:
        assert "write 64 B" in plot.static_html()
        assert plot.static_figures()
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_a_hex_view_shows_the_bytes_in_view(session, view):
    region = session.empty(1 << 16, name="bytes")
    session.write(region, b"a different row", offset=0x1000)
    shown = view(dgkit.HexView(session, region))
    assert "a different row" not in shown.panel.static_html()
    shown.ask("fetch", view="one", at=0x1000, n=256)
    assert "offset 0x1000" in shown.panel.static_html()
    assert "a different row." in shown.panel.static_html()


def test_a_bokeh_figure_is_drawn_in_its_colours(view, published):
    fig = figure(title="lines", x_axis_type="log", x_axis_label="size", width=700, height=300)
    fig.line([1, 10, 100], [1, 2, 3], color="#1e88e5", legend_label="inline", line_width=2)
    fig.scatter([1, 10, 100], [3, 2, 1], color="#d84315", size=8)
    panel = view(BokehView(fig, alt="two lines")).panel
    panel._ipython_display_()
    assert panel._static.flush()
    data = published[-1][0]
    assert "two lines" in data["text/plain"]
    png = base64.b64decode(data["image/png"])
    assert opened(png).width == 720
    assert share(png, BLUE) > 0.001
    assert share(png, ORANGE) > 0.0002


def test_bars_of_factors_have_the_colours_of_their_factors():
    factors = [(size, way) for size in ("4 KiB", "1 MiB") for way in ("direct", "staged")]
    fig = figure(x_range=FactorRange(*factors), height=300)
    colours = factor_cmap("x", palette=Colorblind8[:2], factors=["direct", "staged"], start=1)
    fig.vbar(x=factors, top=[4, 4, 4, 4], width=0.8, fill_color=colours, line_color=None)
    png = drawing.picture([fig])
    assert share(png, (0, 114, 178)) > 0.05
    assert share(png, (230, 159, 0)) > 0.05


def test_an_image_has_the_colours_of_its_palette_and_its_first_row_at_the_bottom():
    fig = figure(x_range=(0, 1), y_range=(0, 1), height=300)
    mapper = LinearColorMapper(palette=["#1e88e5", "#d84315"], low=0, high=1)
    fig.image([np.array([[0.0], [1.0]])], x=0, y=0, dw=1, dh=1, color_mapper=mapper)
    picture = opened(drawing.picture([fig]))
    upper, lower = picture.getpixel((300, 60)), picture.getpixel((300, 230))
    assert max(abs(a - b) for a, b in zip(upper, ORANGE, strict=True)) < 40
    assert max(abs(a - b) for a, b in zip(lower, BLUE, strict=True)) < 40


def test_a_figure_that_cannot_be_drawn_is_put_out_all_the_same(view, published, caplog):
    fig = figure(height=200)
    fig.line(["a", "b"], [1, 2])
    panel = view(BokehView(fig)).panel
    panel._ipython_display_()
    panel._static.flush()
    assert "no picture of this figure" in published[-1][0]["text/html"]
    assert "cannot draw the figures" in caplog.text


def test_without_matplotlib_the_output_says_what_is_missing(view, published, monkeypatch):
    def missing():
        raise ModuleNotFoundError("matplotlib")

    monkeypatch.setattr(drawing, "_matplotlib", missing)
    panel = view(BokehView(figure(height=200))).panel
    panel._ipython_display_()
    panel._static.flush()
    assert "needs Matplotlib" in published[-1][0]["text/html"]


def drawn(fig):
    """The drawing of a plot."""
    from matplotlib.figure import Figure

    return drawing._PlotDrawing(fig, Figure(layout="constrained"))


def test_a_glyph_that_is_not_drawn_is_named():
    fig = figure(height=200)
    fig.wedge(x=[0], y=[0], radius=1, start_angle=0, end_angle=1)
    assert drawn(fig).missing == {"Wedge"}
    assert opened(drawing.picture([fig])).width == 720


def test_an_area_and_the_start_of_an_axis_are_drawn_as_they_are_given():
    fig = figure(height=300)
    fig.varea([0, 1, 2], [1, 1, 1], [3, 3, 3], color="#1e88e5", fill_alpha=0.25)
    fig.y_range.start = 0
    made = drawn(fig)
    assert made.missing == set()
    assert made._axes.get_ylim()[0] == 0
    assert share(drawing.picture([fig]), (199, 225, 249), near=10) > 0.2


def test_a_logarithmic_axis_ignores_zero_and_has_round_labels():
    fig = figure(y_axis_type="log", height=300)
    fig.line([1, 2, 3], [0, 10, 1000])
    axes = drawn(fig)._axes
    assert 1 < axes.get_ylim()[0] < 10
    assert axes.yaxis.get_major_formatter()(1000, 0) == "1,000"


def test_bars_in_groups_have_a_legend_and_long_names_have_room():
    factors = [(size, way) for size in "abcd" for way in ("direct", "staged")]
    fig = figure(x_range=FactorRange(*factors), height=300)
    colours = factor_cmap("x", palette=Colorblind8[:2], factors=["direct", "staged"], start=1)
    fig.vbar(x=factors, top=[4] * 8, width=0.8, fill_color=colours, line_color=None)
    assert [*drawn(fig)._handles] == ["direct", "staged"]
    names = ["a name that is longer than the margin", "b"]
    fig = figure(y_range=names, height=300)
    fig.hbar(y=names, left=[0, 0], right=[1, 2], height=0.5, color="#1e88e5")
    edge = np.asarray(opened(drawing.picture([fig])))[30:250, :2]
    assert (edge > 200).all()
