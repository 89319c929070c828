# SPDX-License-Identifier: Apache-2.0
"""Reports: the figures follow from the samples, and say what they cannot hide."""

import csv
import dataclasses
import html
import io
import json
import re
from fractions import Fraction
from statistics import mean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgkit.report import (
    FLOOR_MOVED,
    BandwidthReport,
    Histogram,
    LatencyReport,
    Machine,
    Percentiles,
    PostedLatencyReport,
    PostedRateReport,
)

MACHINE = Machine("A CPU <1>", 2, "x86_64", "6.1", 4096, None)
GPU = Machine("A CPU <1>", 2, "x86_64", "6.1", 4096, None, "GPU 0, of some kind")
times = st.lists(st.integers(0, 2**63), min_size=1, max_size=300)


def latency(samples, **changes):
    made = {
        "size": 64,
        "op": "write",
        "provider": "soft",
        "path": "worker",
        "floor_ns": (100, 120),
        "machine": MACHINE,
        "spinning": True,
        "where": "here and there",
    }
    return LatencyReport.of(samples, **(made | changes))


def bandwidth(**changes):
    made = {
        "size": 1 << 20,
        "op": "read",
        "window": 32,
        "provider": "soft",
        "path": "worker",
        "floor_gb_per_s": (10.0, 10.0),
        "machine": MACHINE,
        "spinning": False,
    }
    return BandwidthReport.of(5_000_000_000, 5000, 1_000_000_000, **(made | changes))


def by_definition(samples, share):
    """The smallest sample that at least `share` of all samples do not exceed."""
    return min(s for s in samples if Fraction(sum(t <= s for t in samples), len(samples)) >= share)


