# SPDX-License-Identifier: Apache-2.0
"""Every two methods in two threads: a sample of the pairs of pairs.py, another one each time."""

import random

import pytest
from safety import pairs
from support.processes import programs

SEED = random.randrange(1 << 32)
# How many pairs of each kind, and rounds of each: half a minute together.
SAMPLES = {"core": (100, 8), "doca": (60, 4), "remote": (6, 1), "local": (6, 1), "two": (6, 1)}
pytestmark = pytest.mark.timeout(400)  # the first test compiles the core with sanitizers


@pytest.fixture(scope="module")
def extension():
    if missing := programs.missing(["compiler"]):
        pytest.skip(f"the extension with AddressSanitizer cannot be built: it needs {missing}")
    return str(pairs.build())


def wrong(kind, chosen, rounds, extension):
    failed = pairs.run(kind, chosen, rounds, extension)
    return "\n\n".join(f"{' and '.join(pair)}: {text}" for pair, text in failed.items())


@pytest.mark.parametrize("kind", ["core", "doca"])
def test_each_method_succeeds_alone(kind, extension):
    assert wrong(kind, pairs.alone(kind), 1, extension) == ""


@pytest.mark.parametrize("kind", pairs.KINDS)
def test_two_methods_at_once_return_or_raise_an_error_of_dgkit(kind, extension):
    count, rounds = SAMPLES[kind]
    chosen = random.Random(SEED).sample(pairs.all_pairs(kind), count)
    failed = wrong(kind, chosen, rounds, extension)
    assert not failed, f"pairs.py --kind {kind} --pairs {count} --seed {SEED}:\n{failed}"


def test_a_wrong_error_a_hang_and_a_use_after_free_are_reported(extension, monkeypatch):
    monkeypatch.setenv("DGKIT_PAIRS_HUNG_S", "1")
    probes = [("region.repr", name) for name in pairs.PROBES]
    failed = pairs.run("core", probes, 1, extension)
    reports = {pair[1]: text for pair, text in failed.items()}
    assert "KeyError" in reports["wrong error"]
    assert "hung" in reports["hang"]
    assert "AddressSanitizer: heap-use-after-free" in reports["use after free"]
