# SPDX-License-Identifier: Apache-2.0
"""Figures for papers: PDF, SVG and PNG of runs and sweeps, and tables for LaTeX."""

import re

import numpy as np
import pytest
from bokeh.plotting import figure
from PIL import Image
from support.jupyter.latency import block, config

from dgkit.widgets import save_figure
from dgkit.widgets.latency.export import runs_latex
from dgkit.widgets.latency.run import Run
from dgkit.widgets.latency.run_figures import OF_RUNS, OF_SWEEPS, caption

pytest.importorskip("matplotlib", reason="not for Python 3.15 yet")


def run(first=100):
    one = Run(1, config())
    one.add(block(number, ns=first + 10 * number) for number in range(40))
    return one


@pytest.fixture
def runs():
    return {"4K pages": run(), "huge_pages & more": run(60)}


class FakeSweep:
    """Rows of a sweep without a DPU."""

    def rows(self):
        known = {
            "high": 120.0,
            "path": "inline",
            "p99": 300.0,
            "floor": 50.0,
            "ratio": 2.0,
            "low": 90.0,
        }
        return [
            known | {"size": size, "text": text, "p50": 100.0, "gb_per_s": size / 100}
            for size, text in ((64, "64 B"), (4096, "4 KiB"))
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["pdf", "svg", "png"])
def test_a_file_has_the_width_of_a_column_and_its_caption_in_the_metadata(tmp_path, runs, kind):
    path = tmp_path / f"cdf.{kind}"
    text = save_figure(OF_RUNS["cdf"](runs), path, caption="taken here")
    assert text == "Cumulative distribution of latency. taken here."
    content = path.read_bytes()
    if kind == "png":
        with Image.open(path) as image:
            assert image.size == (1980, 1227)  # 600 dpi
            assert image.info["Description"] == text
    elif kind == "svg":
        assert b'width="237.6pt"' in content  # 3.3 in of 72 pt
        assert text.encode() in content
        assert b">latency (" in content  # letters are text, which can be searched and edited
    else:
        assert re.search(rb"/MediaBox \[ ?0 0 237.6 147.3\d* ?\]", content)
        assert b"(" + text.encode() + b")" in content
        assert b"/FontFile2" in content
        assert b"/Type3" not in content


def test_the_same_figure_is_the_same_file(tmp_path, runs):
    for kind in ("pdf", "svg"):
        first, second = (tmp_path / f"{name}.{kind}" for name in "ab")
        for path in (first, second):
            save_figure(OF_RUNS["time"](runs), path)
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("what", [*OF_RUNS, *OF_SWEEPS])
def test_each_figure_can_be_saved_and_names_its_runs_but_no_machine(tmp_path, runs, what):
    known = {**OF_RUNS, **OF_SWEEPS}[what]
    fig = known(runs if what in OF_RUNS else {"a": FakeSweep(), "b": FakeSweep()})
    save_figure(fig, tmp_path / "one.svg")
    labels = [item.label.value for item in fig.legend[0].items]
    assert labels == (list(runs) if what in OF_RUNS else ["a", "b"])
    assert "a cpu" not in str(fig.title.text)
    assert "a cpu" in caption(runs)


def test_cumulative_shares_are_those_of_the_samples():
    one = run()
    samples = np.sort(one.history.tail.all())
    for ns, share in one.history.cumulative():
        assert np.mean(samples <= ns) == pytest.approx(share)
    below = OF_RUNS["cdf"]({"run": one}).renderers[0].data_source.data["y"]
    assert (below[0], below[-1]) == (0, 1)
    above = OF_RUNS["ccdf"]({"run": one}).renderers[0].data_source.data["y"]
    assert above[0] == 1
    assert min(above) == pytest.approx(1 / 40)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"path": "a.gif"}, "'a.gif' has no known format; it must end in .pdf, .svg or .png"),
        ({"width": "wide"}, 'width is \'wide\'; it must be "column", "page" or 1.5 to 20 inches'),
        ({"width": 0.5}, "width is 0.5;"),
        ({"height": float("nan")}, "height is nan; it must be 1.5 to 20 inches"),
    ],
)
def test_a_wrong_argument_is_named_and_no_file_is_made(tmp_path, monkeypatch, changes, text):
    monkeypatch.chdir(tmp_path)
    fig = figure()
    fig.line([1, 2], [1, 2])
    with pytest.raises(ValueError, match=re.escape(text)):
        save_figure(fig, **{"path": "a.svg"} | changes)
    assert not list(tmp_path.iterdir())


def test_glyphs_that_cannot_be_drawn_are_named(tmp_path):
    fig = figure()
    fig.annulus([1], [1], inner_radius=1, outer_radius=2)
    with pytest.raises(ValueError, match="the figure has Annulus"):
        save_figure(fig, tmp_path / "a.svg")


def test_tables_for_latex_escape_names_and_have_the_rules_of_booktabs(runs):
    text = runs_latex(runs)
    rows = [line for line in text.splitlines() if " & " in line and not line.startswith("%")]
    assert rows[0] == (
        r"run & operation & samples & min & p50 & mean & stdev & p99 & p99.9 & max \\"
    )
    assert (
        rows[1]
        == r"4K pages & write 64 B & 2000 & 0.10 & 0.29 & 0.29 & 0.12 & 0.49 & 0.49 & 0.49 \\"
    )
    assert rows[2].startswith(r"huge\_pages \& more & ")
    assert [text.count(rf"\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
    assert "% 4K pages: write 64 B, inline path (software DPU); a cpu" in text
