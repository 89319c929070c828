# SPDX-License-Identifier: Apache-2.0
"""Comparison of latencies: named runs and sweeps, ratios, and their confidence intervals."""

import csv
import io

import numpy as np
import pytest
from support.jupyter.latency import block, config

from dgkit.widgets.latency.export import csv_table, html_page, runs_latex
from dgkit.widgets.latency.history import Tail
from dgkit.widgets.latency.ratios import _t, compare_runs, compare_sweeps
from dgkit.widgets.latency.results import Results
from dgkit.widgets.latency.run import Run, check_baseline, check_name
from dgkit.widgets.latency.sweeps import Sweeps
from dgkit.widgets.latency.view_model import ViewModel


def run(samples):
    one = Run(1, config())
    one.add([block(0)])
    one.history.tail.total = 0
    one.history.tail.add(np.asarray(samples, np.uint64))
    return one


def drifting(rng, count=4000, scale=1.0):
    """Return samples of which neighbours depend on each other, as on a machine with load."""
    load = np.repeat(rng.lognormal(0, 0.2, count // 50), 50)
    return 1000 * scale * load * rng.lognormal(0, 0.1, count)


def test_a_ratio_is_that_of_the_percentiles_and_its_interval_contains_it():
    rng = np.random.default_rng(1)
    runs = {"old": run(drifting(rng)), "new": run(drifting(rng, scale=0.5))}
    p50, p99, p999 = compare_runs(runs, "old").rows
    assert (p999.figure, p999.interval) == ("p99.9", "too few samples")  # 200 of each part
    assert (p50.name, p50.baseline, p50.size, p50.figure) == ("new", "old", 64, "p50")
    for row in (p50, p99):
        assert row.low < 0.5 < row.high < 1
        assert row.verdict == "faster"
    assert compare_runs(runs, "new").rows[0].ratio == pytest.approx(1 / p50.ratio)


def test_intervals_of_equal_runs_contain_1_in_95_of_100_although_samples_depend():
    rng = np.random.default_rng(2)
    rows = [
        compare_runs({"a": run(drifting(rng)), "b": run(drifting(rng))}, "a").rows[0]
        for _ in range(200)
    ]
    assert 0.90 <= np.mean([row.low <= 1 <= row.high for row in rows]) <= 0.99


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(2, 4.303), (4, 2.776), (10, 2.228), (38, 2.024)]
)  # fmt: skip
def test_quantiles_are_those_of_students_t(freedom, quantile):
    assert _t(freedom) == pytest.approx(quantile, rel=0.04)


def test_too_few_samples_have_no_interval_and_no_verdict():
    few = compare_runs({"a": run([100] * 30), "b": run([200] * 30)}, "a").rows
    assert [(row.figure, row.ratio, row.low, row.verdict) for row in few] == [
        ("p50", pytest.approx(2), None, "")
    ]
    assert few[0].interval == "too few samples"


class FakeSweep:
    def __init__(self, **p50s):
        reports = {int(size[1:]): times for size, times in p50s.items()}
        self.reports = {
            size: [type("Report", (), {"p50_ns": ns}) for ns in times]
            for size, times in reports.items()
        }


def test_rounds_of_sweeps_are_compared_size_by_size():
    sweeps = {
        "a": FakeSweep(_8=[100, 101, 102], _64=[10, 10]),
        "b": FakeSweep(_8=[150, 151, 152], _64=[20, 20], _512=[1]),
    }
    small, large = compare_sweeps(sweeps, "a").rows
    assert (small.size, small.verdict) == (8, "slower")
    assert (large.size, large.ratio, large.low) == (64, pytest.approx(2), None)


def test_a_comparison_is_shown_as_text_html_csv_and_latex():
    rng = np.random.default_rng(3)
    runs = {"a": run(drifting(rng)), "b_<i>": run(drifting(rng, scale=2))}
    found = compare_runs(runs, "a")
    assert str(found).splitlines()[1].startswith("b_<i>  a     64 B  p50")
    assert "b_&lt;i&gt;" in found._repr_html_()
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [float(row["ratio"]) for row in rows] == [row.ratio for row in found.rows]
    assert r"b\_\textless{}i\textgreater{} & a & 64 B & p50 & " in found.to_latex()


def test_the_last_samples_are_in_the_order_they_were_taken():
    tail = Tail(10)
    for start in range(0, 28, 4):
        tail.add(np.arange(start, start + 4, dtype=np.uint64))
        assert tail.all().tolist() == list(range(max(0, start - 6), start + 4))


def test_any_number_of_runs_is_kept_and_the_last_is_compared_by_the_views():
    model = ViewModel()
    model.begin(config())
    for number, name in enumerate(("cold", "warm", "cold")):
        model.add([block(number)])
        model.keep(name)
    model.add([block(3)])
    assert list(model.runs()) == ["warm", "cold", "run"]
    assert model.before is model.kept["cold"]
    model.drop("cold")
    assert model.state()["before"]["number"] == model.kept["warm"].number
    with pytest.raises(ValueError, match="nothing was kept as 'cold'; kept: warm"):
        model.drop("cold")
    model.drop(None)
    assert list(model.runs()) == ["run"]


def test_results_of_runs_need_no_panel():
    model = ViewModel()
    results = Results(model, Sweeps(None, send=None, changed=None, fail=None))
    assert (results.headline(), "run the cell" in results._runs_html()) == (None, True)
    model.begin(config())
    for number in (0, 1):
        model.add([block(number)])
        if not number:
            model.keep("before")
            assert results.report().percentiles.n == model.before.history.samples
    samples = f"p50 of {results.report().percentiles.n:,} samples"
    assert results.headline()["text"].startswith(samples)
    assert results.to_csv("percentiles") == csv_table(model.runs(), "percentiles")
    assert results.to_latex() == runs_latex(model.runs())
    name, (html,) = results.export("html")
    assert (name, html.decode()) == ({"name": "latency.html"}, html_page(model.runs()))
    for wrong in (results.to_csv, results.figure, results.to_latex, results.compare):
        with pytest.raises(ValueError, match="'nothing'"):
            wrong("nothing")
    with pytest.raises(ValueError, match="no sweep yet"):
        results.to_csv("sweep")


@pytest.mark.parametrize(
    ("name", "text"),
    [("", "1 to 40 printable"), ("a\n", "1 to 40"), ("x" * 41, "1 to 40"), ("run", "measured")],
)  # fmt: skip
def test_a_wrong_name_is_refused(name, text):
    with pytest.raises(ValueError, match=text):
        check_name(name)


def test_a_baseline_is_the_first_or_one_that_exists():
    assert check_baseline({"a": 1, "b": 2}, None) == "a"
    with pytest.raises(ValueError, match="baseline is 'c'; there are: a, b"):
        check_baseline({"a": 1, "b": 2}, "c")
    with pytest.raises(ValueError, match="only one to compare"):
        check_baseline({"run": 1}, None)
