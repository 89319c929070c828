# SPDX-License-Identifier: Apache-2.0
"""A session that one thread closes while another waits: that one is told, by ClosedError."""

import threading
from concurrent.futures import ThreadPoolExecutor

import dgkit
from dgkit.errors import ClosedError

SIZE = 64 << 20


def keep_writing(session, region, began):
    while True:
        transfer = session.start_write(region, bytes(SIZE))
        began.set()
        transfer.wait(timeout=20)


def test_who_waits_for_a_transfer_is_told_that_the_session_was_closed():
    for _ in range(3):
        session = dgkit.connect()
        began = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(keep_writing, session, session.empty(SIZE), began)
            assert began.wait(20)
            session.close()
            assert type(waits.exception(20)) is ClosedError
