"""Static pictures: of each panel and of Bokeh figures, published, renewed, small."""

import base64
import io
import json
import tracemalloc

import numpy as np
import pytest
from bokeh.document import Document
from bokeh.models import FactorRange, LinearColorMapper
from bokeh.palettes import Colorblind8
from bokeh.plotting import figure
from bokeh.transform import factor_cmap
from PIL import Image, ImageDraw
from support.jupyter.latency import measured
from support.processes.waiting import until

import dgkit
from dgkit.widgets.base import static_output
from dgkit.widgets.base.chart import Axis, font, write
from dgkit.widgets.base.picture import Drawing, Picture
from dgkit.widgets.dashboard.dashboard import dashboard
from dgkit.widgets.figure.figure import BokehView
from dgkit.widgets.figure.static_figure import _PlotDrawing, figure_picture

BLUE, ORANGE = (30, 136, 229), (216, 67, 21)


@pytest.fixture
def published(monkeypatch):
    """What is put out: (data, display id, update), in order."""
    made = []

    def publish(data, metadata=None, transient=None, update=False):
        if "text/html" in data and len(data) == 1:  # the style of pictures
            return
        made.append((data, (transient or {}).get("display_id"), update))

    monkeypatch.setattr("IPython.display.publish_display_data", publish)
    monkeypatch.setattr(static_output, "_INTERVAL_S", 0.05)
    return made


def opened(png):
    return Image.open(io.BytesIO(png)).convert("RGB")


def share(png, colour, near=40):
    """The part of a picture that has about this colour."""
    pixels = np.asarray(opened(png)).astype(int)
    return float((np.abs(pixels - colour).max(axis=2) < near).mean())


def drawn(*figures):
    document = Document()
    for one in figures:
        document.add_root(one)
    return figure_picture(document, "alt")


def test_a_panel_is_put_out_with_its_picture_below(session, view, published):
    session.empty(64, name="shown")
    panel = view(dgkit.AllocatePanel(session)).panel
    panel._ipython_display_()
    (live, none, _), (static, display_id, update) = published
    assert "application/vnd.jupyter.widget-view+json" in live
    assert none is None
    assert display_id
    assert not update
    assert opened(base64.b64decode(static["image/png"])).width == 720
    assert "1 region" in static["text/plain"]


def test_the_picture_is_renewed_when_the_state_changes_and_not_after_the_close(
    session, view, published
):
    panel = view(dgkit.AllocatePanel(session)).panel
    panel._ipython_display_()
    session.empty(64, name="new")
    data, display_id, update = until(lambda: published[2:] and published[2], "it is renewed")
    assert update
    assert display_id == published[1][1]
    assert data["image/png"] != published[1][0]["image/png"]
    panel.close()
    count = len(published)
    panel.renew_picture()
    assert len(published) == count


def test_a_page_that_asks_gets_the_pictures_of_another_state_than_it_has(
    session, view, published, monkeypatch
):
    monkeypatch.setattr(static_output, "_INTERVAL_S", 1e9)  # nothing else renews it
    panel = view(dgkit.AllocatePanel(session)).panel
    panel._ipython_display_()
    mark = panel._static.output()["metadata"]["dgkit"]
    states = {mark["picture"]: mark["state"], "of another kernel": "0"}
    assert static_output.renewed(states) == {}
    session.empty(64, name="new")
    ((picture, output),) = static_output.renewed(states).items()
    assert picture == mark["picture"]
    assert output["metadata"]["dgkit"]["state"] != mark["state"]
    assert opened(base64.b64decode(output["data"]["image/png"])).width == 720
    assert len(published) == 3  # other pages see it, too
    assert static_output.renewed({picture: output["metadata"]["dgkit"]["state"]}) == {}
    panel.close()
    assert static_output.renewed(states) == {}


def test_a_changed_picture_is_drawn_once_and_one_of_the_same_state_is_no_file(
    session, view, published, monkeypatch
):
    monkeypatch.setattr(static_output, "_INTERVAL_S", 1e9)  # nothing else renews it
    panel = view(dgkit.AllocatePanel(session)).panel
    panel._ipython_display_()
    calls = []
    for owner, name in ((Picture, "drawn"), (Drawing, "png")):
        real = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *args, real=real, name=name: calls.append(name) or real(*args)
        )
    assert not panel._static.flush()
    assert calls == ["drawn"]  # at another time, which is below it
    session.empty(64, name="new")
    assert panel._static.flush()
    assert calls == ["drawn", "drawn", "png"]


