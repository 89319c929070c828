# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at any instant of what creates something: then both sides of the session hold the same."""

import concurrent.futures
import contextlib
import itertools
import os
import sys
import time

import pytest
from support.interrupting import Interrupting, agents_hold, held
from support.processes.agents import agent

import dgkit
from dgkit.session.staging import Staging
from dgkit.sizes import SMALL

pytestmark = [
    pytest.mark.skipif(
        sys.version_info < (3, 11), reason="older versions keep no table of handlers"
    ),
    # What no caller got warns that it was not closed; a finalizer may be interrupted, too.
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
]

STEP = int(os.environ.get("DGKIT_INTERRUPT_STEP", "37"))
SIZE = 4096


@pytest.fixture(scope="module", params=["remote", "local", "two agents"])
def session(request):
    with contextlib.ExitStack() as stack:
        sides = {"remote": ["dpu"], "local": ["host"], "two agents": ["dpu", "host"]}
        addresses = [
            stack.enter_context(agent(role=role, shared_telemetry=False)).address
            for role in sides[request.param]
        ]
        given = dict(zip(("address", "host"), addresses, strict=False))
        yield stack.enter_context(dgkit.connect(**given))


@contextlib.contextmanager
def staging(session):
    opened = opened_staging(session)
    yield
    opened.close()


def opened_staging(session):
    opened = Staging(session.dpu.link, session.device, SMALL, 2, 5.0)
    opened.open()
    return opened


def calls_of(session, region, at_dpu):
    return {
        "empty": lambda: session.empty(SIZE),
        "empty at the DPU": lambda: session.empty(SIZE, on="dpu"),
        "register": lambda: session.register(bytearray(SIZE)),
        "monitor": lambda: session.monitor(region, every_s=10),
        "gpu_queue": lambda: session.gpu_queue(at_dpu, region),
        "latency": lambda: contextlib.nullcontext(session.latency(region, count=20)),
        "staging": lambda: staging(session),
    }


ONLY = {"register": ("remote", "local"), "gpu_queue": ("remote",), "staging": ("remote",)}


def in_thread(call):
    """Call from another thread: locks that the main thread leaked are reentrant for it."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(call).result(20)


def settle(session, want, when):
    deadline = time.monotonic() + 10
    while (found := in_thread(lambda: held(session))) != want:
        assert time.monotonic() < deadline, f"{when}: {found}, before: {want}"


def test_ctrl_c_at_any_bytecode_leaves_nothing_on_either_side(session, request, monkeypatch):
    # pytest's hook keeps what an interrupted finalizer was to free.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    side = request.node.callspec.params["session"]
    with session.empty(SIZE) as region, session.empty(SIZE, on="dpu") as at_dpu:
        agents = agents_hold(session)
        calls = {
            kind: call
            for kind, call in calls_of(session, region, at_dpu).items()
            if side in ONLY.get(kind, (side,))
        }
        for call in calls.values():  # once, so that all is there that lasts as long as the session
            with call():
                pass
        want = held(session)[0], agents
        settle(session, want, "without Ctrl-C")
        for kind, call in calls.items():
            interrupt_each(session, call, want, kind)


@pytest.mark.parametrize("session", ["remote"], indirect=True)
def test_ctrl_c_at_any_bytecode_of_closing_staging_memory_leaves_nothing(session, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    opened_staging(session).close()
    want = held(session)
    for number in itertools.count(1):
        opened, interrupting = opened_staging(session), Interrupting(number)
        with contextlib.suppress(KeyboardInterrupt), interrupting:
            opened.close()
        del opened
        if interrupting.left > 0:
            break
        settle(session, want, f"bytecode {number} of close()")
    assert number > 10


def interrupt_each(session, call, want, kind):
    lasting = {*session.regions}
    for number in itertools.count(1, STEP):
        interrupting = Interrupting(number)
        with contextlib.suppress(KeyboardInterrupt), interrupting, call():
            pass
        if interrupting.left > 0:
            break
        for each in {*session.regions} - lasting:  # the session has them, the caller may not
            each.close()
        for each in session.monitors:
            each.close()
        settle(session, want, f"{kind}, bytecode {number}")
    assert number > 3 * STEP