@given(times)
def test_percentiles_are_nearest_rank(samples):
    found = Percentiles.of(sorted(samples))
    for name, share in (("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999)):
        assert getattr(found, f"{name}_ns") == by_definition(samples, Fraction(share, 1000))
    assert (found.n, found.min_ns, found.max_ns) == (len(samples), min(samples), max(samples))


@given(times)
def test_mean_and_deviation_are_those_of_the_samples(samples):
    found = Percentiles.of(sorted(samples))
    assert found.mean_ns == pytest.approx(mean(samples))
    spread = stdev(samples) if len(samples) > 1 else 0
    assert found.stdev_ns == pytest.approx(spread, rel=1e-9)


def test_a_report_stored_without_a_mean_can_be_read():
    stored = latency([1, 2]).to_dict()
    del stored["percentiles"]["mean_ns"], stored["percentiles"]["stdev_ns"]
    assert LatencyReport.from_dict(stored).percentiles.mean_ns is None


def test_a_rank_that_is_a_whole_number_is_not_rounded_up():
    found = Percentiles.of(range(1, 1001))
    assert (found.p50_ns, found.p90_ns, found.p99_ns, found.p999_ns) == (500, 900, 990, 999)


@given(times)
def test_a_histogram_counts_every_sample_once_in_the_bin_that_holds_it(samples):
    found = Histogram.of(sorted(samples))
    bins = list(zip(found.edges_ns, found.edges_ns[1:], found.counts, strict=False))
    assert len(found.edges_ns) == len(found.counts) + 1
    assert sum(found.counts) == len(samples)
    for low, high, count in bins:
        assert low < high
        assert count == sum(low <= s < high for s in samples)


@given(times)
def test_a_histogram_has_no_empty_bin_at_its_ends(samples):
    found = Histogram.of(sorted(samples))
    assert found.counts[0]
    assert found.counts[-1]


@given(st.integers(1, 10**10), st.integers(1, 10**10))
def test_a_histogram_stays_small_enough_to_draw(first, last):
    assert len(Histogram.of(sorted((first, last))).counts) <= 110


def test_no_samples_make_no_report():
    with pytest.raises(ValueError, match="at least one sample"):
        latency([])


def test_no_time_makes_no_rate():
    with pytest.raises(ValueError, match="elapsed_ns is 0"):
        BandwidthReport.of(
            1, 1, 0, size=1, op="read", window=1, provider="soft", path="worker",
            floor_gb_per_s=(), machine=MACHINE, spinning=False,
        )  # fmt: skip


@pytest.mark.parametrize("provider", ["soft", "fault", "cuda", "softdoca", "not known yet"])
@pytest.mark.parametrize("show", [str, lambda r: r._repr_html_(), lambda r: r.to_csv()])
def test_a_simulated_figure_never_passes_for_a_hardware_one(provider, show):
    for report in (latency([200], provider=provider), bandwidth(provider=provider)):
        assert "software DPU" in show(report)
        assert "hardware" not in show(report)
        assert report.to_dict()["label"].startswith("software DPU")


def test_hardware_is_not_called_software():
    assert latency([200], provider="doca").label == "hardware"
    assert "software" not in str(latency([200], provider="doca"))


@pytest.mark.parametrize(
    ("floors", "moved"),
    [
        ((100, 150), False), ((100, 151), True), ((490, 110), True), ((), False),
        ((300, 300), False), ((301, 301), True), ((290, 301), True),  # above the 200
    ],
)  # fmt: skip
def test_a_floor_that_moved_is_said_everywhere(floors, moved):
    report = latency([200], floor_ns=floors)
    assert report.floor_moved is moved
    assert (FLOOR_MOVED in str(report)) is moved
    assert (FLOOR_MOVED in report._repr_html_()) is moved
    assert report.to_dict()["floor_moved"] is moved
    assert next(csv.DictReader(io.StringIO(report.to_csv())))["floor_moved"] == str(moved)


def test_a_figure_is_not_compared_with_a_floor_that_moved_or_was_not_taken():
    assert latency([220], floor_ns=(100, 120)).floor_ratio == 2.0
    assert latency([220], floor_ns=(100, 151)).floor_ratio is None
    assert latency([220], floor_ns=()).floor_ratio is None
    assert "not measured" in str(latency([220], floor_ns=()))
    assert "several DMA tasks" in str(latency([220], floor_ns=(), provider="softdoca"))
    assert bandwidth().floor_ratio == 0.5
    assert bandwidth(floor_gb_per_s=(5.0, 10.0)).floor_ratio is None


def test_a_figure_without_a_floor_says_so_and_why_everywhere():
    one = dataclasses.replace(MACHINE, cpus=1)
    for report in (
        latency([200], floor_ns=(), machine=one),
        bandwidth(floor_gb_per_s=(), machine=one),
    ):
        assert "no floor: one CPU" in str(report)
        assert "no floor: one CPU" in report._repr_html_()
        assert report.to_dict()["no_floor"] == "one CPU"
        assert next(csv.DictReader(io.StringIO(report.to_csv())))["no_floor"] == "one CPU"
        assert type(report).from_dict(report.to_dict()) == report
    assert latency([200]).to_dict()["no_floor"] == ""


@pytest.mark.parametrize(
    ("report", "floor"),
    [
        (latency([200]), "another thread copies"),
        (latency([200], path="inline"), "memcpy"),
        (bandwidth(), "memcpy"),
        (latency([200], provider="cuda", machine=GPU), "the driver's own copy, bare C loop"),
        (bandwidth(provider="cuda", machine=GPU), "the driver's own copy, bare C loop"),
        (latency([200], provider="cuda"), "memcpy"),
        (bandwidth(provider="cuda"), "memcpy"),
    ],
)
def test_a_report_says_what_its_floor_is(report, floor):
    assert f"({floor})" in str(report)
    assert html.escape(f"({floor})") in report._repr_html_()
    assert report.to_dict()["floor_kind"] == floor
    assert next(csv.DictReader(io.StringIO(report.to_csv())))["floor_kind"] == floor
    assert type(report).from_dict(report.to_dict()) == report


def test_a_copy_by_the_gpu_s_engine_is_not_called_a_worker_thread_s():
    report = latency([200], provider="cuda", machine=GPU)
    assert "64 B, copy engine [software DPU, GPU copy engine]" in str(report)
    assert "worker" not in str(report)


def test_a_copy_by_the_cpu_is_not_called_a_gpu_s_whatever_the_provider():
    for report in (latency([200], provider="cuda"), bandwidth(provider="cuda")):
        assert report.label == report.to_dict()["label"] == "software DPU"
        for shown in (str(report), report._repr_html_(), repr(report), report.to_csv()):
            assert "engine]" not in shown
            assert "copy engine" not in shown
        assert "copied by the CPU [software DPU]" in str(report)


def test_its_repr_is_one_line_with_the_figures_that_count():
    assert repr(latency([1000, 2000])) == (
        "<dgkit.LatencyReport write 64 B, worker path (spinning): "
        "p50 1.00 µs, p99 2.00 µs, 2 samples, software DPU>"
    )
    assert repr(bandwidth(floor_gb_per_s=(1.0, 9.0))) == (
        "<dgkit.BandwidthReport read 1 MiB, worker path (sleeping): "
        f"5.00 GB/s, 5,000 operations per second, software DPU, {FLOOR_MOVED}>"
    )


@given(times, st.lists(st.integers(1, 10**6), max_size=3))
def test_a_latency_report_survives_json(samples, floors):
    report = latency(samples, floor_ns=floors)
    assert LatencyReport.from_dict(json.loads(report.to_json())) == report
    assert json.loads(report.to_json()) == report.to_dict()


def test_a_bandwidth_report_survives_json():
    report = bandwidth(failed=3)
    assert BandwidthReport.from_dict(json.loads(report.to_json())) == report


def test_a_report_of_another_kind_is_refused():
    with pytest.raises(ValueError, match="LatencyReport"):
        BandwidthReport.from_dict(latency([1]).to_dict())


def test_a_label_in_a_file_does_not_make_hardware_of_software():
    forged = latency([200]).to_dict() | {"label": "hardware"}
    assert LatencyReport.from_dict(forged).label == "software DPU"


def test_csv_rows_of_a_sweep_stand_under_one_header():
    text = latency([100]).to_csv() + latency([300], size=8).to_csv(header=False)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["size"], row["p50_ns"]) for row in rows] == [("64", "100"), ("8", "300")]
    assert rows[0]["floor_before_ns"] == "100"
    assert rows[0]["floor_after_ns"] == "120"
    assert rows[0]["cpu"] == MACHINE.cpu


