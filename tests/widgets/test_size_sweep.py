# SPDX-License-Identifier: Apache-2.0
"""The size sweep of LatencyPlot: rounds, floor, stop, the live mode, comparison, files."""

import csv
import io
import json
import os
import signal

import pytest
from support.jupyter.latency import MACHINE, measured, taken
from support.jupyter.panels import PanelError, View
from support.processes.waiting import until

import dgkit
from dgkit.report import LatencyReport
from dgkit.widgets.latency.size_sweep import SweepSetting, _row

FEW = {"sizes": "8, 64, 4K", "rounds": 3, "samples": 100}


@pytest.fixture
def session(own_session):
    return own_session


def ended(plot):
    """Wait until the views know that the sweep has ended."""
    until(lambda: plot._sweeps.task.done, "the sweep has ended")
    return plot


def sweep(plot, **changes):
    started = plot.sweep(**FEW | changes).wait(60)
    ended(plot)
    return started


def test_each_size_has_a_median_a_band_and_a_floor_of_all_rounds(plot):
    rows = sweep(plot).rows()
    assert [row["size"] for row in rows] == [8, 64, 4096]
    for row in rows:
        assert row["rounds"] == 3
        assert row["samples"] == 300
        assert 0 < row["low"] <= row["p50"] <= row["high"] <= 1e9
        assert row["p99"] >= row["low"]
        assert row["floor"] is None or row["floor"] > 0
        assert row["ratio"] is not None or row["floor"] is None


def test_the_views_see_it_go_on_and_then_what_it_found(plot, seen):
    sweep(plot, rounds=20)
    shown = [fields["sweep"]["done"] for fields in seen.of("sweep")]
    assert shown == sorted(shown)
    assert shown[0] < 60
    state = seen.of("full_state")[-1]
    assert (state["mode"], state["sweep"]["status"]) == ("sweep", "done")
    assert state["sweep"]["done"] == state["sweep"]["total"] == 60
    assert state["sweep"]["label"] == "software DPU"
    assert state["sweep"]["rows"] == plot._sweeps.current.rows()
    assert View(plot).ask("hello")["sweep"] == state["sweep"]


def test_the_live_mode_stops_for_it_and_goes_on_behind_a_gap(plot):
    plot.start()
    measured(plot).sweep("8, 64", rounds=3, samples=100)
    assert not plot.measuring
    before = taken(plot)
    ended(plot)
    assert plot.measuring
    measured(plot, before + 100)
    assert plot._view_model.run.number == 1
    assert plot.setting.size == 64


def test_stopped_it_keeps_what_it_has_and_the_live_mode_goes_on(plot):
    plot.start()
    going = plot.sweep("64", rounds=100, samples=100_000)
    until(lambda: going.done, "a measurement")
    plot.stop_sweep()
    going.wait(20)
    ended(plot)
    assert going.status == "stopped"
    assert 0 < going.done < 100
    assert plot.measuring


@pytest.mark.parametrize("end", ["stop", "start", "close"])
def test_it_ends_by(plot, session, end):
    going = plot.sweep("64", rounds=100, samples=100_000)
    getattr(plot, end)()
    going.wait(20)
    assert going.status == "stopped"
    until(lambda: "size sweep" not in [one.name for one in session.regions], "its memory is freed")
    if end == "start":
        assert plot.measuring
        assert plot.state()["mode"] == "live"


def test_it_measures_a_region_and_leaves_its_bytes(plot, session):
    region = session.empty(4096, name="mine")
    region.array[:] = 7
    plot.change(region=region, op="write")
    assert "mine" in sweep(plot).origin()["where"]
    assert set(bytes(region.array)) == {7}


def test_a_second_one_is_compared_with_the_one_kept(plot, seen):
    sweep(plot)
    seen.ask("keep_sweep")
    assert seen.of("full_state")[-1]["sweep_before"] is None
    plot.change(op="read")
    sweep(plot, sizes=[64, 512])
    state = seen.of("full_state")[-1]
    assert state["sweep_before"]["words"].startswith("write")
    assert state["sweep"]["words"].startswith("read")
    names = {row["run"] for row in table(plot.to_csv("sweep"))}
    assert names == {"before", "after"}
    seen.ask("drop_sweep")
    assert seen.of("full_state")[-1]["sweep_before"] is None


def table(text):
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return list(csv.DictReader(io.StringIO("\n".join(lines))))


def test_its_files_have_each_round(plot, seen):
    sweep(plot, samples=50)
    rows = table(seen.ask("export", kind="sweep")["buffers"][0].decode())
    assert [(row["size"], row["round"]) for row in rows][:4] == [
        ("8", "1"), ("8", "2"), ("8", "3"), ("64", "1"),
    ]  # fmt: skip
    assert {row["p99_ns"] for row in rows} == {""}  # of 50 samples
    assert all(int(row["p50_ns"]) <= int(row["max_ns"]) for row in rows)
    assert "# sweep: label: software DPU" in plot.to_csv("sweep")
    reports = json.loads(seen.ask("export", kind="sweep-json")["buffers"][0])["sweep"]
    assert [report["size"] for report in reports] == [8] * 3 + [64] * 3 + [4096] * 3


