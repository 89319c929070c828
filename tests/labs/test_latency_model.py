# SPDX-License-Identifier: Apache-2.0
"""Lab 4: what each kind of submission scores."""

import random

import pytest
from support.teaching import score, skeleton, solution

from dgkit.teach import latency_model

LAB = "lab4"
RIGHT = solution(LAB)
FULL = {
    "test_latency": 25.0,
    "test_predict": 40.0,
    "test_depth": 25.0,
    "test_few_operations": 0.0,
}
NOTHING = dict.fromkeys(FULL, 0.0)
LATER = ("test_predict", "test_depth", "test_few_operations")

MEAN = """
def latency(device, size):
    floors, times = device.nothing(100), device.transfers(size, 400)
    mean = sum(times) / len(times)
    return {"floor": sum(floors) / len(floors), "p50": mean, "p99": max(times)}
"""
ENDLESS = {
    "predict": """
def predict(notes, size, depth):
    return 1e9 * depth / (notes["base"] + notes["byte"] * size)
""",
    "smallest_depth": """
def smallest_depth(notes, size, share):
    return round(256 * share)
""",
}
WITHOUT_GAP = {
    name: RIGHT[name].replace('max(notes["gap"], notes["byte"] * size)', 'notes["byte"] * size')
    for name in ("predict", "smallest_depth")
}


def test_the_solution_scores_everything_and_its_bonus_is_a_ratio_of_operations():
    made = score(LAB, solution(LAB, "alice"), student="alice")
    assert made.points == FULL, made.feedback
    assert made.ratios == {"test_few_operations": pytest.approx(10_000 / 9700)}


def test_the_neighbours_answer_gets_few_points():
    assert score(LAB, solution(LAB, "bob"), student="alice").total == 0.0


def test_the_skeleton_scores_nothing():
    assert score(LAB, skeleton(LAB)).points == NOTHING


def test_a_mean_of_cold_transfers_costs_the_latency_and_is_drawn_beside_the_right_figures():
    made = score(LAB, RIGHT | {"latency": MEAN}, "test_latency")
    assert made.total == 0.0
    told = made.feedback["test_latency"]
    assert "'p50' is " in told
    assert "\n       right p50   ###" in told
    assert "\n       your p50    ###" in told


def test_a_rate_that_grows_for_ever_costs_the_situations_in_which_the_engine_is_busy():
    made = score(LAB, RIGHT | ENDLESS, *LATER)
    assert made.points == {"test_predict": 24.0, "test_depth": 0.0, "test_few_operations": 0.0}
    assert made.ratios == {}
    told = made.feedback["test_predict"]
    assert "WRONG  many small transfers, 64 bytes, depth " in told
    assert "\n       measured, depth 64 " in told
    assert "\n       your prediction    " in told


def test_the_limit_by_bytes_alone_costs_the_small_transfers():
    made = score(LAB, RIGHT | WITHOUT_GAP, *LATER)
    assert made.points == {"test_predict": 32.0, "test_depth": 0.0, "test_few_operations": 0.0}
    assert "enough" not in made.feedback["test_depth"], "a hidden test shows no data"
    assert "WRONG  50% of the highest rate, 64 bytes" in made.feedback["test_depth"]


@pytest.mark.more
def test_notes_of_too_few_operations_cost_some_predictions():
    few = RIGHT["explore"].replace("256, 8000) / 8000", "64, 64) / 64")
    made = score(LAB, RIGHT | {"explore": few}, "test_predict")
    assert made.points == {"test_predict": 36.0}, "within 30 %"


CHEATS = {
    "reads the parameters": "return vars(device)['parameters'] or device.parameters",
    "asks for more than it makes": "return [device.elapsed(64, 1, 20_000) for _ in range(2)]",
    "returns the device": "return {'base': device, 'byte': 0.1, 'gap': 100}",
    "returns what equals everything": """
    class Equal(float):
        def __eq__(self, other): return True
        def __rsub__(self, other): return 0.0
        def __truediv__(self, other): return 1.0
    return {'base': Equal(1e9), 'byte': Equal(1e9), 'gap': Equal(1e9)}""",
    "patches the device": """
    from dgkit.teach import latency_model, verdict
    latency_model._LIMITS = (1e9, 1e9)
    latency_model._check_rate = verdict.expect = lambda *_: None
    return {'base': 1, 'byte': 1, 'gap': 1}""",
}


@pytest.mark.cheat
@pytest.mark.parametrize(
    "cheat",
    [
        pytest.param(cheat, marks=[pytest.mark.more] * (number > 0))
        for number, cheat in enumerate(CHEATS)
    ],
)
def test_notes_that_were_not_measured_score_nothing(cheat):
    cells = RIGHT | {"explore": f"def explore(device):\n    {CHEATS[cheat].strip()}\n"}
    assert score(LAB, cells, *LATER).total == 0.0


@pytest.mark.more
@pytest.mark.parametrize("answer", ["10**400", "float('nan')", "float('inf')", "'fast'", "True"])
def test_a_prediction_that_is_no_number_scores_nothing(answer):
    cells = RIGHT | {"predict": f"def predict(notes, size, depth):\n    return {answer}\n"}
    assert score(LAB, cells, "test_predict").total == 0.0


@pytest.mark.cheat
def test_a_prediction_that_measures_has_no_device():
    kept = "kept = []\n" + RIGHT["explore"].replace(
        "    ### BEGIN", "    kept.append(device)\n    ### BEGIN"
    )
    measures = (
        "def predict(notes, size, depth):\n    return 1e9 / kept[0].elapsed(size, depth, 1)\n"
    )
    made = score(LAB, RIGHT | {"explore": kept, "predict": measures}, "test_predict")
    assert made.total == 0.0
    assert "predict sent a message that is not understood" in made.feedback["test_predict"]


def test_the_simulated_queue_obeys_littles_law():
    made = latency_model.Parameters(floor=500, base=4000, byte=0.1, gap=100)
    device = latency_model.Device(made, seed=1)
    for size, depth in ((64, 1), (64, 8), (4096, 4)):
        assert device.rate(size, depth) == pytest.approx(depth * 1e9 / made.latency(size), rel=0.03)
    for size in (64, 1 << 16):
        depth = 2 * round(made.knee(size)) + 2
        assert device.rate(size, depth) == pytest.approx(1e9 / made.occupied(size), rel=0.03)


@pytest.mark.more
def test_the_solution_is_right_with_other_seeds():
    notes: dict[str, float] = {}
    exec("\n".join(RIGHT.values()), scope := {})
    for seed in range(20):
        device = latency_model.Device(latency_model.Parameters.random(random.Random(seed)), seed)
        notes = scope["explore"](device)
        for size, depth in latency_model._situations(device.parameters).values():
            rate = device.rate(size, depth)
            assert scope["predict"](notes, size, depth) == pytest.approx(rate, rel=0.1)
