# SPDX-License-Identifier: Apache-2.0
"""Parts of a LatencyPlot: blocks with gaps, frames, visible views, a DPU in this process."""

import json
import os

import numpy as np
import pytest
from support.jupyter.latency import GPU, block, config
from support.jupyter.node import WIDGETS, run_module
from support.jupyter.panels import View
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.widgets.base import panel as base_panel
from dgkit.widgets.base.panel import Viewers
from dgkit.widgets.latency import history
from dgkit.widgets.latency.export import csv_table
from dgkit.widgets.latency.latency_panel import LatencyPlot
from dgkit.widgets.latency.run import Run
from dgkit.widgets.latency.view_model import ViewModel


def test_numbers_that_are_missing_are_lost_blocks_and_a_gap():
    run = Run(1, config())
    run.add([block(0), block(1), block(5)])
    assert run.history.lost == 3
    assert np.isnan(run.history.fine.all()[:, 1]).tolist() == [False, False, True, False]


def test_a_gap_is_a_row_without_figures_in_the_table():
    run = Run(1, config())
    run.add([block(0), block(2)])
    rows = [line for line in csv_table({"run": run}).splitlines() if line.startswith("run,")]
    assert rows[0] == "run,t_s,p50_ns,p99_ns,max_ns,samples"
    assert rows[2].split(",")[2:] == ["", "", "", "0"]
    assert "# run: blocks lost: 1" in csv_table({"run": run})


def test_a_table_has_seconds_where_it_has_no_blocks_any_more():
    run = Run(1, config(), history.History(fine=40))
    run.add(block(number, ns=100 + number) for number in range(200))
    rows = [line.split(",") for line in csv_table({"run": run}).splitlines()[10:]]
    seconds = [float(row[1]) for row in rows]
    assert seconds == sorted(seconds)
    assert {int(row[5]) for row in rows[:-40]} == {1000}
    assert {int(row[5]) for row in rows[-40:]} == {1000}


def test_median_p99_max_and_samples_of_a_row_are_of_one_window():
    """The maximum of a block alone may be below the p99 of it and the blocks before it."""
    run = Run(1, config())
    times = [9000 if number in (20, 21) else 100 + number for number in range(60)]
    run.add(block(number, ns=ns) for number, ns in enumerate(times))
    lines = [line for line in csv_table({"run": run}).splitlines() if line.startswith("run,")][1:]
    assert len(lines) == 60
    for number, line in enumerate(lines):
        *_, p50, p99, most, count = line.split(",")
        window = np.repeat(times[: number + 1], 50)[-int(count) :]
        assert (float(p50), float(most)) == (history.percentile(np.sort(window), 50), window.max())
        assert p99 == ("" if number == 0 else str(history.percentile(np.sort(window), 99)))


def test_a_report_of_more_than_is_kept_says_so():
    run = Run(1, config(), history.History(tail=1000))
    run.add(block(number) for number in range(100))
    assert "the last 1,000 of 5,000 samples" in run.report().where
    assert run.report().percentiles.n == 1000


@pytest.mark.parametrize(
    ("changes", "label", "how"),
    [
        ({}, "software DPU", "inline path"),
        ({"path": "worker"}, "software DPU", "worker path (spinning)"),
        ({"provider": "doca", "path": "worker"}, "hardware", "DMA tasks"),
        ({"provider": "verbs", "path": "worker"}, "RDMA", "RDMA"),
        ({"provider": "softdoca", "path": "worker"}, "software DPU, softdoca", "DMA tasks"),
        ({"provider": "cuda", "path": "worker"}, "software DPU", "copied by the CPU"),
        (
            {"provider": "cuda", "path": "worker", "machine": GPU},
            "software DPU, GPU copy engine", "copy engine",
        ),
    ],
)  # fmt: skip
def test_a_run_is_called_as_its_report_is(changes, label, how):
    made = config(**changes)
    run = Run(1, made)
    run.add([block(0, path=made.path, provider=made.provider)])
    assert (made.label, made.path_text) == (label, how)
    assert run.report().label == label
    assert how in run.report()._title()


