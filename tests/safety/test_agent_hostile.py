# SPDX-License-Identifier: Apache-2.0
"""An agent that answers with anything: its client raises DgkitErrors, and shows no escapes."""

import contextlib
import shlex
import subprocess
import threading

import msgspec
import pytest
import zmq
from support.processes import cli
from support.processes.agents import python

import dgkit
from dgkit.agent import unit
from dgkit.agent.systemd import quote
from dgkit.schema import LatencyResult, RateResult
from dgkit.wire import messages as m
from dgkit.wire.error_codec import to_exception
from dgkit.wire.host_id import boot_id
from dgkit.wire.messages import SUBSCRIBED

WELCOME = {
    "version": m.VERSION, "first_id": 5, "role": "dpu", "provider": "soft", "why": {}, "pid": 0,
    "boot": boot_id(), "machine": "machine", "cpus": 2, "max_memory": 1 << 30,
    "max_size": 1 << 30, "inline_max": 0, "spinning": False, "engine": "", "package": "0",
}  # fmt: skip
ESCAPE = "\x1b[2J\x1b]0;title\x07\x9b31m"


@contextlib.contextmanager
def hostile(path, answer):
    """An agent whose reply to a request is answer(kind, number), as bytes.

    It confirms subscriptions at telemetry.sock.
    """
    with zmq.Context() as context:
        router = context.socket(zmq.ROUTER)
        router.linger = 0
        router.bind(f"ipc://{path}/hostile.sock")
        router.bind(f"ipc://{path}/telemetry.sock")
        ending = threading.Event()

        def run():
            while not ending.is_set():
                if router.poll(20):
                    route, body = router.recv_multipart()
                    reply = SUBSCRIBED
                    with contextlib.suppress(msgspec.DecodeError):  # a subscription
                        request = m.decode_request(body)
                        reply = answer(type(request), request.id)
                    router.send_multipart([route, reply])

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"ipc://{path}/hostile.sock"
        finally:
            ending.set()
            thread.join()
            router.close()


