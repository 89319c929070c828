# SPDX-License-Identifier: Apache-2.0
"""A LatencyPlot states its sampling rate, path and provider as measured."""

import threading
from array import array
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs
from support.jupyter.latency import GPU, SECOND, block, config, measured, taken

from dgkit.dpu.sampler import Sampler
from dgkit.errors import BoundsError, LimitReached, PeerError
from dgkit.report import LatencyReport
from dgkit.widgets.base.panel import Viewers
from dgkit.widgets.latency.history import History
from dgkit.widgets.latency.run import Run


def paced(*seconds, count=50):
    kept = History()
    for second in seconds:
        kept.add(int(second * SECOND), np.full(count, 100, np.uint64))
    return kept


def test_a_report_has_the_requested_and_the_measured_rate():
    run = Run(1, config())
    run.add([block(number, t_s=number) for number in range(5)])
    assert run.config.requested_rate == "requested 50 samples every 50 ms"
    assert run.state()["rate"] == 50
    assert "requested 50 samples every 50 ms, measured 50 samples/s" in run.report().where


def test_the_rate_leaves_out_what_was_stopped_or_lost():
    kept = paced(0, 1, 2)
    kept.gap()
    for second in (100, 101):
        kept.add(second * SECOND, np.full(50, 100, np.uint64))
    assert kept.rate == pytest.approx(50)
    assert paced(7).rate == 0


def test_the_frames_of_a_view_have_the_rate(plot, seen):
    plot.start()
    seen.ask("watch", view="a", on=True)
    frame = seen.wait_for("frame", lambda fields: fields["samples"] >= 1000)  # 20 blocks
    assert 0 < frame["rate"] <= 1100


def test_blocks_by_another_path_are_called_by_both():
    run = Run(1, config())
    assert not run.add([block(0)])
    assert run.add([block(1, path="worker")])
    assert not run.add([block(2)])
    assert run.config.path_text == "inline and worker path"
    assert run.report().path == "mixed"
    assert run.history.samples == 150


def test_views_are_sent_a_change_of_path(plot, seen, monkeypatch):
    plot.start()
    measured(plot)
    monitor = plot._live.monitor
    read = monitor.read
    monkeypatch.setattr(monitor, "read", lambda: [as_worker(block) for block in read()])
    whole = seen.wait_for(
        "full_state", lambda fields: fields["run"] and "and worker" in words(fields)
    )
    assert whole["running"]


def as_worker(sampled):
    return structs.replace(sampled, path="worker")


def words(fields):
    return fields["run"]["words"]


@pytest.mark.parametrize("changes", [{"op": "read"}, {"size": 65}, {"provider": "doca"}])
def test_a_block_of_something_else_is_an_error(changes):
    with pytest.raises(PeerError, match="was requested"):
        Run(1, config()).add([block(0, **changes)])


def test_a_block_that_went_both_paths_says_so(session, monkeypatch):
    paths = cycle(["inline", "worker"])
    request = SimpleNamespace(
        size=64, op=1, path=0, samples=2, every_s=0.01, offset=0,
    )  # fmt: skip
    ref = SimpleNamespace(as_remote=lambda: SimpleNamespace(method="map", registration=""))
    monkeypatch.setattr("dgkit.dpu.sampler.BenchmarkQueue", lambda *_: SimpleNamespace(close=id))
    monkeypatch.setattr(
        Sampler, "_measure", lambda *_: SimpleNamespace(ns=array("Q", [1]), path=next(paths))
    )
    sampler = Sampler(session.device, ref, request)
    assert sampler.step(10**12).path == "mixed"


def test_reports_are_made_while_samples_come(plot, monkeypatch):
    plot.start()
    measured(plot)
    made = LatencyReport.of.__func__

    def of(cls, *args, **kwargs):
        free = threading.Event()
        thread = threading.Thread(target=lambda: plot._view_model.state() and free.set())
        thread.start()
        thread.join(20)
        assert free.is_set(), "the view model was locked while a report was made"
        return made(cls, *args, **kwargs)

    monkeypatch.setattr(LatencyReport, "of", classmethod(of))
    assert plot.report().percentiles.n >= 200
    plot.export("json")
    plot.static_html()


def test_host_memory_that_the_cpu_copies_names_no_gpu(plot, seen, monkeypatch):
    monkeypatch.setattr(plot.session.dpu, "provider", "cuda")
    assert seen.ask("hello")["label"] == "software DPU"
    plot._view_model.begin(config(provider="cuda", machine=GPU))
    assert seen.ask("hello")["label"] == "software DPU, GPU copy engine"


def test_a_monitor_of_host_memory_that_the_cpu_copies_names_no_gpu(session, monkeypatch):
    with session.monitor(session.empty(64)) as monitor:
        monkeypatch.setattr(monitor, "provider", "cuda")
        assert monitor.label == "software DPU"
        assert "GPU" not in monitor._repr_html_()


@pytest.fixture
def crowd(session):
    """As many monitors as there may be, but for the plot's."""
    region = session.empty(64, name="crowd")
    made = [session.monitor(region) for _ in range(7)]
    yield made
    for monitor in made:
        monitor.close()


@pytest.mark.usefixtures("crowd")
def test_with_all_monitors_open_a_change_takes_the_place_of_the_old(plot):
    plot.start()
    measured(plot)
    plot.change(size=128)
    measured(plot)
    assert plot._view_model.run.config.size == 128
    assert len(plot.session.monitors) == 8


@pytest.mark.usefixtures("crowd")
def test_with_all_monitors_open_a_change_that_cannot_be_leaves_what_ran(plot, session):
    small = session.empty(64, name="small")
    plot.start(region=small)
    before = taken(measured(plot))
    with pytest.raises(BoundsError):
        plot.change(size=128)
    assert plot.running
    assert plot.setting.size == 64
    measured(plot, before + 100)
    assert plot._view_model.run.number == 1


def test_at_the_limit_of_monitors_start_is_refused(plot, session, crowd):
    crowd.append(session.monitor(session.empty(64)))
    with pytest.raises(LimitReached, match="8 monitors"):
        plot.start()
    assert not plot.running


def test_of_many_views_those_that_spoke_last_are_remembered(monkeypatch):
    now = iter(range(100_000))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    viewers = Viewers()
    for number in range(2000):
        viewers.update(f"{number:04}{'x' * 100_000}", visible=True)
    assert len(viewers._reported) == 32
    assert {len(view) for view in viewers._reported} == {64}
    assert "0000" not in {view[:4] for view in viewers._reported}
    viewers.update(f"1999{'x' * 100_000}", visible=False)
    assert len(viewers._reported) == 31