def test_nothing_is_drawn_for_a_panel_that_was_not_put_out(session, view, published):
    panel = view(dgkit.AllocatePanel(session)).panel
    session.empty(64)
    panel.renew_picture()
    assert panel._static._task is None
    assert not published


def test_the_end_of_a_run_renews_the_picture_of_the_dashboard_that_shows_the_panel(
    session, view, published
):
    board = view(dashboard(session)).panel
    board._ipython_display_()
    region = session.empty(4096, name="target")
    board.panels.transfer.transfer("write", region, bytes(64)).wait(10)
    until(lambda: len(published) > 2, "it is renewed")
    assert {display_id for _, display_id, _ in published[1:]} == {published[1][1]}


def test_a_dashboard_takes_less_than_60_kilobytes(session, view):
    board = view(dashboard(session)).panel
    for number in range(30):
        session.empty(1 << 16, name=f"region number {number}")
    random = np.random.default_rng(1).bytes(1 << 16)
    session.write(session.regions[0], random)
    board.panels.transfer.transfer("read", session.regions[0], size=64, repeat=50).wait(20)
    board.panels.plot.start()
    measured(board.panels.plot)
    board.panels.plot.stop()
    png = board.picture().drawn("State of now").png()
    assert len(base64.b64encode(png)) < 60_000
    assert opened(png).height > 800


@pytest.mark.parametrize("name", ["AllocatePanel", "TransferPanel", "HexView", "LatencyPlot"])
def test_a_panel_of_a_session_that_is_closed_or_empty_has_a_picture(view, name):
    with dgkit.connect() as session:
        panel = view(getattr(dgkit, name)(session)).panel
        assert opened(panel.picture().png()).width == 720
    assert opened(panel.picture().png()).width == 720


def test_a_picture_of_a_running_plot_copies_no_samples(session, view):
    plot = view(dgkit.LatencyPlot(session)).panel
    plot.start()
    measured(plot)
    plot.picture()  # loads fonts
    tracemalloc.start()
    try:
        plot.picture()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_hex_view_shows_the_bytes_in_view(session, view):
    region = session.empty(1 << 16, name="bytes")
    session.write(region, b"a different row", offset=0x1000)
    shown = view(dgkit.HexView(session, region))
    first = shown.panel.picture()
    shown.ask("fetch", view="one", at=0x1000, n=256)
    assert "offset 0x1000" in shown.panel.picture().alt
    assert shown.panel.picture().png() != first.png()


def test_a_bokeh_figure_is_drawn_in_its_colours(view):
    fig = figure(title="lines", x_axis_type="log", x_axis_label="size", width=700, height=300)
    fig.line([1, 10, 100], [1, 2, 3], color="#1e88e5", legend_label="inline", line_width=2)
    fig.scatter([1, 10, 100], [3, 2, 1], color="#d84315", size=8)
    panel = view(BokehView(fig, alt="two lines")).panel
    png = panel.picture().png()
    assert share(png, BLUE) > 0.001
    assert share(png, ORANGE) > 0.0005
    assert panel.picture().alt == "two lines"


def test_bars_of_factors_have_the_colours_of_their_factors():
    factors = [(size, way) for size in ("4 KiB", "1 MiB") for way in ("direct", "staged")]
    fig = figure(x_range=FactorRange(*factors), height=300)
    colours = factor_cmap("x", palette=Colorblind8[:2], factors=["direct", "staged"], start=1)
    fig.vbar(x=factors, top=[4, 4, 4, 4], width=0.8, fill_color=colours, line_color=None)
    png = drawn(fig).png()
    assert share(png, (0, 114, 178)) > 0.05
    assert share(png, (230, 159, 0)) > 0.05


def test_an_image_has_the_colours_of_its_palette_and_its_first_row_at_the_bottom():
    fig = figure(x_range=(0, 1), y_range=(0, 1), height=300)
    mapper = LinearColorMapper(palette=["#1e88e5", "#d84315"], low=0, high=1)
    fig.image([np.array([[0.0], [1.0]])], x=0, y=0, dw=1, dh=1, color_mapper=mapper)
    picture = opened(drawn(fig).png())
    upper, lower = picture.getpixel((300, 60)), picture.getpixel((300, 230))
    assert max(abs(a - b) for a, b in zip(upper, ORANGE, strict=True)) < 40
    assert max(abs(a - b) for a, b in zip(lower, BLUE, strict=True)) < 40