ODD_COMPLETION = m.Failure(status=99, op=99, path=99, submit_ns=0, post_ns=0, complete_ns=0)
ODD = {
    "empty": lambda number: b"",
    "not utf-8": lambda number: m.encode(m.Subscribed(id=number, endpoint="abcd")).replace(
        b"abcd", b"\xff" * 4
    ),
    "deep": lambda number: b"\x91" * 20_000 + b"\xc0",
    "another kind": lambda number: m.encode(m.Done(id=number)),
    "another number": lambda number: m.encode(m.Done(id=number + 77)),
    "an odd status": lambda number: m.encode(
        m.Failed(id=number, kind="TransferError", text="x", errno=0, completion=ODD_COMPLETION)
    ),
    "an odd errno": lambda number: m.encode(
        m.Failed(id=number, kind="NativeError", text="x", errno=2**63, completion=None)
    ),
    "an odd kind": lambda number: m.encode(
        m.Failed(id=number, kind="SystemExit", text="x", errno=0, completion=None)
    ),
    "odd samples": lambda number: m.encode(m.Block(id=number, number=0, samples=b"123")),
    "an odd access": lambda number: m.encode(
        m.Imported(id=number, region=1, size=64, access=99, method="map")
    ),
    "a map": lambda number: msgspec.msgpack.encode({"id": number}),
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_reply_is_a_typed_error(tmp_path, odd):
    def answer(kind, number):
        if kind is m.Hello:
            return m.encode(m.Welcome(id=number, **WELCOME))
        return ODD[odd](number)

    for use in (lambda session: session.stats(), lambda session: session.empty(64, on="dpu")):
        with hostile(tmp_path, answer) as address, pytest.raises(dgkit.DgkitError):
            _use(address, use)


def _use(address, use):
    with dgkit.connect(address, timeout=1.0) as session:
        use(session)


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_reply_to_hello_is_a_typed_error(tmp_path, odd):
    with (
        hostile(tmp_path, lambda _, number: ODD[odd](number)) as address,
        pytest.raises(dgkit.DgkitError),
    ):
        dgkit.connect(address, timeout=1.0)


def test_escapes_in_the_texts_of_an_agent_are_removed(tmp_path):
    def answer(kind, number):
        if kind is m.Hello:
            texts = dict.fromkeys(("machine", "provider", "engine", "package"), ESCAPE)
            return m.encode(m.Welcome(id=number, **WELCOME | texts))
        return m.encode(
            m.Failed(id=number, kind="PeerError", text=ESCAPE, errno=0, completion=None)
        )

    with hostile(tmp_path, answer) as address, dgkit.connect(address, timeout=1.0) as session:
        assert "\x1b" not in f"{session!r} {session.info}"
        with pytest.raises(dgkit.PeerError) as raised:
            session.stats()
        assert str(raised.value).isprintable()


def test_an_error_text_keeps_its_lines_and_letters():
    text = "größer als\n\t4 GiB"
    assert (
        str(to_exception(m.Failed(id=1, kind="PeerError", text=text, errno=0, completion=None)))
        == text
    )


@pytest.mark.parametrize(
    ("word", "quoted"),
    [
        ("ipc:///run/x.sock", "ipc:///run/x.sock"),
        ("ipc:///a b/x", '"ipc:///a b/x"'),
        ("100%", "100%%"),
        ("$HOME", '"$$HOME"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("a\nExecStartPre=/bin/evil", '"a\\x0aExecStartPre=/bin/evil"'),
        ("it's", '"it\'s"'),
    ],
)
def test_the_unit_quotes_its_options_for_systemd(word, quoted):
    assert quote(word) == quoted
    assert quoted in unit(f"--address {quoted}")


@pytest.mark.parametrize("closed", [(1,), (0, 1, 2)])
def test_a_command_whose_streams_are_closed_ends_in_order(tmp_path, closed):
    shell = " ".join(f"{fd}>&-" for fd in closed)
    line = " ".join(map(shlex.quote, cli.command("demo", "--quick")))
    done = subprocess.run(
        ["sh", "-c", f"{line} {shell}"], env=cli.environment(tmp_path), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert "Error" not in done.stderr


def test_without_proc_the_error_says_so(tmp_path):
    code = "import dgkit\ntry: dgkit.connect()\nexcept dgkit.NativeError as e: print(e.strerror)"
    own = " ".join(map(shlex.quote, python(code)))
    line = f"mount -t tmpfs none /proc && {own}"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", line], env=cli.environment(tmp_path), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "/proc/self/statm does not exist" in done.stdout
    assert "Traceback" not in done.stderr


MACHINE = {
    "cpu": "a", "cpus": 2, "arch": "x86_64", "kernel": "6.1", "page_size": 4096, "virtual": None,
    "engine": "",
}  # fmt: skip
ODD_MACHINES = {
    "nothing": {},
    "an unknown field": MACHINE | {"color": "red"},
    "a field that is missing": {name: MACHINE[name] for name in MACHINE if name != "arch"},
    "a text for a number": MACHINE | {"cpus": "two"},
    "a number for a text": MACHINE | {"cpu": 3},
    "none": MACHINE | {"page_size": None},
    "not a name": MACHINE | {"__class__": "x"},
}


def _measured(number, kind, machine, elapsed=1):
    if kind is m.Latency:
        result = LatencyResult(
            blocks=0, path="inline", floor_before=0, floor_after=0, machine=machine, sleeps=0
        )
        return m.LatencyDone(id=number, result=result)
    if kind is m.Rate:
        result = RateResult(
            ops=1, moved=1, elapsed_ns=elapsed, failed=0, path="inline",
            floor_before=0, floor_after=0, machine=machine, sleeps=0,
        )  # fmt: skip
        return m.RateDone(id=number, result=result)
    return m.Watching(id=number, path="inline", machine=machine)


@pytest.mark.parametrize("odd", ODD_MACHINES)
@pytest.mark.parametrize("use", ["bandwidth", "monitor"])
def test_an_odd_machine_is_a_typed_error(tmp_path, odd, use):
    _fails_typed(tmp_path, use, ODD_MACHINES[odd])


@pytest.mark.parametrize("elapsed", [0, -1])
def test_an_odd_duration_is_a_typed_error(tmp_path, elapsed):
    _fails_typed(tmp_path, "bandwidth", MACHINE, elapsed)


def _fails_typed(tmp_path, use, machine, elapsed=1):
    def answer(kind, number):
        if kind is m.Hello:
            return m.encode(m.Welcome(id=number, **WELCOME))
        if kind is m.Import:
            return m.encode(m.Imported(id=number, region=1, size=64, access=3, method="map"))
        if kind is m.Subscribe:
            return m.encode(
                m.Subscribed(id=number, endpoint=f"ipc://{tmp_path}/telemetry.sock", monitor=1)
            )
        if kind in (m.Rate, m.Watch):
            return m.encode(_measured(number, kind, machine, elapsed))
        return m.encode(m.Done(id=number))

    with (
        hostile(tmp_path, answer) as address,
        dgkit.connect(address, timeout=1.0) as session,
        session.empty(64) as region,
        pytest.raises(dgkit.DgkitError),
    ):
        getattr(session, use)(region, size=8)
