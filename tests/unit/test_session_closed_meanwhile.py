"""A session that one thread closes while another waits: that one is told, by ClosedError."""

import threading

import dgkit
from dgkit.errors import ClosedError

SIZE = 64 << 20


def test_who_waits_for_a_transfer_is_told_that_the_session_was_closed():
    for _ in range(3):
        session = dgkit.connect()
        region = session.empty(SIZE)
        began, ended = threading.Event(), []

        def wait(session=session, region=region, began=began, ended=ended):
            try:
                while True:
                    transfer = session.start_write(region, bytes(SIZE))
                    began.set()
                    transfer.wait(timeout=20)
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert began.wait(20)
        session.close()
        thread.join(20)
        assert [type(error) for error in ended] == [ClosedError]
