# SPDX-License-Identifier: Apache-2.0
"""LatencyPlot over a real session, without a browser: start and stop, frames, runs, exports."""

import json

import numpy as np
import pytest
from support.jupyter.latency import measured, taken
from support.jupyter.panels import PanelError, View

import dgkit


def rows(buffer, width=5):
    return np.frombuffer(buffer).reshape(-1, width)


def test_it_measures_from_start_to_stop_and_keeps_what_it_has(plot):
    assert not plot.running
    plot.start()
    assert plot.running
    measured(plot).stop()
    kept = taken(plot)
    assert not plot.running
    assert plot.report().percentiles.n == kept
    assert "frame" not in plot.static_html()


def test_started_again_the_run_goes_on_behind_a_gap(plot):
    plot.start()
    measured(plot).stop()
    before = taken(plot)
    plot.start()
    measured(plot, before + 100)
    assert np.isnan(plot._view_model.run.history.fine.all()[:, 1]).sum() == 1
    assert plot._view_model.run.number == 1


def test_a_view_that_is_seen_gets_numbered_frames_of_what_is_new(plot, seen):
    plot.start()
    seen.wait_for("frame", lambda frame: frame["n"] >= 5)
    plot.stop()
    frames = [(fields, out) for fields, out in list(seen.messages) if fields["kind"] == "frame"]
    assert [fields["n"] for fields, _ in frames] == list(range(1, len(frames) + 1))
    points = np.concatenate([rows(out[0]) for _, out in frames])
    kept = plot._view_model.run.history.fine.all()
    assert np.array_equal(points, kept[: len(points)], equal_nan=True)
    assert all(len(out) in (3, 5) for _, out in frames)
    assert [("figures" in fields) for fields, _ in frames] == [len(out) == 5 for _, out in frames]


def test_a_frame_is_small(plot, seen):
    plot.start()
    seen.wait_for("frame", lambda frame: frame["n"] >= 12)
    plot.stop()
    plain = [out for fields, out in seen.messages if fields["kind"] == "frame" and len(out) == 3]
    assert np.median([sum(map(len, out)) for out in plain]) <= 200


def test_a_hidden_view_gets_no_frames_and_misses_no_samples(plot, seen):
    plot.start()
    seen.wait_for("frame")
    seen.ask("watch", view="seen", on=False)
    number, before = len(seen.of("frame")), taken(plot)
    measured(plot, before + 500)
    assert len(seen.of("frame")) == number
    seen.ask("watch", view="seen", on=True)
    frame = seen.wait_for("frame", lambda fields: fields["n"] == number + 1)
    out = next(out for fields, out in seen.messages if fields is frame)
    assert len(rows(out[0])) >= 10


def test_without_a_view_it_measures_and_sends_nothing(plot):
    mute = View(plot)
    plot.start()
    measured(plot)
    assert mute.of("frame") == []


def test_a_new_view_has_the_full_state_and_the_next_frame_continues_it(plot, seen):
    plot.start()
    seen.wait_for("frame", lambda frame: frame["n"] >= 3)
    whole = seen.ask("hello")
    fine, coarse, load, histogram, curve, *before = whole["buffers"]
    number = whole["n"]
    seen.wait_for("frame", lambda frame: frame["n"] == number + 1)
    assert whole["running"]
    assert whole["run"]["label"] == "software DPU"
    assert rows(fine)[-1, 0] >= rows(fine)[0, 0] == 0
    assert rows(coarse).shape[1] == 5
    assert rows(histogram, 3)[:, 2].sum() == rows(fine)[:, 4].sum() == whole["run"]["samples"]
    assert rows(curve, 2)[0, 0] == 1
    assert [load, *before] == [b"", b"", b""]


def test_a_reading_of_the_load_is_at_the_time_of_the_last_samples(plot, seen):
    reading = [50.0, np.nan, 1.0, 2.0, np.nan, np.nan]
    plot.add_load(reading)  # it does not measure
    plot.start()
    measured(plot)
    plot.add_load(reading)
    plot.stop()
    fine, _, load, *_ = seen.ask("hello")["buffers"]
    (row,) = rows(load, 7)
    assert 0 <= row[0] <= rows(fine)[-1, 0]
    assert np.array_equal(row[1:], reading, equal_nan=True)


def test_two_views_get_the_same_frames(plot, seen):
    other = View(plot)
    plot.start()
    seen.wait_for("frame", lambda frame: frame["n"] >= 3)
    plot.stop()
    assert other.of("frame") == seen.of("frame")


def test_what_was_kept_is_before_and_the_next_run_is_after(plot, seen):
    plot.start()
    measured(plot)
    seen.ask("keep")
    plot.change(size=4096, op="read")
    measured(plot)
    state = seen.ask("full_state")
    assert state["before"]["words"].startswith("write 64 B")
    assert state["run"]["words"].startswith("read 4 KiB")
    assert state["run"]["lost"] == 0
    assert all(len(buffer) for buffer in state["buffers"][3:])
    seen.ask("drop")
    assert seen.of("full_state")[-1]["before"] is None


def test_keeping_while_it_runs_loses_no_block(plot):
    plot.start()
    measured(plot).keep()
    measured(plot)
    plot.clear()
    measured(plot)
    assert plot._view_model.run.history.lost == plot._view_model.before.history.lost == 0
    assert not np.isnan(plot._view_model.run.history.fine.all()[:, 1]).any()


def test_cleared_it_begins_anew(plot, seen):
    plot.start()
    measured(plot)
    plot.stop()
    seen.ask("clear")
    assert taken(plot) == 0
    assert seen.of("full_state")[-1]["run"]["figures"] == {}
    with pytest.raises(ValueError, match="no samples yet"):
        plot.report()


