# SPDX-License-Identifier: Apache-2.0
"""Rules of the provider `fault`."""

import pytest
from support.dma import rig

import dgkit
from dgkit import FaultRule, Status


def statuses(r, posts):
    """The status of each of (write?, size), one after another."""
    found = []
    for write, size in posts:
        post = r.queue.write if write else r.queue.read
        try:
            found.append(post(*r.pair, size=size).wait(5).status)
        except dgkit.TransferError as error:
            found.append(error.completion.status)
    return [s is not Status.OK for s in found]


WRITES = [(True, 8)] * 8


@pytest.mark.parametrize(
    ("rule", "hit"),
    [
        (FaultRule("error"), [1, 1, 1, 1, 1, 1, 1, 1]),
        (FaultRule("error", every=3), [1, 0, 0, 1, 0, 0, 1, 0]),
        (FaultRule("error", skip=2), [0, 0, 1, 1, 1, 1, 1, 1]),
        (FaultRule("error", count=2), [1, 1, 0, 0, 0, 0, 0, 0]),
        (FaultRule("error", skip=1, every=2, count=2), [0, 1, 0, 1, 0, 0, 0, 0]),
        (FaultRule("error", ops="r"), [0] * 8),
        (FaultRule("error", ops="w"), [1] * 8),
        (FaultRule("error", probability=0.0), [0] * 8),
    ],
)
def test_a_rule_hits_what_it_says(rule, hit):
    with rig("fault", rules=[rule]) as r:
        assert statuses(r, WRITES) == [bool(h) for h in hit]


def test_sizes_and_operations_select():
    rules = [FaultRule("error", min_size=10, max_size=20, ops="w")]
    posts = [(True, 9), (True, 10), (True, 20), (True, 21), (False, 15)]
    with rig("fault", rules=rules) as r:
        assert statuses(r, posts) == [False, True, True, False, False]


def test_the_first_rule_that_matches_acts():
    rules = [
        FaultRule("error", status=Status.PEER_LOST, max_size=8),
        FaultRule("error", status=Status.LOCAL_ERROR),
    ]
    with rig("fault", rules=rules) as r:
        for size, status in ((8, Status.PEER_LOST), (9, Status.LOCAL_ERROR)):
            with pytest.raises(dgkit.TransferError) as info:
                r.queue.write(*r.pair, size=size).wait(5)
            assert info.value.completion.status is status


def test_a_probability_is_drawn_from_its_seed():
    def drawn(seed):
        with rig("fault", rules=[FaultRule("error", probability=0.5, seed=seed)]) as r:
            return statuses(r, [(True, 8)] * 200)

    assert drawn(1) == drawn(1) != drawn(2)
    assert 60 < sum(drawn(1)) < 140


def test_a_delay_comes_that_much_later():
    with rig("fault", rules=[FaultRule("delay", delay_us=2000)]) as r:
        assert r.queue.write(*r.pair, size=8).wait(5).latency_ns >= 2_000_000


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"action": "explode"}, ValueError, "action is 'explode'; it must be one of error, delay"),
        ({"ops": "x"}, ValueError, "ops is 'x'"),
        ({"ops": ""}, ValueError, "ops is ''"),
        ({"ops": "rr"}, ValueError, "ops is 'rr'"),
        ({"probability": 1.5}, ValueError, r"probability is 1\.5; it must be from 0 to 1"),
        ({"probability": float("nan")}, ValueError, "probability is nan"),
        ({"every": 0}, ValueError, "every is 0; it must be 1 or more"),
        ({"every": 1 << 32}, ValueError, "every is 4294967296"),
        ({"skip": -1}, ValueError, "skip is -1"),
        ({"count": 1.5}, TypeError, r"count is 1\.5"),
        ({"count": 1 << 64}, ValueError, "count is 18446744073709551616"),
        ({"min_size": -1}, ValueError, "min_size is -1"),
        ({"max_size": 1 << 64}, ValueError, "max_size is"),
        ({"delay_us": -1}, ValueError, "delay_us is"),
        ({"delay_us": float("nan")}, ValueError, "delay_us is"),
        ({"status": 99}, ValueError, "99 is not a valid Status"),
        ({"seed": "x"}, TypeError, "seed is 'x'"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_when_it_is_made(values, error, words):
    with pytest.raises(error, match=words):
        FaultRule(**{"action": "error", **values})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"status": Status.OK}, "injects status 0, which is not an error"),
        ({"min_size": 9, "max_size": 8}, "a fault rule is invalid: .* sizes 9 to 8"),
    ],
)
def test_a_rule_that_can_never_act_is_refused_when_the_device_opens(values, words):
    with pytest.raises(ValueError, match=words):
        dgkit.Device("fault", rules=[FaultRule("error", **values)])


def test_a_rule_that_is_none_is_a_type_error():
    with pytest.raises(TypeError, match="must be FaultRule"):
        dgkit.Device("fault", rules=["lose"])


def test_an_endless_delay_ends_as_timed_out():
    rules = [FaultRule("delay", delay_us=float("inf"))]
    with (
        rig("fault", rules=rules, op_timeout=0.02) as r,
        pytest.raises(dgkit.TransferError, match="TIMED_OUT"),
    ):
        r.queue.write(*r.pair, size=8).wait(5)