def test_a_frame_is_what_came_since_the_last_frame():
    model = ViewModel()
    model.viewers.update("a", True)
    model.begin(config())
    assert model.frame() is None
    model.add([block(0), block(1)])
    fields, out = model.frame()
    assert (fields["n"], len(out[0]) // 40) == (1, 2)
    assert model.frame() is None
    model.add([block(2)])
    fields, out = model.frame()
    assert (fields["n"], len(out[0]) // 40, fields["samples"]) == (2, 1, 150)


def test_after_a_new_run_frames_begin_with_its_first_point():
    model = ViewModel()
    model.viewers.update("a", True)
    model.begin(config())
    model.add([block(number) for number in range(50)])
    model.frame()
    model.keep("before")
    model.add([block(50)])
    fields, out = model.frame()
    assert (fields["run"], fields["n"], len(out[0]) // 40) == (2, 2, 1)


def test_an_hour_takes_no_more_memory_than_its_rings():
    run = Run(1, config(), history.History(tail=1000))
    model = ViewModel()
    model.run = run
    for start in range(0, 72_000, 2000):
        run.add(block(number) for number in range(start, start + 2000))
    assert len(run.history.fine) == 2400
    assert len(run.history.coarse) == 3599
    assert len(run.history._second) <= 20
    assert len(run.history._recent) <= 21
    assert sum(map(len, model.buffers())) < 300_000


def test_a_silent_view_gets_a_frame_per_second_after_a_minute_and_none_after_an_hour(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(base_panel.time, "monotonic", lambda: now)
    who = Viewers()
    assert not who.due()
    who.update("a", True)
    assert [who.due(), who.due()] == [True, True]
    now += 61
    assert [who.due(), who.due()] == [True, False]
    now += 1.1
    assert who.due()
    who.update("a", True)
    assert [who.due(), who.due()] == [True, True]
    now += 3601
    assert not who.due()


def test_frames_end_when_the_last_view_is_hidden():
    who = Viewers()
    who.update("a", True)
    who.update("b", True)
    who.update("a", False)
    assert who.due()
    who.update("b", False)
    who.update("b", False)
    assert not who.due()


@pytest.mark.parametrize("dark", [True, False])
def test_the_figures_have_the_names_that_the_views_script_asks_for(dark):
    from dgkit.widgets.latency.figures import document

    made = document(dark)
    script = (WIDGETS / "latency/draw.js").read_text()
    for name in ("points", "levels", "bins", "bins_before", "percentiles", "percentiles_before"):
        assert f'"{name}"' in script
        assert made.get_model_by_name(name) is not None
    for name in ("time", "spread", "curve"):
        assert made.get_model_by_name(f"{name}_legend") is not None
        assert made.get_model_by_name(f"{name}_y").ticks
        assert all(axis.axis_label for axis in made.get_model_by_name(name).axis)
    assert made.get_model_by_name("time_axis").axis_label
    assert made.get_model_by_name("spread_x").ticks


def test_the_figures_differ_by_more_than_colour():
    from dgkit.widgets.latency.figures import document

    made = document(False)
    for name in ("time", "spread", "curve"):
        looks = []
        for item in made.get_model_by_name(f"{name}_legend").items:
            glyph = item.renderers[0].glyph
            dash = getattr(glyph, "line_dash", None)
            looks.append((type(glyph).__name__, str(dash)))
        assert len(set(looks)) == len(looks)


def test_a_dpu_in_this_process_is_measured_too(view):
    with agent(role="host") as running, dgkit.connect(running.address) as session:
        assert session.role == "dpu"
        plot = view(LatencyPlot(session)).panel
        look = View(plot)
        look.ask("watch", view="a", on=True)
        plot.start()
        look.wait_for("frame", lambda frame: frame["samples"] >= 200)
        assert f"DPU pid {os.getpid()}" in plot._view_model.run.config.where
        plot.stop()
        plot.close()


def test_the_frame_thread_ends_with_the_last_plot(view):
    with dgkit.connect() as session:
        plots = [view(LatencyPlot(session)).panel for _ in range(3)]
        for plot in plots:
            plot.start()
        assert len(session.monitors) == 3
        for plot in plots:
            plot.close()
        until(lambda: not session.monitors, "no monitor is open")


def test_the_view_s_script_joins_full_state_and_frames():
    model = ViewModel()
    model.viewers.update("a", True)
    model.begin(config())
    model.add([block(number) for number in range(30)])
    first = model.frame()
    full = (model.state(), model.buffers())
    model.add([block(30), block(33)])
    second = model.frame()
    model.add([block(34)])
    third = model.frame()
    sent = {
        "full": _plain(full), "frames": [_plain(frame) for frame in (first, second, third)],
    }  # fmt: skip
    seen = json.loads(run_module("latency/data.js", "LatencyData, percentText", _TEST, sent))
    assert seen["frames"] == [False, False, None]  # one that it has, one that is next, a gap
    assert seen["points"] == [100 / 1000] * 31 + [None] + [100 / 1000]
    assert seen["samples"] == 32 * 50
    assert seen["percentiles"][:2] == ["0", "9.1"]
    assert [text for text in seen["percentiles"] if text in ("90", "99", "99.9")] == [
        "90",
        "99",
        "99.9",
    ]
    assert seen["shares"] == pytest.approx([100])


def test_the_points_of_a_frame_are_shown_one_after_the_other():
    model = ViewModel()
    model.viewers.update("a", True)
    model.begin(config())
    model.add([block(0), block(1)])
    sent = {"full": _plain((model.state(), model.buffers())), "frames": []}
    for numbers in ((2, 3), (4, 5), range(6, 12)):
        model.add([block(number) for number in numbers])
        sent["frames"].append(_plain(model.frame()))
    seen = json.loads(run_module("latency/data.js", "LatencyData, percentText", _TEST_PACE, sent))
    shown = [(count, ms and round(ms)) for count, ms in seen]
    assert shown == [
        (2, None),  # a full state
        (3, 50), (4, None),  # a frame of two, the second at its time after the first
        (5, 50),  # the next frame: no point of the one before is left out
        (12, None),  # many at once, as after a pause
    ]  # fmt: skip


def test_a_monitor_whose_blocks_wait_is_read_at_half_their_rate(view):
    with dgkit.connect() as session:
        plot = view(LatencyPlot(session)).panel
        with session.monitor(session.empty(64), size=8) as monitor:
            assert monitor.buffered
            steps = plot._live.steps(monitor)
            first, second = next(steps), next(steps)
            assert second - first == pytest.approx(0.1, abs=0.01) or second > first + 0.1
            steps.close()


def test_a_monitor_that_takes_its_blocks_when_it_is_read_is_read_at_each_tick(view):
    with agent(role="host") as running, dgkit.connect(running.address) as session:
        plot = view(LatencyPlot(session)).panel
        with session.monitor(session.empty(64), size=8) as monitor:
            assert not monitor.buffered
            steps = plot._live.steps(monitor)
            assert next(steps) is None
            steps.close()


def _plain(sent):
    fields, out = sent
    return {"fields": fields, "buffers": [list(buffer) for buffer in out]}


_TEST = """
const views = (buffers) => buffers.map((bytes) => new DataView(new Uint8Array(bytes).buffer));
const data = new LatencyData();
data.setState(given.full.fields, views(given.full.buffers));
const [first, second, third] = given.frames;
const frames = [data.addFrame(first.fields, views(first.buffers)),
  data.addFrame(second.fields, views(second.buffers)),
  data.addFrame({ ...third.fields, n: third.fields.n + 1 }, views(third.buffers))];
data.fine.show();
const { p50 } = data.fine.window(0, data.fine.last, 1);
print({
  frames, points: [...p50], samples: data.run.samples,
  percentiles: [1, 1.1, 10, 100, 1000].map(percentText), shares: data.distribution.bins.top,
});
"""

_TEST_PACE = """
const views = (buffers) => buffers.map((bytes) => new DataView(new Uint8Array(bytes).buffer));
const data = new LatencyData(), seen = [];
const look = () => seen.push([data.fine.window(0, 99, 1).p50.length, data.fine.nextMs]);
data.setState(given.full.fields, views(given.full.buffers));
look();
const [first, second, third] = given.frames;
data.addFrame(first.fields, views(first.buffers));
look();
data.fine.show(1);
look();
data.addFrame(second.fields, views(second.buffers));
look();
data.addFrame(third.fields, views(third.buffers));
look();
print(seen);
"""
