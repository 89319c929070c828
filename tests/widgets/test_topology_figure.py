# SPDX-License-Identifier: Apache-2.0
"""Drawing of a PCIe tree: layout, the path in colour, and its texts."""

import itertools

import pytest
from bokeh.models import ColumnDataSource, HoverTool, Legend, MultiLine
from doctor import snapshots
from doctor.snapshots import NAMES
from support.doctor.panel import DPU, FAR, GPU, NIC, SAME_SOCKET, SMALL, large, machine

from dgkit.doctor import Goal
from dgkit.doctor.facts import pci
from dgkit.doctor.facts.topology import Near
from dgkit.doctor.runner import diagnose
from dgkit.widgets.doctor import topology_figure
from dgkit.widgets.doctor.topology_drawing import COLOURS, show_topology
from dgkit.widgets.doctor.topology_model import MAX_DEVICES, topology_model

PXB = {
    "17/17:01.0/18:00.0/19:00.0/1a:00.0/1b:00.0/1c:00.0": ("gpu", 0),
    "17/17:01.0/18:00.0/19:01.0/1d:00.0/1e:00.0/1f:00.0": ("nic", 0),
}
PAIRS = {
    Near.PIX: (SMALL, (GPU, DPU)),
    Near.PXB: (PXB, ("0000:1c:00.0", "0000:1f:00.0")),
    Near.PHB: (SMALL, (GPU, NIC)),
    Near.NODE: (SMALL, (SAME_SOCKET, DPU)),
    Near.SYS: (SMALL, (FAR, DPU)),
}


def boxes(figure):
    """The boxes of a figure by their names: what is known of each."""
    (source,) = (one for one in figure.select({"type": ColumnDataSource}) if "address" in one.data)
    rows = zip(*source.data.values(), strict=True)
    made = [dict(zip(source.data, row, strict=True)) for row in rows]
    return {row["address"] or row["name"]: row for row in made}


def ways(figure):
    """The colours of the lines, with how many there are of each."""
    return {
        one.glyph.line_color: len(one.data_source.data["xs"])
        for one in figure.renderers
        if isinstance(one.glyph, MultiLine)
    }


@pytest.mark.parametrize("near", PAIRS, ids=str)
def test_the_way_between_two_has_the_colour_of_its_class_which_is_written_too(near):
    paths, pair = PAIRS[near]
    figure = topology_figure(machine(paths), pair)
    assert f": {near}, {near.text}" in figure.title.text
    assert COLOURS[near] in ways(figure)
    shown = boxes(figure)
    on = {name for name, row in shown.items() if row["edge"] == COLOURS[near]}
    assert set(pair) <= on
    assert {row["edge"] for name, row in shown.items() if name not in on} <= {"#8a8a8a"}
    (legend,) = figure.select({"type": Legend})
    said = [item.label.value for item in legend.items]
    assert [one.partition(":")[0] for one in said] == [str(one) for one in Near]
    assert [one for one in said if "these two" in one] == [said[near - 1]]


def test_between_two_sockets_the_way_goes_from_one_to_the_other():
    figure = topology_figure(machine(SMALL), (FAR, DPU))
    lines = next(
        one.data_source.data
        for one in figure.renderers
        if isinstance(one.glyph, MultiLine) and one.glyph.line_color == COLOURS[Near.SYS]
    )
    (tops,) = (ys for ys in lines["ys"] if max(ys) == 0)
    assert min(tops) < -0.35, "it does not pass through the boxes of other sockets"


@pytest.mark.parametrize("name", [None, *NAMES], ids=str)
def test_the_two_ends_of_the_way_stand_side_by_side_in_a_wide_drawing(name):
    made = machine(large()) if name is None else snapshots.machine(name)
    shown = topology_model(made)
    wide = shown is not None and len(shown.of("gpu", "nic", "dpu")) > 6
    pairs = itertools.product(shown.of("gpu"), shown.of("nic", "dpu")) if wide else ()
    for gpu, nic in pairs:
        figure = topology_figure(made, (gpu.id, nic.id))
        laid_out(figure)
        ends = [boxes(figure)[one.id]["x"] for one in (gpu, nic)]
        assert abs(ends[0] - ends[1]) == 1


