# SPDX-License-Identifier: Apache-2.0
"""The result of a read of TransferPanel: its first bytes are shown, and none is held."""

import gc

import numpy as np
from support.jupyter.transfer import start
from support.processes.waiting import until

from dgkit.session import SessionTransfer
from dgkit.widgets.transfer.transfer_panel import TransferPanel

MIB = 1 << 20


def test_the_first_bytes_of_a_read_are_shown_and_none_is_held(session, view, monkeypatch):
    panel, copied, first = view(TransferPanel(session)), [], SessionTransfer.first
    monkeypatch.setattr(
        SessionTransfer, "first", lambda *args: copied.append(args[1:]) or first(*args)
    )
    with session.empty(MIB, name="r") as region:
        region.array[:] = np.arange(MIB) % 251
        start(panel, region, op="read", size="512K", offset="64K")
        for _ in range(3):
            result = panel.ask("hello")["read_result"]
        assert (result["size"], result["what"]) == (MIB // 2, "read r")
        assert result["lines"][0].startswith("00010000  19 1a 1b")
        assert (len(result["lines"]), copied) == (8, [(128,)])
    reads = lambda: [one for one in gc.get_objects() if type(one) is SessionTransfer]  # noqa: E731
    until(lambda: gc.collect() >= 0 and not reads(), "the read's memory is given back")
