# SPDX-License-Identifier: Apache-2.0
"""Lab 6: what each kind of submission scores."""

import pytest
from support.teaching import score, skeleton, solution

LAB = "lab6"
RIGHT = solution(LAB)
FULL = {
    "test_feed": 25.0,
    "test_overlap": 20.0,
    "test_cpu_share": 10.0,
    "test_schedule": 20.0,
    "test_changing_work": 15.0,
    "test_few_hours": 0.0,
}
NOTHING = dict.fromkeys(FULL, 0.0)
FEED = ("test_feed", "test_overlap")
SCHEDULE = ("test_schedule", "test_changing_work")

SINGLE = """
def feed(dpu):
    for batch in range(dpu.batches()):
        while not dpu.ready(batch):
            dpu.wait()
        number = dpu.copy(batch, 0)
        while not dpu.copied(number):
            dpu.wait()
        dpu.signal(batch, 0)
        while len(dpu.losses()) <= batch:
            dpu.wait()
    return dpu.losses()
"""
OVERWRITES = """
def feed(dpu):
    for batch in range(dpu.batches()):
        while not dpu.ready(batch):
            dpu.wait()
        number = dpu.copy(batch, batch % dpu.slots())
        while not dpu.copied(number):
            dpu.wait()
        dpu.signal(batch, batch % dpu.slots())
    while len(dpu.losses()) < dpu.batches():
        dpu.wait()
    return dpu.losses()
"""
SIGNALS_EARLY = """
def feed(dpu):
    count, slots = dpu.batches(), dpu.slots()
    for batch in range(count):
        while not dpu.ready(batch) or batch - len(dpu.losses()) >= slots:
            dpu.wait()
        dpu.copy(batch, batch % slots)
        dpu.signal(batch, batch % slots)
    while len(dpu.losses()) < count:
        dpu.wait()
    return dpu.losses()
"""
FIRST_COME = """
def schedule(jobs):
    chosen = {job["on"]: job["job"] for job in reversed(jobs) if job["on"]}
    fresh = [job["job"] for job in jobs if not job["on"]]
    for name in ("big", "small"):
        if name not in chosen and fresh:
            chosen[name] = fresh.pop(0)
    return chosen
"""
ONLY_BIG = """
def schedule(jobs):
    return {"big": jobs[0]["job"]}
"""


def test_the_solution_scores_everything_and_its_bonus_is_a_ratio_of_hours():
    made = score(LAB, solution(LAB, "alice"), student="alice")
    assert made.points == FULL, made.feedback
    assert 1.7 < made.ratios["test_few_hours"] < 2.4


def test_the_neighbours_answer_gets_few_points():
    assert score(LAB, solution(LAB, "bob"), student="alice").total == 0.0


def test_the_skeleton_scores_nothing():
    assert score(LAB, skeleton(LAB)).points == NOTHING


def test_a_single_buffer_trains_right_and_costs_the_part_that_overlaps():
    made = score(LAB, RIGHT | {"feed": SINGLE}, *FEED)
    assert made.points == {"test_feed": 25.0, "test_overlap": 0.0}
    told = made.feedback["test_overlap"]
    assert "WRONG  batches that take unlike times" in told
    assert " ms are enough" not in told, "a hidden test shows no data"


@pytest.mark.parametrize(
    ("points", "code", "mistake"),
    [
        (13.5, OVERWRITES, "the DMA overwrites slot 0 while batch 0 is trained"),
        (0.0, SIGNALS_EARLY, "the accelerator starts batch 0 while slot 0 is being filled"),
    ],
)
def test_a_slot_that_is_used_too_early_caps_its_part_and_the_picture_shows_where(
    points, code, mistake
):
    made = score(LAB, RIGHT | {"feed": code}, *FEED)
    assert made.total == points, made.feedback
    told = made.feedback["test_feed"]
    assert "was trained from wrong bytes: its loss is " in told
    assert mistake in told
    assert "^^^" in told, "what is wrong is underlined"


