# SPDX-License-Identifier: Apache-2.0
"""A failed completion that comes while wait() waits without a limit."""

import pytest
from support.dma import rig

from dgkit import FaultRule, TransferError


def test_a_wait_without_a_limit_raises_what_failed_and_raises_it_again():
    with rig("fault", rules=[FaultRule("error", ops="w", skip=1, delay_us=0)]) as r:
        r.queue.write(*r.pair, size=4).wait()
        transfer = r.queue.write(*r.pair, size=4)
        for _ in range(2):
            with pytest.raises(TransferError, match="IO_FAILED"):
                transfer.wait()
        assert r.queue.pending == 0