def test_text_has_every_figure_in_microseconds():
    text = str(latency([1234, 5678, 91011]))
    for figure in ("1.23 µs", "5.68 µs", "91.01 µs", "0.10 then 0.12 µs"):
        assert figure in text
    assert "64 B, worker path (spinning)" in text


def test_figures_of_the_two_paths_are_told_apart():
    assert "inline path" in str(latency([1], path="inline"))
    assert "worker path (sleeping)" in str(latency([1], spinning=False))


def test_failed_operations_are_shown_only_if_there_are_any():
    assert "failed     7 operations" in str(bandwidth(failed=7))
    assert "failed" not in str(bandwidth())


def test_a_rate_is_bytes_over_time():
    text = str(bandwidth())
    assert "5.00 GB/s" in text
    assert "5,000 per second" in text


def test_the_machine_is_this_one_and_keeps_its_name_to_itself():
    import os
    import socket

    here = Machine.here()
    assert here.cpus == len(os.sched_getaffinity(0))
    assert here.page_size == os.sysconf("SC_PAGE_SIZE")
    assert here.arch == os.uname().machine
    assert here.kernel == os.uname().release
    assert socket.gethostname() not in dataclasses.asdict(here).values()
    assert Machine.here(7).cpus == 7


def test_a_machine_without_a_model_name_is_named_by_its_numbers(monkeypatch):
    from dgkit.report import system_info

    arm = {"CPU implementer": "0x41", "CPU part": "0xd08"}
    assert "implementer 0x41 part 0xd08" in system_info._cpu_name(arm)
    assert system_info._virtual({"flags": "fpu hypervisor"}) is True
    assert system_info._virtual({"flags": "fpu"}) is False


def test_a_report_is_a_value():
    report = latency([5, 6])
    assert report == latency([6, 5])
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.size = 1
    assert not hasattr(report, "__dict__")


