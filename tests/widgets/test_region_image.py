# SPDX-License-Identifier: Apache-2.0
"""The region as an image: what is read, the levels of the pixels, when it is renewed."""

import numpy as np
import pytest
import traitlets
from support.jupyter.panels import PanelError, View
from support.processes.waiting import until

import dgkit
from dgkit.widgets.hexview import fetch
from dgkit.widgets.hexview.image import MAX_PIXELS, PALETTES, Layout, levels_of, palette


@pytest.fixture
def canvas(session):
    region = session.empty((64, 96), dtype="u1", name="canvas")
    region.array[:] = np.arange(64 * 96).reshape(64, 96) % 256
    return region


@pytest.fixture
def hexview(session, canvas, view):
    return view(dgkit.HexView(session))


def images(view):
    return [message for message in view.messages if message[0]["kind"] == "image"]


def renewed(view, act=None):
    """The fields and the buffers (levels, palette, odd) of the last image that an act leads to."""
    before = len(images(view))
    (act or (lambda: view.ask("draw_image", view="one")))()
    scan = view.panel._image
    until(lambda: len(images(view)) > before and not scan._running, "an image", timeout=20)
    return images(view)[-1]


def shown(view, **changes):
    view.ask("show_image", on=True, **changes)
    return renewed(view)


def test_the_pixels_are_those_of_the_array(hexview, canvas):
    fields, (levels, colours, odd) = shown(hexview)
    assert (fields["dtype"], fields["width"], fields["rows"]) == ("u8", 96, 64)
    assert (fields["region"], fields["source"], fields["at"]) == (canvas.id, "dpu", 0)
    assert levels == canvas.array.tobytes()
    assert (colours, odd) == (palette("viridis"), b"")


def test_nothing_is_read_while_it_is_hidden(session, hexview):
    before = session.stats()["moves"]
    hexview.ask("draw_image", view="one")
    hexview.ask("hello")
    assert session.stats()["moves"] == before
    assert not hexview.panel._image._running
    shown(hexview)
    hexview.ask("show_image", on=False)
    assert hexview.panel.state()["image"] is None


@pytest.mark.parametrize("dtype", ["i8", "u16", "i32", "u64", "f16", "f32", "f64"])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_values_are_scaled_from_the_least_to_the_greatest(dtype, endian):
    order = "<" if endian == "little" else ">"
    code = np.dtype(f"{order}{dtype[0]}{int(dtype[1:]) // 8}")
    values = np.linspace(-100 if dtype[0] != "u" else 0, 100, 96).astype(code)
    layout = Layout(dtype, code.itemsize, 96, 0, 1, 96)
    found = levels_of(values.tobytes(), layout, endian)
    kept = values.astype("f8")
    assert (found.low, found.high) == (kept[0], kept[-1])
    wanted = np.rint((kept - kept[0]) / (kept[-1] - kept[0]) * 255)
    assert np.abs(np.frombuffer(found.levels, "u1") - wanted).max() <= 1  # of a half, either
    assert found.odd == b""


