# SPDX-License-Identifier: Apache-2.0
"""Who waits for a transfer is told how far it is."""

import pytest

import dgkit

SIZE = 64 << 20


@pytest.mark.parametrize("kind", ["read", "write"])
def test_who_waits_is_told_how_far_it_is(kind):
    with dgkit.connect() as session, session.empty(SIZE) as region:
        told = []
        if kind == "write":
            transfer = session.start_write(region, bytes(SIZE))
        else:
            transfer = session.start_read(region, SIZE)
        transfer.wait(progress=lambda done, total: told.append((done, total)))
        assert told == sorted(told)
        assert {total for _, total in told} == {SIZE}
        assert told[-1][0] == SIZE
        with pytest.raises(TypeError, match="progress"):
            transfer.wait(progress=1)