def test_with_nothing_measured_there_is_nothing_to_keep_or_export(plot, seen):
    for name, fields in (("keep", {}), ("export", {"kind": "time"}), ("export", {"kind": "html"})):
        with pytest.raises(PanelError, match="no samples yet"):
            seen.ask(name, **fields)
    assert "run the cell" in plot.static_html()


def test_a_change_while_it_runs_begins_a_new_run(plot, seen):
    plot.start()
    measured(plot)
    seen.ask("change", size="1 KiB")
    assert plot.running
    measured(plot)
    assert plot._view_model.run.number == 2
    assert plot._view_model.run.config.size == 1024
    assert seen.of("full_state")[-1]["setting"]["size"] == "1 KiB"


def test_a_change_while_stopped_is_what_start_measures(plot, seen):
    seen.ask("change", op="read", path="worker", count="7")
    assert not plot.running
    plot.start()
    measured(plot, 50)
    config = plot._view_model.run.config
    assert (config.op, config.path, config.count) == ("read", "worker", 7)
    assert set(plot._view_model.run.history.fine.all()[:, 4]) == {7}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"size": "lots"}, "not a size"),
        ({"op": "erase"}, "erase"),
        ({"path": "scenic"}, "scenic"),
        ({"count": 0}, "1 to 4,096"),
        ({"region": 77}, "no live region 77"),
        ({"speed": 3}, "no setting"),
    ],
)
def test_a_change_that_is_nonsense_changes_nothing(plot, seen, change, words):
    plot.start()
    setting = plot.setting
    with pytest.raises(PanelError, match=words):
        seen.ask("change", **change)
    assert plot.running
    assert plot.setting == setting
    measured(plot)


def test_an_error_says_which_control_it_is_about(seen):
    with pytest.raises(PanelError) as caught:
        seen.ask("change", size="lots")
    assert caught.value.field == "size"


def test_too_large_for_the_region_is_said_and_what_ran_goes_on(session, plot, seen):
    with session.empty(256) as region:
        plot.start(region=region)
        with pytest.raises(PanelError, match="256 bytes") as caught:
            seen.ask("change", size=4096)
        assert caught.value.hint
        assert plot.setting.size == 64
        measured(plot)
        plot.stop()


def test_a_region_of_the_user_keeps_its_bytes_also_when_it_is_measured(session, plot):
    with session.empty(4096) as region:
        region.array[:] = 7
        plot.start()
        measured(plot)
        assert (region.array == 7).all()
        plot.change(region=region)
        measured(plot)
        assert "scratch memory like" in plot.report().where
        assert (region.array == 7).all()
        plot.stop()


def test_its_own_memory_grows_with_the_size_and_goes_with_it(session, plot):
    plot.start()
    assert [region.size for region in session.regions] == [1 << 16]
    plot.change(size=1 << 20)
    assert [region.size for region in session.regions] == [1 << 20]
    plot.close()
    assert session.regions == ()


@pytest.mark.parametrize("name", ["time", "histogram", "percentiles"])
def test_a_table_says_whose_figures_it_has(plot, seen, name):
    plot.start()
    measured(plot)
    plot.keep()
    measured(plot).stop()
    lines = plot.to_csv(name).splitlines()
    notes = [line for line in lines if line.startswith("#")]
    head, *body = lines[len(notes) :]
    for run in ("before", "after"):
        assert f"# {run}: label: software DPU" in notes
        assert any(line.startswith(f"# {run}: machine: ") for line in notes)
        assert any(line.startswith(f"# {run}: provider: soft") for line in notes)
        assert any(line.startswith(f"{run},") for line in body)
    assert head.startswith("run,")
    assert {line.count(",") for line in body} == {head.count(",")}
    reply = seen.ask("export", kind=name)
    assert reply["name"] == f"latency-{name}.csv"
    assert reply["buffers"][0].decode().splitlines() == lines


def test_a_figure_for_a_paper_is_a_file_with_its_caption(plot, seen):
    plot.start()
    measured(plot).stop()
    for kind, start in (("svg", b"<?xml"), ("pdf", b"%PDF-")):
        reply = seen.ask("export_figure", what="cdf", kind=kind)
        assert reply["name"] == f"latency-cdf.{kind}"
        assert reply["buffers"][0].startswith(start)
        assert "software DPU" in reply["caption"]
    with pytest.raises(PanelError, match="there is no figure 'x'"):
        seen.ask("export_figure", what="x", kind="svg")
    with pytest.raises(PanelError, match="cannot be saved as '"):
        seen.ask("export_figure", what="cdf", kind="../x.svg")


def test_the_reports_are_files_of_their_own(plot, seen):
    plot.start()
    measured(plot).stop()
    page = seen.ask("export", kind="html")["buffers"][0].decode()
    assert page.startswith("<!doctype html>")
    assert "software DPU" in page
    assert "http" not in page
    made = dgkit.LatencyReport.from_dict(
        json.loads(seen.ask("export", kind="json")["buffers"][0])["run"]
    )
    assert made == plot.report()
    with pytest.raises(PanelError, match="no table 'gif'"):
        seen.ask("export", kind="gif")


def test_a_notebook_keeps_a_report_and_no_points(plot):
    shown = plot._repr_mimebundle_()
    data = shown[0] if isinstance(shown, tuple) else shown
    assert "run the cell" in data["text/html"]
    plot.start()
    measured(plot).stop()
    shown = plot._repr_mimebundle_()
    data = shown[0] if isinstance(shown, tuple) else shown
    assert "software DPU" in data["text/html"]
    assert len(str(data)) < 20_000
    assert set(plot.get_state()) & {"_esm", "_css"}
    assert not [key for key in plot.keys if key.startswith("_latency")]