def test_sockets_stand_in_the_order_of_their_numbers():
    paths = {
        "17/17:01.0/18:00.0": ("gpu", 3),
        "2a/2a:01.0/2b:00.0": ("nic", 1),
        "b0/b0:01.0/b1:00.0": ("bf3", 2),
    }
    shown = boxes(topology_figure(machine(paths)))
    places = [shown[f"CPU, NUMA node {number}"]["x"] for number in (1, 2, 3)]
    assert places == sorted(places)


def test_sockets_stand_on_top_and_devices_in_the_lowest_row():
    shown = boxes(topology_figure(machine(SMALL)))
    devices = [GPU, DPU, NIC, SAME_SOCKET, FAR]
    lowest = max(row["y"] for row in shown.values())
    assert {shown[one]["y"] for one in devices} == {lowest}
    assert [name for name, row in shown.items() if row["y"] == 0] == [
        "CPU, NUMA node 0", "CPU, NUMA node 1"
    ]  # fmt: skip


def laid_out(figure):
    """AssertionError: boxes lie over each other, or outside of the figure."""
    shown = boxes(figure).values()
    for one, other in itertools.combinations(shown, 2):
        if one["y"] == other["y"]:
            assert abs(one["x"] - other["x"]) >= (one["width"] + other["width"]) / 2
    for one in shown:
        assert figure.x_range.start <= one["x"] - one["width"] / 2
        assert one["x"] + one["width"] / 2 <= figure.x_range.end
        assert figure.y_range.end < one["y"] < figure.y_range.start


@pytest.mark.parametrize("paths", [SMALL, PXB, large()], ids=["small", "deep", "large"])
def test_no_two_boxes_overlap_and_none_is_outside(paths):
    laid_out(topology_figure(machine(paths)))


@pytest.mark.parametrize("name", NAMES)
def test_each_machine_of_the_doctors_tests_is_drawn_and_told_of(name):
    recorded = snapshots.machine(name)
    shown = topology_model(recorded)
    if shown is None:
        assert not pci.tree(recorded).gpus + pci.tree(recorded).nics
        return
    laid_out(topology_figure(recorded))
    gpus, nics = shown.of("gpu"), shown.of("nic", "dpu")
    for pair in itertools.product(gpus, nics):
        told = shown.as_dict((pair[0].id, pair[1].id))
        assert told["near"] in told["title"]
        assert told["answer"].endswith(".")


def test_each_line_of_a_box_fits_into_it_also_with_eighteen_devices():
    figure = topology_figure(machine(large()))
    column = figure.width / (figure.x_range.end - figure.x_range.start)
    assert column > 95
    for row in boxes(figure).values():
        longest = max(map(len, row["text"].splitlines()))
        assert longest * 6 <= row["width"] * column + 1, row["text"]  # 11 px letters are 6 px wide
        assert row["text"].count("\n") <= 2


def test_hovering_tells_address_driver_link_and_numa_node():
    figure = topology_figure(machine(SMALL))
    row = boxes(figure)[GPU]
    assert row["address"] == GPU
    assert row["driver"] == "nvidia"
    assert row["link"] == "PCIe 4 x8, 15.8 GB/s (at most PCIe 5 x16, 63.0 GB/s)"
    assert row["numa"] == "0"
    (hover,) = figure.select({"type": HoverTool})
    assert {"@address", "@driver", "@link", "@numa"} <= {tip for _, tip in hover.tooltips}