def test_first_come_first_served_beats_naive_sharing_only_where_all_jobs_are_present():
    made = score(LAB, RIGHT | {"schedule": FIRST_COME}, *SCHEDULE, "test_few_hours")
    assert made.points == {"test_schedule": 4.0, "test_changing_work": 0.0, "test_few_hours": 0.0}
    assert made.ratios == {}
    told = made.feedback["test_schedule"]
    assert "completion time: " in told
    assert "accelerator time: " in told
    assert "of naive sharing's" in told
    assert "\n       small  " in told, "the picture"


@pytest.mark.more
def test_the_big_accelerator_alone_saves_hours_and_costs_time():
    made = score(LAB, RIGHT | {"schedule": ONLY_BIG}, *SCHEDULE)
    assert made.points == {"test_schedule": 12.0, "test_changing_work": 7.5}
    assert "WRONG  jobs that arrive: all end, soon" in made.feedback["test_schedule"]


DETECTS_THE_TEST = """
def feed(dpu):
    count, slots = dpu.batches(), dpu.slots()
    if count < 15:
        return single(dpu)
    for batch in range(count):
        while batch - len(dpu.losses()) >= slots:
            dpu.wait()
        dpu.signal(batch, batch % slots)
    while len(dpu.losses()) < count:
        dpu.wait()
    return dpu.losses()
"""
LOSSES_OF_ANOTHER_RUN = """
def feed(dpu):
    import random
    from dgkit.teach import training_feed, verdict
    rng = verdict.seeded("feed")
    network = training_feed.Network()
    data = training_feed._batches(random.Random(str(rng.random())), dpu.batches())
    return [network.train(batch) for batch in data]
"""
CHEATS = {
    "signals without a copy": """
def feed(dpu):
    for batch in range(dpu.batches()):
        dpu.signal(batch, 0)
    while len(dpu.losses()) < dpu.batches():
        dpu.wait()
    return dpu.losses()
""",
    "patches the test": """
from dgkit.teach import training_feed, verdict
training_feed._check_training = training_feed.check_time = lambda *_: None
training_feed._SLACK = 1e9
verdict.expect = lambda *_: None
def feed(dpu):
    return []
""",
    "never waits": """
def feed(dpu):
    while not dpu.ready(0):
        pass
""",
    "waits for ever": """
def feed(dpu):
    while True:
        dpu.wait()
""",
}


@pytest.mark.cheat
def test_a_feed_that_copies_nothing_where_only_the_time_seems_to_count_is_capped():
    cells = RIGHT | {"feed": SINGLE.replace("feed", "single") + DETECTS_THE_TEST}
    made = score(LAB, cells, *FEED)
    assert made.points["test_feed"] == 7.5
    assert made.points["test_overlap"] <= 6.0
    assert "trained from its own bytes" in made.feedback["test_overlap"]


@pytest.mark.cheat
def test_losses_that_were_not_trained_score_nothing():
    made = score(LAB, RIGHT | {"feed": LOSSES_OF_ANOTHER_RUN}, *FEED)
    assert made.total == 0.0
    assert "the batches trained by then are []" in made.feedback["test_feed"]


@pytest.mark.cheat
@pytest.mark.more
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_feed_that_does_not_feed_scores_nothing(cheat):
    made = score(LAB, RIGHT | {"feed": CHEATS[cheat]}, *FEED, time_s=5.0)
    assert made.total == 0.0, made.feedback


@pytest.mark.more
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("{'big': jobs[0]['job'], 'small': jobs[0]['job']}", "each job once"),
        ("{'big': 99}", "it returned {'big': 99}"),
        ("{'huge': jobs[0]['job']}", "must return a dict from ('big', 'small')"),
        ("{}", "jobs wait forever"),
        ("jobs[0].update(seconds={'big': 0, 'small': 0})", "it returned None"),
    ],
)
def test_a_schedule_that_is_none_scores_nothing(answer, why):
    cells = RIGHT | {"schedule": f"def schedule(jobs):\n    return {answer}\n"}
    made = score(LAB, cells, *SCHEDULE)
    assert made.total == 0.0
    assert why in made.feedback["test_schedule"]