def test_its_lines_measure_the_same(plot, seen, session, notebook, capsys):
    notebook["session"] = session
    region = notebook["region"] = session.empty(4096, name="mine")
    plot.change(region=region, op="read")
    sweep(plot)
    scope = {"session": session, "region": region}
    exec(compile(seen.ask("as_python")["text"], "copied", "exec"), scope)
    assert {size: len(reports) for size, reports in scope["reports"].items()} == {
        8: 3, 64: 3, 4096: 3,
    }  # fmt: skip
    one = scope["reports"][4096][0]
    assert (one.op, one.percentiles.n) == ("read", 100)
    assert "4,096 bytes: " in capsys.readouterr().out


def test_a_saved_notebook_has_its_table_and_its_figure(plot):
    plot.sweep(**FEW).wait(60)
    plot.keep_sweep()
    sweep(plot)
    page = plot.static_html()
    assert "write, auto path, 3 rounds of 100 samples" in page
    assert page.count("<tr>") > len(plot._sweeps.current.rows())
    (figure,) = plot.static_figures()
    labels = lambda figure: [item.label.value for item in figure.legend[0].items]  # noqa: E731
    assert labels(figure) == ["before", "after"]
    plot.keep_sweep("b")  # tables and figures have the name at once
    assert labels(plot.figure("sweep")) == ["before", "b"]
    assert {line.split(",")[0] for line in plot.to_csv("sweep").splitlines()} >= {"before", "b"}


@pytest.mark.parametrize(
    ("fields", "words", "field"),
    [
        ({"sizes": "64, many"}, "is not a size", "sizes"),
        ({"sizes": " , "}, "there are 0 sizes; a sweep has 1 to 32", "sizes"),
        ({"sizes": ",".join(map(str, range(1, 34)))}, "there are 33 sizes", "sizes"),
        ({"sizes": 64}, "the sizes are 64; they must be text", "sizes"),
        ({"rounds": "0"}, "rounds is '0'", "rounds"),
        ({"samples": "a few"}, "samples is 'a few'", "samples"),
        ({"sizes": "8, 8K"}, "size 8,192 is larger than region 'small' of 4,096 bytes", "sizes"),
    ],
)
def test_what_is_refused_names_the_field_and_changes_nothing(
    plot, seen, session, fields, words, field
):
    plot.change(region=session.empty(4096, name="small"))
    plot.start()
    with pytest.raises(PanelError, match=words) as refused:
        seen.ask("start_sweep", **fields)
    assert refused.value.field == field
    assert plot.measuring
    assert plot.state()["sweep"] is None


def test_kernels_cannot_start_the_transfers_of_a_sweep(plot, seen):
    seen.ask("change", path="GPU-initiated")
    with pytest.raises(PanelError, match="no path 'GPU-initiated': choose auto") as refused:
        seen.ask("start_sweep")
    assert refused.value.field == "path"


def test_while_one_runs_there_is_no_second_and_nothing_to_keep(plot, seen):
    with pytest.raises(PanelError, match="no sweep yet"):
        seen.ask("keep_sweep")
    going = plot.sweep("64", rounds=100, samples=100_000)
    with pytest.raises(PanelError, match="a sweep is running"):
        seen.ask("start_sweep")
    until(lambda: going.done, "a measurement")
    with pytest.raises(PanelError, match="the sweep is running"):
        seen.ask("keep_sweep")
    plot.stop()
    ended(plot)


def test_a_mode_that_does_not_exist_is_refused(seen):
    with pytest.raises(PanelError, match="there is no mode 'slow'; modes: live, sweep"):
        seen.ask("show", mode="slow")


def test_the_loss_of_the_dpu_ends_it_with_a_sentence(view):
    with dgkit.connect() as session:
        plot = view(dgkit.LatencyPlot(session)).panel
        going = plot.sweep("64", rounds=100, samples=100_000)
        until(lambda: going.done, "a measurement")
        os.kill(session.owned_pid, signal.SIGKILL)
        with pytest.raises(dgkit.PeerLost):
            going.wait(20)
        ended(plot)
        assert plot.state()["sweep"]["status"] == "failed"
        assert plot.state()["sweep"]["error"]["kind"] == "PeerLost"
        plot.close()


def test_large_sizes_have_fewer_samples():
    setting = SweepSetting(samples=500)
    assert [setting.count(size) for size in (8, 1 << 20, 1 << 30)] == [500, 64, 20]


def test_a_floor_above_its_measurement_is_dropped():
    def row(*rounds):
        fields = {"size": 64, "op": "write", "provider": "soft", "path": "inline", "where": "here"}
        reports = [
            LatencyReport.of([p50], floor_ns=floors, machine=MACHINE, spinning=True, **fields)
            for p50, *floors in rounds
        ]
        return {key: _row(64, reports)[key] for key in ("floor", "ratio", "moved")}

    assert row((100, 80, 80), (100, 120, 120)) == {"floor": 80, "ratio": 1.25, "moved": 1}
    assert row((100, 120, 130), (100, 50, 100)) == {"floor": None, "ratio": None, "moved": 2}
    assert row((100,)) == {"floor": None, "ratio": None, "moved": 0}
