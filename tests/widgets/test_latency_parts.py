"""What a LatencyPlot is made of: blocks with gaps, frames, who looks, a DPU in this process."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from playwright._impl._driver import compute_driver_executable
from support.jupyter.latency import GPU, block, what
from support.jupyter.panels import View
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.widgets.base import panel, viewers
from dgkit.widgets.base.panel import source
from dgkit.widgets.base.viewers import Audience
from dgkit.widgets.latency import history
from dgkit.widgets.latency.export import table
from dgkit.widgets.latency.latency import LatencyPlot
from dgkit.widgets.latency.run import Run
from dgkit.widgets.latency.view_model import Stage


def test_numbers_that_are_missing_are_lost_blocks_and_a_gap():
    run = Run(1, what())
    run.take([block(0), block(1), block(5)])
    assert run.history.lost == 3
    assert np.isnan(run.history.fine.all()[:, 1]).tolist() == [False, False, True, False]


def test_a_gap_is_a_row_without_figures_in_the_table():
    run = Run(1, what())
    run.take([block(0), block(2)])
    rows = [line for line in table({"run": run}).splitlines() if line.startswith("run,")]
    assert rows[0] == "run,t_s,p50_ns,p99_ns,max_ns,samples"
    assert rows[2].split(",")[2:] == ["", "", "", "0"]
    assert "# run: blocks lost: 1" in table({"run": run})


def test_a_table_has_seconds_where_it_has_no_blocks_any_more():
    run = Run(1, what(), history.History(fine=40))
    run.take(block(number, ns=100 + number) for number in range(200))
    rows = [line.split(",") for line in table({"run": run}).splitlines()[10:]]
    seconds = [float(row[1]) for row in rows]
    assert seconds == sorted(seconds)
    assert {int(row[5]) for row in rows[:-40]} == {1000}
    assert {int(row[5]) for row in rows[-40:]} == {50}


def test_a_report_of_more_than_is_kept_says_so():
    run = Run(1, what(), history.History(tail=1000))
    run.take(block(number) for number in range(100))
    assert "the last 1,000 of 5,000 samples" in run.report().where
    assert run.report().percentiles.n == 1000


@pytest.mark.parametrize(
    ("changes", "label", "how"),
    [
        ({}, "software DPU", "inline path"),
        ({"path": "worker"}, "software DPU", "worker path (spinning)"),
        ({"provider": "doca", "path": "worker"}, "hardware", "DMA tasks"),
        ({"provider": "softdoca", "path": "worker"}, "software DPU, softdoca", "DMA tasks"),
        ({"provider": "cuda", "path": "worker"}, "software DPU", "copied by the CPU"),
        (
            {"provider": "cuda", "path": "worker", "machine": GPU},
            "software DPU, GPU copy engine", "copy engine",
        ),
    ],
)  # fmt: skip
def test_a_run_is_called_as_its_report_is(changes, label, how):
    made = what(**changes)
    run = Run(1, made)
    run.take([block(0, path=made.path, provider=made.provider)])
    assert (made.label, made.how) == (label, how)
    assert run.report().label == label
    assert how in run.report()._title()


def test_a_frame_is_what_came_since_the_last_frame():
    stage = Stage()
    stage.audience.heard("a", True)
    stage.begin(what())
    assert stage.frame() is None
    stage.take([block(0), block(1)])
    fields, out = stage.frame()
    assert (fields["n"], len(out[0]) // 40) == (1, 2)
    assert stage.frame() is None
    stage.take([block(2)])
    fields, out = stage.frame()
    assert (fields["n"], len(out[0]) // 40, fields["samples"]) == (2, 1, 150)


def test_after_a_new_run_frames_begin_with_its_first_point():
    stage = Stage()
    stage.audience.heard("a", True)
    stage.begin(what())
    stage.take([block(number) for number in range(50)])
    stage.frame()
    stage.keep()
    stage.take([block(50)])
    fields, out = stage.frame()
    assert (fields["run"], fields["n"], len(out[0]) // 40) == (2, 2, 1)


def test_an_hour_takes_no_more_memory_than_its_rings():
    run = Run(1, what(), history.History(tail=1000))
    stage = Stage()
    stage.run = run
    for start in range(0, 72_000, 2000):
        run.take(block(number) for number in range(start, start + 2000))
    assert len(run.history.fine) == 2400
    assert len(run.history.coarse) == 3599
    assert len(run.history._second) <= 20
    assert len(run.history._recent) <= 21
    assert sum(map(len, stage.buffers())) < 300_000


def test_who_is_not_heard_of_for_a_minute_gets_a_frame_a_second_and_after_an_hour_none(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(viewers.time, "monotonic", lambda: now)
    who = Audience()
    assert not who.due()
    who.heard("a", True)
    assert [who.due(), who.due()] == [True, True]
    now += 61
    assert [who.due(), who.due()] == [True, False]
    now += 1.1
    assert who.due()
    who.heard("a", True)
    assert [who.due(), who.due()] == [True, True]
    now += 3601
    assert not who.due()


def test_the_last_view_that_looks_away_ends_the_frames():
    who = Audience()
    who.heard("a", True)
    who.heard("b", True)
    who.heard("a", False)
    assert who.due()
    who.heard("b", False)
    who.heard("b", False)
    assert not who.due()


@pytest.mark.parametrize("dark", [True, False])
def test_the_figures_have_the_names_that_the_views_script_asks_for(dark):
    from dgkit.widgets.latency.figures import document

    made = document(dark)
    script = source("latency", "js", LatencyPlot.parts)
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
        assert f"DPU pid {os.getpid()}" in plot._stage.run.what.where
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


def test_the_views_own_code_joins_whole_and_frames(tmp_path):
    stage = Stage()
    stage.audience.heard("a", True)
    stage.begin(what())
    stage.take([block(number) for number in range(30)])
    first = stage.frame()
    whole = (stage.state(), stage.buffers())
    stage.take([block(30), block(33)])
    second = stage.frame()
    stage.take([block(34)])
    third = stage.frame()
    told = {
        "whole": _plain(whole), "frames": [_plain(frame) for frame in (first, second, third)],
    }  # fmt: skip
    script = Path(panel.__file__).parent.parent.joinpath("latency/data.js").read_text()
    test = tmp_path / "view.mjs"
    test.write_text(script + _TEST)
    node, _ = compute_driver_executable()
    done = subprocess.run(
        [node, str(test)], input=json.dumps(told), capture_output=True, text=True, check=True
    )
    seen = json.loads(done.stdout)
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


def _plain(told):
    fields, out = told
    return {"fields": fields, "buffers": [list(buffer) for buffer in out]}


_TEST = """
import { readFileSync } from "node:fs";
const told = JSON.parse(readFileSync(0, "utf8"));
const views = (buffers) => buffers.map((bytes) => new DataView(new Uint8Array(bytes).buffer));
const data = new LatencyData();
data.whole(told.whole.fields, views(told.whole.buffers));
const [first, second, third] = told.frames;
const frames = [data.frame(first.fields, views(first.buffers)),
  data.frame(second.fields, views(second.buffers)),
  data.frame({ ...third.fields, n: third.fields.n + 1 }, views(third.buffers))];
const { p50 } = data.fine.window(0, data.fine.last, 1);
console.log(JSON.stringify({
  frames, points: [...p50], samples: data.run.samples,
  percentiles: [1, 1.1, 10, 100, 1000].map(percentText), shares: data.now.bins.top,
}));
"""