def test_the_byte_order_is_that_of_the_view(hexview, canvas):
    canvas.array.reshape(-1)[:] = np.arange(canvas.size // 2).astype(">u2").view("u1")
    hexview.ask("show", endian="big")
    assert shown(hexview, dtype="u16")[0]["high"] == canvas.size // 2 - 1


def test_what_is_not_a_number_is_marked_and_does_not_scale(hexview, canvas):
    values = np.zeros(canvas.size // 4, "f4")
    values[:4] = np.nan, np.inf, -1, 3
    canvas.array.reshape(-1)[:] = values.view("u1")
    fields, (levels, _, odd) = shown(hexview, dtype="f32")
    assert (fields["low"], fields["high"]) == (-1, 3)
    assert list(levels[:5]) == [0, 0, 0, 255, 64]
    assert list(odd[:4]) == [1, 1, 0, 0]


def test_equal_values_and_the_widest_range_are_drawn(hexview, canvas):
    assert set(shown(hexview, dtype="f64", width=8)[1][0]) >= {0}
    values = np.zeros(canvas.size // 8)
    values[:2] = -1.7e308, 1.7e308
    canvas.array.reshape(-1)[:] = values.view("u1")
    assert list(renewed(hexview)[1][0][:3]) == [0, 255, 128]


def test_bf16_are_the_upper_halves_of_floats(hexview, canvas):
    upper = np.array([1.0, 2.0, 3.0], "f4").view("u4") >> 16
    canvas.array.reshape(-1)[:6] = upper.astype("u2").view("u1")
    canvas.array.reshape(-1)[6:] = 0
    fields, (levels, _, _) = shown(hexview, dtype="bf16")
    assert (fields["low"], fields["high"]) == (0, 3)
    assert list(levels[:4]) == [85, 170, 255, 0]


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        (100, "u1", ("u8", 8)), (1 << 20, "u1", ("u8", 512)), ((30, 40), "f4", ("f32", 40)),
        ((5, 6, 7), "i2", ("i16", 7)), ((2, 10_000), "u1", ("u8", 128)),
        ((8, 8), "c8", ("u8", 64)), (1, "u1", ("u8", 1)),
    ],
)  # fmt: skip
def test_type_and_width_are_those_of_the_array_or_suit(session, view, shape, dtype, expected):
    region = session.empty(shape, dtype=dtype)
    fields, _ = shown(view(dgkit.HexView(session, region)))
    assert (fields["dtype"], fields["width"]) == expected


def test_of_a_large_region_whole_rows_are_read_from_an_offset(session, view):
    region = session.empty(1 << 30, name="large")
    panel = view(dgkit.HexView(session, region))
    before = session.stats()["bytes"]
    fields, (levels, _, _) = shown(panel, width=1000, offset=12_345)
    assert session.stats()["bytes"] - before == len(levels) == fields["pixels"]
    assert fields["rows"] == MAX_PIXELS // 1000
    assert (fields["at"], fields["pixels"]) == (12_345, 1000 * fields["rows"])
    before = session.stats()["bytes"]
    assert len(shown(panel, dtype="f64", width=4096)[1][0]) * 8 <= 1 << 20
    assert session.stats()["bytes"] - before <= 1 << 20


def test_a_row_that_is_not_full_ends_at_the_last_whole_item(session, view):
    region = session.empty(103, name="odd")
    fields, (levels, _, _) = shown(view(dgkit.HexView(session, region)), dtype="u16", width=10)
    assert (fields["rows"], fields["pixels"], len(levels)) == (6, 51, 51)


def test_what_a_panel_writes_and_what_changes_live_is_drawn(hexview, canvas):
    shown(hexview)
    assert renewed(hexview, lambda: hexview.panel.edit(5, b"\xff"))[1][0][5] == 255
    hexview.ask("watch", on=True)
    canvas.array[0, 0] = 99
    until(lambda: images(hexview)[-1][1][0][0] == 99, "the change is drawn", timeout=20)
    hexview.ask("watch", on=False)


@pytest.mark.parametrize("end", [{"visible": {"view": "one"}}, {"show_image": {}}])
def test_live_it_ends_when_its_views_or_it_are_hidden(hexview, end):
    shown(hexview)
    hexview.ask("watch", on=True)
    until(lambda: hexview.panel._image._running, "it is read")
    for name, fields in end.items():
        hexview.ask(name, on=False, **fields)
    until(lambda: not hexview.panel._image._running, "no more reads", timeout=20)
    hexview.ask("watch", on=False)


def test_another_region_begins_at_its_start(session, hexview):
    shown(hexview, offset=96)
    other = session.empty((4, 7), dtype="u1", name="other")
    fields, _ = renewed(hexview, lambda: hexview.ask("choose", number=other.id))
    assert (fields["region"], fields["at"], fields["width"]) == (other.id, 0, 7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "f128"}, "dtype of the image is 'f128'; it must be one of: u8, "),
        ({"palette": "rainbow"}, "palette of the image is 'rainbow'; it must be one of: viridis, "),
        ({"width": -1}, "width of the image is -1; it must be 1 to 4,096"),
        ({"width": "wide"}, "width of the image is 'wide'"),
        ({"width": 4097}, "width of the image is 4097"),
        ({"offset": -1}, "offset of the image is -1; it must be 0 or more"),
        ({"offset": 64 * 96}, "region 'canvas' of 6,144 bytes has no u8 at offset 6,144"),
        ({"height": 3}, "the image has no setting 'height'; settings: dtype, width, palette"),
    ],
)
def test_what_is_refused_changes_nothing(hexview, changes, words):
    shown(hexview, width=32)
    before = hexview.panel.image
    with pytest.raises(PanelError, match=words):
        hexview.ask("show_image", on=True, **changes)
    with pytest.raises(traitlets.TraitError, match=words):
        hexview.panel.image = changes
    assert hexview.panel.image == before


def test_the_trait_shows_and_hides_it(hexview):
    assert hexview.panel.image is None
    hexview.panel.image = {"width": 48, "palette": "grey"}
    assert hexview.panel.image == {"dtype": "", "width": 48, "palette": "grey", "offset": 0}
    assert View(hexview.panel).ask("hello")["image"]["width"] == 48
    assert renewed(hexview)[1][1] == palette("grey")
    with pytest.raises(traitlets.TraitError, match="it must be a dict"):
        hexview.panel.image = 7
    hexview.panel.image = None
    assert hexview.of("state")[-1]["image"] is None


def test_what_cannot_be_read_is_said_beside_it_alone(hexview, monkeypatch):
    shown(hexview)

    def refuse(*_about):
        raise dgkit.PeerTimeout("the DPU has not answered")

    monkeypatch.setattr(fetch.Reader, "start", refuse)
    assert renewed(hexview)[0]["error"] == "the DPU has not answered"
    assert not hexview.errors


def test_its_picture_in_a_saved_notebook_is_small_even_of_noise(session, view):
    picture = pytest.importorskip("dgkit.widgets.figure.matplotlib_drawing").picture
    pytest.importorskip("matplotlib", reason="not for Python 3.15 yet")
    region = session.empty((512, 512), dtype="u1", name="noise")
    region.array[:] = np.random.default_rng(0).integers(0, 256, (512, 512))
    panel = view(dgkit.HexView(session, region))
    assert panel.panel.static_figures() == []
    shown(panel)
    assert 1000 < len(picture(panel.panel.static_figures())) < 60_000


def test_a_pixel_of_its_picture_is_the_mean_of_those_that_it_stands_for(session, view):
    region = session.empty((3, 383), dtype="u1", name="stripes")
    region.array[:] = np.tile([0, 90, 240, 70], 96)[:383]
    panel = view(dgkit.HexView(session, region))
    shown(panel)
    (figure,) = panel.panel.static_figures()
    [drawn] = figure.renderers[0].data_source.data["image"]
    assert drawn.shape == (3, 96)
    assert (drawn[:, :-1] == 100).all()
    assert (drawn[:, -1] == 110).all()  # of the three that are left


def test_the_palettes_grow_brighter(view):
    weights = np.array([0.2126, 0.7152, 0.0722])
    for name in PALETTES:
        light = np.frombuffer(palette(name), "u1").reshape(256, 3) @ weights
        assert (np.diff(light) > -1).all()
        assert light[-1] - light[0] > 150


def test_a_closed_panel_reads_no_more(hexview):
    shown(hexview)
    image = hexview.panel._image
    hexview.panel.close()
    assert not image._running
