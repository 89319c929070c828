# SPDX-License-Identifier: Apache-2.0
"""No request, peer, file or limit ends the agent: it serves the next client."""

import contextlib
import threading
import time

import pytest
import zmq
from support.agent_faults import BOUNDARIES, exceptions, inject, running
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.wire import keys
from dgkit.wire import messages as m
from dgkit.wire.address import parse


@pytest.fixture
def own_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys.allow(keys.make().public)
    return tmp_path / "dgkit" / "keys"


def visit(address, timeout=5.0):
    """Use every kind of request once; what fails in it may be the injected fault."""
    with dgkit.connect(address, timeout=timeout) as session:
        far, near = session.empty(64, on="dpu"), session.empty(64)
        session.write(near, b"fine")
        session.copy(near, far)
        session.telemetry()
        assert session.read(far, 4) == b"fine"
        far.close()


@pytest.mark.parametrize("boundary", [name for name in BOUNDARIES if name != "keys"])
def test_an_agent_lives_on_after_any_exception_at_a_boundary(monkeypatch, boundary):
    injector = inject(monkeypatch, boundary)
    with running() as one:
        dgkit.connect(one.endpoint).close()  # its loop runs
        for number, fault in enumerate(exceptions()):
            injector.arm(fault)
            with contextlib.suppress(Exception):
                visit(one.endpoint, 1.0)
            injector.arm(None, 0)
            if number % 8 == 0:
                visit(one.endpoint)
        visit(one.endpoint)
        assert injector.hit
        with dgkit.connect(one.endpoint) as session:
            until(lambda: session.stats()["clients"] == 1, "the others have left")


def test_an_agent_lives_on_after_any_exception_in_an_authentication(monkeypatch, own_keys):
    injector = inject(monkeypatch, "keys")
    with running("tcp://127.0.0.1:0") as one:
        for fault in exceptions():
            injector.arm(fault)
            with pytest.raises(dgkit.PeerRefused, match="cannot read its list"):
                dgkit.connect(one.endpoint)
        visit(one.endpoint)


@pytest.mark.parametrize("boundary", ["hello", "memory", "register", "unregister", "import"])
def test_an_agent_lives_on_after_a_delay_at_a_boundary(monkeypatch, boundary):
    injector = inject(monkeypatch, boundary)
    with running() as one:
        injector.arm(None, 1, delay=0.5)
        visit(one.endpoint)
        visit(one.endpoint)


def test_a_hello_that_is_not_utf_8_is_refused_alone():
    with agent() as one, zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.linger = 0
        raw.connect(parse(one.address).endpoint)
        hello = m.encode(
            m.Hello(
                id=0, version=m.VERSION, pid=17, boot="boot", machine="machine", package="0.1.0"
            )
        )
        raw.send(hello.replace(b"boot", b"\xff\xfe\xff\xfe"))
        assert raw.poll(5000)
        assert m.decode_reply(raw.recv()).kind == "PeerError"
        visit(one.address)


def _group_writable(folder):
    (folder / "allowed").chmod(0o664)


def _not_utf_8(folder):
    with (folder / "allowed").open("ab") as out:
        out.write(b"\xff\xfe\n")


def _open_folder(folder):
    folder.chmod(0o775)


@pytest.mark.parametrize("damage", [_group_writable, _not_utf_8, _open_folder])
def test_damaged_keys_refuse_a_client_and_the_agent_lives(own_keys, damage):
    good = (own_keys / "allowed").read_bytes()
    with agent(address="tcp://127.0.0.1:0") as one:
        with dgkit.connect(one.address) as before:
            identity = keys.load()
            damage(own_keys)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(keys, "load", lambda name="default": identity)
                with pytest.raises(dgkit.PeerRefused, match="cannot read its list"):
                    dgkit.connect(one.address)
            assert before.stats()["internal_errors"] == 1
            own_keys.chmod(0o700)
            (own_keys / "allowed").chmod(0o600)
            (own_keys / "allowed").write_bytes(good)
        visit(one.address)


def test_without_another_thread_a_client_is_refused_and_those_before_go_on(monkeypatch):
    injector = inject(monkeypatch, "thread")
    with running() as one, dgkit.connect(one.endpoint) as before:
        near, far = before.empty(1 << 20), before.empty(1 << 20, on="dpu")
        injector.arm(RuntimeError("can't start new thread"), 1000)
        with pytest.raises(dgkit.LimitReached, match="cannot start another thread"):
            dgkit.connect(one.endpoint)
        with pytest.raises(dgkit.LimitReached, match="cannot start another thread"):
            before.copy(near, far)  # its first large move
        injector.arm(None, 0)
        before.copy(near, far)
        visit(one.endpoint)


def test_an_exporter_that_delays_a_free_holds_up_no_other_client(monkeypatch):
    injector = inject(monkeypatch, "unimport")
    with running() as one, dgkit.connect(one.endpoint) as slow, dgkit.connect(one.endpoint) as fast:
        region = slow.empty(64)
        slow.write(region, b"x")  # the agent has imported it
        injector.arm(None, 1, delay=1.0)
        freeing = threading.Thread(target=region.close)
        freeing.start()
        until(lambda: injector.hit, "the agent frees it")
        started = time.monotonic()
        for _ in range(10):
            fast.stats()
        assert time.monotonic() - started < 0.5
        freeing.join()