def test_a_figure_that_cannot_be_drawn_is_put_out_all_the_same(view, published, caplog):
    fig = figure(height=200)
    fig.line(["a", "b"], [1, 2])
    view(BokehView(fig)).panel._ipython_display_()
    assert "no static picture" in published[1][0]["text/plain"]
    assert "cannot draw the picture" in caplog.text


def test_a_glyph_that_is_not_drawn_is_named():
    fig = figure(height=200)
    fig.wedge(x=[0], y=[0], radius=1, start_angle=0, end_angle=1)
    with_note, without = drawn(fig), drawn(figure(height=200))
    assert opened(with_note.png()).height > opened(without.png()).height


def test_axes_have_round_ticks_and_a_logarithmic_one_ignores_zero():
    assert [name for _, name in Axis().ticks(0, 10)] == ["0", "2", "4", "6", "8", "10"]
    axis = Axis(log=True)
    assert axis.ends([0, 10, 1000]) == pytest.approx((0.92, 3.08))
    assert [name for _, name in axis.ticks(1, 3)] == ["10", "100", "1,000"]
    assert Axis().ends([5, 5]) == (4.5, 5.5)
    assert Axis().ends([]) == pytest.approx((-0.04, 1.04))


def test_long_text_is_cut_and_a_table_stays_within_the_picture():
    picture = Picture("alt")
    picture.text("word " * 200)
    picture.table(("a", "b"), [("x" * 300, json.dumps("y" * 300))])
    edge = np.asarray(opened(picture.png()))[2:-2, 712:719]  # between the text and the frame
    assert (edge > 200).all()


def written(text):
    """Ink of a line of text on the baseline 20."""
    image = Image.new("L", (120, 30), "white")
    write(ImageDraw.Draw(image), (4, 20), text, "black", font(12), "ls")
    return 255 - np.asarray(image).astype(int)


def test_text_has_no_letter_that_the_font_lacks_and_a_micro_sign():
    assert np.array_equal(written("5 \u00d7 é → ≤ 2²"), written("5 x e -> <= 22"))
    micro, plain = written("1 µs"), written("1 us")
    assert np.array_equal(micro[:18], plain[:18])
    assert not plain[21:].any()
    below = np.argwhere(micro[21:] > 200)
    assert len(below) >= 2
    assert len(set(below[:, 1])) == 1, "a vertical stem"


def test_wide_letters_of_a_hex_dump_are_whole():
    picture = Picture("alt")
    picture.fixed(["W"])
    ink = 255 - np.asarray(opened(picture.png()).convert("L")).astype(int)[8:28, 10:17]
    top = ink[np.argwhere(ink.max(axis=1) > 60)[0, 0] + 1]
    assert top[0] > 60, "the left stroke"
    assert top[6] > 60, "the right stroke"
    assert top[1:6].min() < 60, "between them"


def test_an_area_and_the_start_of_an_axis_are_drawn_as_they_are_given():
    fig = figure(height=300)
    fig.varea([0, 1, 2], [1, 1, 1], [3, 3, 3], color="#1e88e5", fill_alpha=0.25)
    fig.y_range.start = 0
    document = Document()
    document.add_root(fig)
    drawing = _PlotDrawing(fig)
    assert drawing.missing == set()
    assert drawing.chart.y.ends([1, 3])[0] == 0
    assert share(drawn_again(fig), (199, 225, 249), near=10) > 0.2


def drawn_again(fig):
    return figure_picture(fig.document, "alt").png()


def test_bars_in_groups_have_a_legend_and_long_names_have_room():
    factors = [(size, way) for size in "abcd" for way in ("direct", "staged")]
    fig = figure(x_range=FactorRange(*factors), height=300)
    colours = factor_cmap("x", palette=Colorblind8[:2], factors=["direct", "staged"], start=1)
    fig.vbar(x=factors, top=[4] * 8, width=0.8, fill_color=colours, line_color=None)
    assert _PlotDrawing(fig).chart.names == {"direct": "#0072B2", "staged": "#E69F00"}
    names = ["a name that is longer than the margin", "b"]
    fig = figure(y_range=names, height=300)
    fig.hbar(y=names, left=[0, 0], right=[1, 2], height=0.5, color="#1e88e5")
    edge = np.asarray(opened(drawn(fig).png()))[30:250, 2:8]  # beyond the frame
    assert (edge > 200).all()