def test_the_chart_marks_the_percentiles_of_the_report():
    page = latency([*range(100, 1100), 5_000_000])._repr_html_()
    assert re.search(r"p50 0\.60<", page)
    assert re.search(r"p99 1\.09<", page)


def test_a_report_says_how_often_the_engine_slept():
    for make in (lambda **kw: latency([1, 2], **kw), bandwidth):
        report = make(sleeps=12_345)
        for shown in (repr(report), str(report), report._repr_html_()):
            assert "slept 12,345 times" in shown
        assert "slept once" in repr(make(sleeps=1))
        assert "slept" not in repr(make()) + str(make()) + make()._repr_html_()
        row = next(csv.DictReader(io.StringIO(report.to_csv())))
        assert row["sleeps"] == "12345"
        assert type(report).from_dict(json.loads(report.to_json())) == report


def test_a_report_stored_before_sleeps_were_counted_can_be_read():
    for report in (latency([1, 2]), bandwidth()):
        data = report.to_dict()
        del data["sleeps"]
        assert type(report).from_dict(data) == report


POSTED = {
    "fenced": True, "gpu": "emulated GPU", "emulated": True, "owner": "busy",
    "proxy": "DPU process", "rings": 8, "threads": 256,
}  # fmt: skip


def posted(**changes):
    common = {"size": 64, "op": "write", "provider": "soft", "path": "GPU-initiated"}
    common |= {"machine": MACHINE, "spinning": True, **POSTED, **changes}
    return (
        PostedLatencyReport.of([2000, 3000], floor_ns=(1000, 1100), **common),
        PostedRateReport.of(
            6400, 100, 50_000, window=4096, floor_gb_per_s=(0.5, 0.5), **common
        ),
    )  # fmt: skip


@pytest.mark.parametrize("show", [str, repr, lambda r: r._repr_html_(), lambda r: r.to_csv()])
def test_a_figure_of_the_emulated_gpu_never_passes_for_one_of_a_gpu(show):
    for report in posted():
        assert report.label == "software DPU, emulated GPU"
        assert "software DPU, emulated GPU" in show(report)
    for report in posted(gpu="NVIDIA H200", emulated=False):
        assert report.label == "software DPU"
        assert "emulated" not in show(report).replace("emulated,", "")  # the column's name


def test_reports_of_kernels_say_how_the_operations_were_posted():
    for report in posted():
        text = str(report)
        assert "emulated GPU, 8 x 256 threads, fenced" in text
        assert "in DPU process; owner busy" in text
        row = next(csv.DictReader(io.StringIO(report.to_csv())))
        assert (row["fenced"], row["owner"], row["rings"]) == ("True", "busy", "8")
        assert type(report).from_dict(json.loads(report.to_json())) == report
        assert (2.0 if isinstance(report, LatencyReport) else 0.256) == pytest.approx(
            report.floor_ratio, rel=0.1
        )
    one, _ = posted(fenced=False, rings=1, threads=1)
    assert "emulated GPU, one thread, DG_NO_RELEASE" in str(one)
    assert "bare doorbell, answered by a C loop" in str(one)


def test_figures_of_an_emulated_machine_say_so():
    machines = (
        Machine("emulated aarch64 implementer 0x41 part 0xd08", 2, "aarch64", "6.1", 4096, True),
        Machine("QEMU TCG CPU version 2.5+", 2, "x86_64", "6.1", 4096, True),
    )
    for machine in machines:
        report = latency([1.0], machine=machine, provider="verbs")
        assert report.label == "RDMA, emulated"
        assert "RDMA, emulated" in report._repr_html_()
    assert latency([1.0], provider="verbs").label == "RDMA"


def test_the_floor_of_a_rate_has_its_old_name_for_one_release():
    report = bandwidth()
    with pytest.warns(DeprecationWarning, match="floor_gbps is called floor_gb_per_s"):
        assert report.floor_gbps == report.floor_gb_per_s
    old = report.to_dict()
    old["floor_gbps"] = old.pop("floor_gb_per_s")
    assert BandwidthReport.from_dict(old) == report
