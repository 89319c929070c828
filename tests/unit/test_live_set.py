# SPDX-License-Identifier: Apache-2.0
"""The weak set of live objects: what it holds while members come and go."""

import sys

from dgkit.live_set import LiveSet


class Member:
    pass


def test_ctrl_c_cannot_keep_a_member_that_has_gone(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    members, one = LiveSet(), Member()
    members.add(one)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    one = None
    sys.settrace(before)
    assert one is None
    assert len(members) == 0


def test_an_iteration_is_over_what_lived_at_its_begin():
    members, kept = LiveSet(), [Member() for _ in range(3)]
    for each in kept:
        members.add(each)
        members.add(each)
    assert len(members) == 3
    found = iter(members)
    members.discard(kept[0])
    members.discard(kept[0])
    assert [*found] == kept
    assert [*members] == kept[1:]
