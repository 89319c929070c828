# SPDX-License-Identifier: Apache-2.0
"""The verdict of tests/safety/soak.py: a leak fails, noise and warm-up do not."""

import random

import pytest
from safety.soak import Counts, Sample, judge


def samples(rss=lambda t: 40_000, fds=lambda t: 30, threads=lambda t: 9, count=100):
    return [Sample(t * 3.0, int(rss(t)), int(fds(t)), int(threads(t))) for t in range(count)]


def verdict(host, counts=None):
    return judge({"host": host, "agent": samples()}, counts or Counts())


def test_noise_outliers_and_a_warm_up_are_no_leak():
    chance = random.Random(1)
    noisy = samples(
        rss=lambda t: (
            min(t, 10) * 5000 + chance.randrange(-3000, 3000) + (90_000 if t == 99 else 0)
        ),
        fds=lambda t: 30 + chance.randrange(3) + (40 if t % 17 == 0 else 0),
    )
    report = verdict(noisy)
    assert report["ok"], report["failures"]


@pytest.mark.parametrize(
    ("name", "leak"),
    [
        ("rss_kib", {"rss": lambda t: 40_000 + 100 * t}),
        ("fds", {"fds": lambda t: 30 + t / 20}),
        ("threads", {"threads": lambda t: 9 + t / 20}),
    ],
)
def test_steady_growth_is_a_leak(name, leak):
    report = verdict(samples(**leak))
    assert not report["ok"]
    (failure,) = report["failures"]
    assert failure.startswith(f"host: {name} grew by ")


def test_too_few_samples_and_a_failed_call_fail():
    assert not verdict(samples(count=5))["ok"]
    assert verdict(samples(), Counts(failures=["bytes differ"]))["failures"] == ["bytes differ"]
