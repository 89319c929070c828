"""A transfer that is cancelled ends early, says so, and leaves the session as it was."""

import pytest

import dgkit

SIZE = 64 << 20


@pytest.fixture(scope="module")
def session():
    with dgkit.connect() as session:
        yield session


@pytest.mark.parametrize("kind", ["read", "write"])
def test_a_cancelled_transfer_ends_and_the_next_one_works(session, kind):
    with session.empty(SIZE) as region:
        data = bytes(SIZE)
        if kind == "write":
            transfer = session.start_write(region, data)
        else:
            transfer = session.start_read(region, SIZE)
        transfer.cancel()
        with pytest.raises(dgkit.PeerError, match="interrupted"):
            transfer.wait(timeout=20)
        assert transfer.progress < 1.0
        session.write(region, b"after")
        assert session.read(region, 5) == b"after"


def test_cancelling_what_is_done_changes_nothing(session):
    with session.empty(100) as region:
        transfer = session.start_write(region, b"hello")
        report = transfer.wait()
        transfer.cancel()
        assert transfer.wait() is report