def test_it_begins_with_the_nearest_pair_and_for_the_arm_with_the_nearest_dpu():
    paths = {
        "17/17:01.0/18:00.0/19:00.0/1a:00.0": ("gpu", 0),
        "17/17:01.0/18:00.0/19:01.0/1b:00.0": ("nic", 0),
        "b0/b0:01.0/b1:00.0": ("bf3", 1),
    }
    assert topology_model(machine(paths)).nearest == ("0000:1a:00.0", "0000:1b:00.0")
    for goal, nic in ((Goal.ARM_DMA, "0000:b1:00.0"), (Goal.RDMA, "0000:1b:00.0")):
        assert topology_model(diagnose([machine(paths)], goal=goal)).nearest == (
            "0000:1a:00.0",
            nic,
        )
    assert topology_model(machine(SMALL)).nearest == (GPU, DPU)


def test_without_a_gpu_or_without_a_nic_the_tree_is_drawn_and_says_what_it_needs():
    for kind in ("gpu", "nic"):
        alone = topology_model(machine({"17/17:01.0/18:00.0": (kind, -1)}))
        assert alone.nearest is None
        told = alone.as_dict(None)
        assert "of a GPU and a NIC" in told["answer"]
        assert "under one PCIe bridge" not in told["answer"]
        assert "0000:18:00.0" in boxes(topology_figure(machine({"17/17:01.0/18:00.0": (kind, -1)})))


def test_with_no_device_there_is_nothing_to_draw():
    assert topology_model(machine({})) is None
    with pytest.raises(ValueError, match="nothing to draw"):
        topology_figure(machine({}))


@pytest.mark.parametrize("pair", [(DPU, GPU), (GPU, GPU), (GPU, "0000:17:01.0"), ("", "")])
def test_a_pair_that_is_no_gpu_and_nic_is_refused(pair):
    with pytest.raises(ValueError, match="a GPU and a NIC"):
        topology_figure(machine(SMALL), pair)


def test_of_very_many_devices_the_gpus_are_kept_and_the_rest_is_counted():
    paths = {f"17/17:01.0/{bus:02x}:00.0": ("nic", 0) for bus in range(0x20, 0x90)}
    paths["b0/b0:01.0/b1:00.0"] = ("gpu", 1)
    many = topology_model(machine(paths))
    assert len(many.of("gpu", "nic", "dpu")) == MAX_DEVICES
    assert many.of("gpu")
    assert many.left_out == len(paths) - MAX_DEVICES
    assert f"{many.left_out} more are not drawn" in many.alt(None)


def test_a_name_is_short_and_moves_no_cursor_whatever_the_driver_says():
    odd = "\x1b[2J" + "x" * 900
    said = f"GPU 0000{GPU.upper()}\n    Product Name : {odd}\n    Minor Number : 0\n"
    shown = topology_model(machine(SMALL, **{"run nvidia-smi -q": said}))
    told = shown.as_dict((GPU, NIC))
    assert "xxx" in told["alt"]
    assert len(str(told)) < 2000
    assert "\x1b" not in str(told) + str(shown.lines)
    assert max(len(one["name"]) for one in shown.lines.values()) < 200


def test_in_words_there_is_all_that_the_picture_shows():
    words = topology_model(machine(SMALL)).alt((FAR, DPU))
    assert "3 GPUs, 1 DPU (2 ports), 1 NIC" in words
    for step in ("b1:00.0", "root port 0000:b0:01.0", "NUMA node 1 → CPU, NUMA node 0", "switch"):
        assert step in words


def test_it_is_shown_offline_with_its_words(monkeypatch):
    import dgkit.widgets.figure as figures

    shown = []
    monkeypatch.setattr(figures, "show", lambda *given, alt: shown.append((given, alt)))
    show_topology(diagnose([machine(SMALL)]), (FAR, DPU))
    ((figure,), alt) = shown[0]
    assert "SYS" in figure.title.text
    assert "Path:" in alt
    assert "under one PCIe bridge" in alt


def _luminance(colour):
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("page", ["#ffffff", "#111111", "#212121"])
def test_each_colour_is_seen_on_a_white_page_and_on_a_dark_one(page):
    """WCAG 2.2, 1.4.11: 3 to 1 for what has to be seen to understand a picture."""
    for colour in COLOURS.values():
        light, dark = sorted((_luminance(colour), _luminance(page)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, colour
    assert len(set(COLOURS.values())) == len(Near)
