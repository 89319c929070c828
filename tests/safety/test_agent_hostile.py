"""An agent that answers with anything: its client raises DgkitErrors, and shows no escapes."""

import contextlib
import threading

import msgspec
import pytest
import zmq
from support.processes import cli

import dgkit
from dgkit.agent import unit
from dgkit.agent.systemd import quote
from dgkit.wire import messages as m
from dgkit.wire.error_codec import to_exception
from dgkit.wire.host_id import boot_id
from dgkit.wire.telemetry import SUBSCRIBED

WELCOME = (m.VERSION, 5, "dpu", "soft", {}, 0, boot_id(), "machine", 2, 1 << 30, 1 << 30, 0, False)
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


ODD = {
    "empty": lambda number: b"",
    "not utf-8": lambda number: m.encode(m.Subscribed(number, "abcd")).replace(
        b"abcd", b"\xff" * 4
    ),
    "deep": lambda number: b"\x91" * 20_000 + b"\xc0",
    "another kind": lambda number: m.encode(m.Done(number)),
    "another number": lambda number: m.encode(m.Done(number + 77)),
    "an odd status": lambda number: m.encode(
        m.Failed(number, "TransferError", "x", 0, m.Failure(99, 99, 99, 0, 0, 0))
    ),
    "an odd errno": lambda number: m.encode(m.Failed(number, "NativeError", "x", 2**63, None)),
    "an odd kind": lambda number: m.encode(m.Failed(number, "SystemExit", "x", 0, None)),
    "odd samples": lambda number: m.encode(m.Block(number, 0, b"123")),
    "an odd access": lambda number: m.encode(m.Imported(number, 1, 64, 99, "map")),
    "a map": lambda number: msgspec.msgpack.encode({"id": number}),
}


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_reply_is_a_typed_error(tmp_path, odd):
    def answer(kind, number):
        if kind is m.Hello:
            return m.encode(m.Welcome(number, *WELCOME, "", "0"))
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
            words = [ESCAPE if word in ("machine", "soft") else word for word in WELCOME]
            return m.encode(m.Welcome(number, *words, ESCAPE, ESCAPE))
        return m.encode(m.Failed(number, "PeerError", ESCAPE, 0, None))

    with hostile(tmp_path, answer) as address, dgkit.connect(address, timeout=1.0) as session:
        assert "\x1b" not in f"{session!r} {session.info}"
        with pytest.raises(dgkit.PeerError) as raised:
            session.stats()
        assert str(raised.value).isprintable()


def test_an_error_text_keeps_its_lines_and_letters():
    text = "größer als\n\t4 GiB"
    assert str(to_exception(m.Failed(1, "PeerError", text, 0, None))) == text


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
    import shlex
    import subprocess

    line = " ".join(map(shlex.quote, cli.command("demo", "--quick")))
    done = subprocess.run(
        ["sh", "-c", f"{line} {shell}"], env=cli.environment(tmp_path), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert "Error" not in done.stderr


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
        return m.LatencyDone(number, 0, "inline", 0, 0, machine)
    if kind is m.Rate:
        return m.RateDone(number, 1, 1, elapsed, 0, "inline", 0, 0, machine)
    return m.Watching(number, "inline", machine)


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
            return m.encode(m.Welcome(number, *WELCOME, "", "0"))
        if kind is m.Import:
            return m.encode(m.Imported(number, 1, 64, 3, "map"))
        if kind is m.Subscribe:
            return m.encode(m.Subscribed(number, f"ipc://{tmp_path}/telemetry.sock", 1))
        if kind in (m.Rate, m.Watch):
            return m.encode(_measured(number, kind, machine, elapsed))
        return m.encode(m.Done(number))

    with (
        hostile(tmp_path, answer) as address,
        dgkit.connect(address, timeout=1.0) as session,
        session.empty(64) as region,
        pytest.raises(dgkit.DgkitError),
    ):
        getattr(session, use)(region, size=8)
