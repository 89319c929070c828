# SPDX-License-Identifier: Apache-2.0
"""An agent listens only at a free address: it replaces no file and no socket in use."""

import contextlib
import os
import socket

import pytest
from support.processes.waiting import until

import dgkit
from dgkit.errors import NativeError
from dgkit.wire import address
from dgkit.wire.listener import Listener


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.sock"


def listen(path):
    return Listener(f"ipc://{path}", None)


def test_a_file_that_is_no_socket_is_refused_and_stays(path):
    path.write_text("precious")
    with pytest.raises(NativeError, match="is not a socket"):
        listen(path)
    assert path.read_text() == "precious"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["dir", "fifo"])
def test_a_folder_or_a_pipe_is_refused_and_stays(path, make):
    make(path)
    with pytest.raises(NativeError, match="is not a socket"):
        listen(path)
    assert path.exists()


def test_a_symbolic_link_is_refused_and_what_it_leads_to_stays(path, tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    path.symlink_to(target)
    with pytest.raises(NativeError, match="is not a socket"):
        listen(path)
    assert path.readlink() == target
    assert target.read_text() == "precious"


def test_the_address_of_an_agent_that_lives_is_refused_and_it_goes_on(path):
    first = listen(path)
    inode = path.stat().st_ino
    with pytest.raises(NativeError, match="another agent listens there"):
        listen(path)
    assert path.stat().st_ino == inode
    first.close()
    assert not path.exists()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_a_socket_that_another_program_uses_is_refused(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as other:
        other.bind(str(path))
        if kind != socket.SOCK_DGRAM:
            other.listen()
        with pytest.raises(NativeError, match="listens there"):
            listen(path)
    assert path.exists()


def test_a_dead_socket_is_replaced(path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    listen(path).close()
    assert not path.exists()


def test_a_socket_that_took_its_place_is_not_removed(path):
    first = listen(path)
    path.unlink()
    second = listen(path)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


def test_a_fresh_name_is_one_that_is_not_taken():
    taken = address.fresh().path
    serial = int(taken.stem.rpartition("-")[2])
    following = taken.with_name(f"agent-{os.getpid()}-{serial + 1}.sock")
    following.write_text("")
    assert address.fresh().path not in (taken, following)


def _burst(stack, path, count):
    for _ in range(count):
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.connect(str(path))
        assert connection.recv(1) == b"\xff"  # ZMTP's greeting: it is accepted


def test_a_burst_of_connections_is_handled_in_parts_and_then_within_the_limit(path):
    limit, part = 40, 32
    with contextlib.ExitStack() as stack:
        agent = Listener(f"ipc://{path}", None, limit)
        stack.callback(agent.close)
        _burst(stack, path, 90)
        agent.service()
        assert (agent.behind, len(agent._acceptors[0])) == (1, part)
        agent.service()
        assert (agent.behind, len(agent._acceptors[0])) == (2, 2 * part)
        until(lambda: agent.service() and len(agent._acceptors[0]) == limit, "the others end")
        assert not agent.behind


def test_all_of_a_burst_is_handled_before_a_hello(path):
    with contextlib.ExitStack() as stack:
        agent = listen(path)
        stack.callback(agent.close)
        _burst(stack, path, 50)
        agent.service(every=True)
        assert (agent.behind, len(agent._acceptors[0])) == (0, 50)


def test_serve_leaves_no_socket_when_its_provider_is_not_there(tmp_path):
    from dgkit.agent import serve

    with pytest.raises((dgkit.DgkitError, ValueError), match="nosuch"):
        serve(provider="nosuch")
    assert not list(tmp_path.rglob("*.sock"))
