# SPDX-License-Identifier: Apache-2.0
"""What a run keeps: points, gaps, a histogram, percentiles. Bounded, and true to the samples."""

import numpy as np
import pytest

from dgkit.widgets.latency.history import EDGES_NS, History, percentile

SECOND = 10**9


def block(*ns):
    return np.array(ns, np.uint64)


def filled(blocks, every_ns=SECOND // 20, count=50, **kept):
    history = History(**kept)
    made = np.random.default_rng(7).lognormal(6, 0.6, (blocks, count)).astype(np.uint64)
    for number, samples in enumerate(made):
        history.add(SECOND + number * every_ns, samples)
    return history, made.ravel()


def test_a_block_is_a_point_of_seconds_p50_p99_max_and_samples():
    history = History()
    history.add(5 * SECOND, block(*range(1, 101)))
    history.add(5 * SECOND + SECOND // 2, block(*range(1001, 2001)))
    assert history.fine.all().tolist() == [[0, 50, 99, 100, 100], [0.5, 1500, 1990, 2000, 1000]]


def test_of_small_blocks_p99_is_of_the_last_second_and_of_too_few_samples_there_is_none():
    history, samples = filled(60)
    p99 = history.fine.all()[:, 2]
    assert np.isnan(p99).tolist() == [True] + [False] * 59  # 50 samples, then 100
    assert p99[1] == percentile(np.sort(samples[:100]), 99)
    assert p99[-1] == percentile(np.sort(samples[-1000:]), 99)


def test_after_a_gap_p99_begins_anew():
    history, _ = filled(10)
    history.gap(lost=1)
    history.add(2 * SECOND, block(*[5] * 50))
    assert np.isnan(history.fine.all()[-1][2])


def test_rare_samples_make_a_p99_as_soon_as_there_are_a_hundred():
    history, samples = filled(150, count=1)
    p99 = history.fine.all()[:, 2]
    assert np.isnan(p99[98])
    assert p99[-1] == percentile(np.sort(samples[-100:]), 99)


def test_a_second_is_a_point_of_all_its_samples():
    history, samples = filled(41)
    first = np.sort(samples[: 20 * 50])
    assert len(history.coarse) == 2
    assert history.coarse.all()[0].tolist() == [
        pytest.approx(0.95), percentile(first, 50), percentile(first, 99), first[-1], 1000
    ]  # fmt: skip


def test_lost_blocks_are_a_gap_between_the_points_beside_it():
    history = History()
    history.gap()  # before the first block there is nothing to separate
    history.add(SECOND, block(1))
    history.gap(lost=3)
    history.add(3 * SECOND, block(2))
    assert history.lost == 3
    for ring, kept in ((history.fine, 3), (history.coarse, 2)):
        rows = ring.all()
        assert len(rows) == kept
        assert rows[1][0] == 1
        assert np.isnan(rows[1][1:4]).all()


def test_a_gap_is_one_gap_however_often_it_was_said():
    history = History()
    history.add(SECOND, block(1))
    history.gap()
    history.gap(lost=1)
    history.add(2 * SECOND, block(1))
    assert np.isnan(history.fine.all()[:, 1]).sum() == 1


def test_the_rings_are_bounded_and_keep_the_newest():
    history, samples = filled(300, fine=100, coarse=5, tail=1000)
    assert history.fine.all().shape == (100, 5)
    assert history.fine.all()[-1][0] == pytest.approx(299 / 20)
    assert history.coarse.all()[-1][0] == pytest.approx(13.95)
    assert len(history.coarse) == 5
    assert history.samples == 300 * 50
    assert sorted(history.tail.all()) == sorted(samples[-1000:])


def test_a_block_larger_than_what_is_kept_leaves_its_end():
    history = History(tail=10)
    history.add(SECOND, block(*range(1, 8)))
    history.add(2 * SECOND, block(*range(100, 125)))
    assert sorted(history.tail.all()) == list(range(115, 125))


def test_what_came_since_is_what_came_since():
    history, _ = filled(30, fine=20)
    assert history.fine.since(30).shape == (0, 5)
    assert history.fine.since(28)[:, 0].tolist() == history.fine.all()[-2:, 0].tolist()
    assert history.fine.since(0).shape == (20, 5)


def test_the_histogram_counts_each_sample_once_in_its_bin():
    history, samples = filled(100)
    rows = history.histogram()
    assert rows[:, 2].sum() == len(samples) == history.samples
    assert rows[0][0] <= samples.min() < rows[0][1]
    assert rows[-1][0] <= samples.max() <= rows[-1][1]
    for low, high, count in rows:
        near = ((samples >= low) & (samples < high)).sum()
        on_edge = np.isclose(samples, low).sum() + np.isclose(samples, high).sum()
        assert abs(near - count) <= on_edge


def test_bins_are_at_least_20_a_power_of_ten_from_1_ns_to_100_s():
    assert (EDGES_NS[0], EDGES_NS[-1]) == (1, pytest.approx(1e11))
    assert (np.diff(np.log10(EDGES_NS)) <= 1 / 20).all()


@pytest.mark.parametrize("ns", [0, 1, 10**11, 10**15, 2**64 - 1])
def test_times_beyond_the_bins_count_in_the_first_or_the_last(ns):
    history = History()
    history.add(SECOND, block(ns))
    assert history.histogram()[:, 2].tolist() == [1]
    assert history.figures() == {"min": ns, "max": ns}


def test_percentiles_are_within_a_bin_of_the_samples():
    history, samples = filled(400)
    ordered = np.sort(samples)
    for share in (0.5, 0.9, 0.99, 0.999):
        exact = percentile(ordered, round(share * 1000), 1000)
        assert history.at(share) == pytest.approx(exact, rel=0.006, abs=1)


def test_the_curve_rises_from_the_least_and_ends_where_the_samples_do():
    history, samples = filled(400)  # 20,000 samples: four nines, and no fifth
    curve = history.curve()
    assert curve[0].tolist() == [1, pytest.approx(samples.min(), rel=0.006)]
    assert (np.diff(curve[:, 0]) > 0).all()
    assert (np.diff(curve[:, 1]) >= 0).all()
    assert len(samples) / 1.2 < curve[-1][0] <= len(samples)
    assert curve[-1][1] <= samples.max()


def test_figures_have_the_percentiles_that_there_are_samples_for():
    history = History()
    history.add(SECOND, block(*range(1, 100)))
    assert list(history.figures()) == ["min", "p50", "p90", "max"]
    history.add(2 * SECOND, block(*range(1, 902)))
    assert list(history.figures()) == ["min", "p50", "p90", "p99", "p99.9", "max"]


def test_without_a_sample_there_is_nothing_to_show():
    history = History()
    history.add(SECOND, block())
    assert history.figures() == {}
    assert history.samples == len(history.fine) == len(history.curve()) == 0
    assert history.histogram().shape == (0, 3)


def test_a_clock_that_goes_on_where_it_stood_is_no_new_second():
    history = History()
    for _ in range(30):
        history.add(SECOND, block(5))
    assert len(history.coarse) == 0
    assert len(history.fine) == 30
