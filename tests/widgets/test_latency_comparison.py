"""Comparison of latencies: named runs and sweeps, ratios, and their confidence intervals."""

import copy
import csv
import io
import json

import numpy as np
import pytest
from support.jupyter.latency import block, config

from dgkit.widgets.latency.export import csv_table, html_page, runs_latex
from dgkit.widgets.latency.history import Tail
from dgkit.widgets.latency.ratios import _t, compare_runs, compare_sweeps
from dgkit.widgets.latency.results import Results
from dgkit.widgets.latency.run import Run, check_baseline, check_name
from dgkit.widgets.latency.run_figures import OF_RUNS
from dgkit.widgets.latency.stored import restored, stored
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


def measured(rng, scale=1.0, blocks=400, **setting):
    """Return a kept run of blocks with noise, a lost block and an outlier."""
    one = Run(1, config(**setting))
    for number in range(blocks):
        if number != 7:
            ns = scale * rng.lognormal(5, 0.3, 50) * (100 if number == 50 else 1)
            one.add([block(number, ns.astype(np.uint64))])
    one.finish()
    return one


def reopened(run):
    """Return a run as another kernel reads it from a notebook's metadata."""
    return restored(json.loads(json.dumps(stored(run), allow_nan=False)), 2)


@pytest.mark.parametrize("blocks", [3, 60, 400])
def test_a_run_read_from_a_notebook_has_the_figures_that_it_had(blocks):
    rng = np.random.default_rng(blocks)
    run, other = measured(rng, blocks=blocks), measured(rng, 1.5, blocks=blocks)
    again = reopened(run)
    assert (again.config, again.key, again.kept) == (run.config, run.key, run.kept)
    assert str(again.report()) == str(run.report())
    assert again.history.figures() == run.history.figures()
    assert again.history.counts() == pytest.approx(run.history.counts())
    for table in ("histogram", "curve", "cumulative"):
        ours, theirs = getattr(again.history, table)(), getattr(run.history, table)()
        assert np.array_equal(ours, theirs), table
    runs = {"run": other, "kept": run}
    assert compare_runs({"run": other, "kept": again}, "kept") == compare_runs(runs, "kept")
    assert runs_latex({"kept": again}) == runs_latex({"kept": run})
    assert html_page({"kept": again}) == html_page({"kept": run})
    for text in ("percentiles", "histogram"):
        assert csv_table({"kept": again}, text) == csv_table({"kept": run}, text)
    rows = csv_table({"kept": again}, "time").count("\nkept,")
    assert min(blocks, 20) <= rows + 1 <= 121
    for figure in OF_RUNS.values():
        figure({"run": other, "kept": again})


def test_a_run_takes_at_most_10_kB_of_a_notebook():
    rng = np.random.default_rng(4)
    one = measured(rng, blocks=200)
    for second in range(20, 140):
        one.history.add(int(second * 1e9), rng.lognormal(7, 1.5, 2000).astype(np.uint64))
    assert len(json.dumps(stored(one), indent=1)) < 10_000


def paths(value, path=()):
    """Yield the path of each value in a record."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths(inner, (*path, key))
    yield path


BAD = (None, -1, 1e300, "", "x", "1:", "9999:1", "-1", "1,2", "\n", "9" * 5000, [], [1], {}, True)


def test_what_was_not_stored_is_refused_and_makes_no_other_error():
    record = stored(measured(np.random.default_rng(5), blocks=20))
    refused = 0
    for path in paths(record):
        for bad in BAD:
            broken = copy.deepcopy(record)
            inner = broken
            for key in path[:-1]:
                inner = inner[key]
            if path:
                inner[path[-1]] = bad
            try:
                run = restored(broken if path else bad, 1)
            except ValueError:
                refused += 1
            else:
                assert run.report()
                assert len(run.history.curve())
    assert refused > 200
    for missing in record:
        with pytest.raises(ValueError, match=f"'{missing}' is missing"):
            restored({key: value for key, value in record.items() if key != missing}, 1)


def test_a_plot_takes_the_notebooks_runs_but_no_name_that_it_has_and_none_that_it_dropped():
    rng = np.random.default_rng(6)
    records = {name: stored(measured(rng)) for name in ("cold", "warm", "old", "before")}
    model = ViewModel()
    model.begin(config())
    for number, name in enumerate(("warm", "old")):
        model.add([block(number)])
        model.keep(name)
        records[name] = model.stored([name])[name]
    model.drop("old")
    with pytest.raises(ValueError, match="run 'run' of the notebook was left out: name is 'run'"):
        model.recall({**records, "run": records["cold"]})
    assert list(model.kept) == ["cold", "before", "warm"]
    state = model.state()
    assert state["kept"] == {name: records[name]["id"] for name in ("cold", "before", "warm")}
    assert state["gone"] == [records["old"]["id"]]
    assert state["before_name"] == "warm"
    model.compare_with("cold")
    assert model.before is model.kept["cold"]
    assert json.dumps(stored(model.kept["cold"])) == json.dumps(records["cold"])
    assert model.stored(["cold", "old"]) == {}, "the file may have lost it to another plot"


def test_a_plot_names_what_it_replaced_or_dropped_if_a_file_may_have_it():
    records = {"cold": stored(measured(np.random.default_rng(7)))}
    model = ViewModel()
    model.begin(config())
    model.recall(records)
    keys = []
    for number in range(3):
        model.add([block(number)])
        model.keep("before")
        keys.append(model.kept["before"].key)
        if number == 1:
            model.stored(["before"])
    assert model.state()["gone"] == [keys[1]], "no view wrote the first one"
    model.drop(None)
    assert set(model.state()["gone"]) == {keys[1], records["cold"]["id"]}
    model.recall(records)
    assert not model.kept


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
