# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and other signals while something waits: the queue stays usable, nothing is lost."""

import contextlib
import gc
import itertools
import os
import signal
import socket
import sys
import threading
import time

import numpy as np
import pytest
from support import interrupting as interrupting_module
from support.dma import rig
from support.interrupting import Interrupting
from support.processes.children import run
from support.processes.waiting import child_states, until

import dgkit
from dgkit import FaultRule, Status, child, dma
from dgkit.dma import measure
from dgkit.files import check_descriptors
from dgkit.wire.address import parse
from dgkit.wire.connection import Connection
from dgkit.wire.inflow import Inflow

DELAY = [FaultRule("delay", delay_us=300_000, count=1)]


class Sender:
    """Sends this process a signal as soon as its main thread sleeps in the kernel."""

    def __init__(self, number):
        self.number = number
        self.thread = threading.Thread(target=self.run)

    def run(self):
        stat = f"/proc/self/task/{os.getpid()}/stat"
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with open(stat) as file:  # noqa: PTH123
                if file.read().rsplit(")", 1)[1].split()[0] == "S":
                    break
        signal.pthread_kill(threading.main_thread().ident, self.number)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join(10)


def records(r):
    batch = np.zeros(1, dgkit.WR_DTYPE)
    batch["local"], batch["remote"], batch["size"], batch["op"] = r.local.id, r.remote.id, 8, 1
    return batch


def test_a_signal_during_the_spinning_of_a_wait_interrupts_the_sleep_after_it():
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    rules = [FaultRule("delay", delay_us=20_000_000)]
    try:
        with rig("fault", rules=rules, spin_us=300_000, op_timeout=60) as r:
            transfer = r.queue.write(*r.pair, size=8)
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                transfer.wait()
            assert not transfer.done()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ways(r):
    out = np.zeros(1, dgkit.WC_DTYPE)

    def posted():
        r.queue.post(records(r))
        return r.queue.poll(out, timeout=5)

    return {
        "wait": lambda: r.queue.write(*r.pair, size=8).wait(),
        "wait with a timeout": lambda: r.queue.write(*r.pair, size=8).wait(5),
        "poll": posted,
        "run": lambda: r.queue.run(records(r), out),
        "run with a timeout": lambda: r.queue.run(records(r), out, 5),
        "prepared run": lambda: r.queue.prepare_write(*r.pair, size=8).run(),
        "prepared batch": lambda: r.queue.prepare(records(r)).run(),
        "latency": lambda: measure.latency(r.queue, *r.pair, size=8, count=1),
    }


WAYS = ["wait", "wait with a timeout", "poll", "run", "run with a timeout", "prepared run"]
WAYS += ["prepared batch", "latency"]


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_ends_a_wait_at_once_and_leaves_the_queue_usable(way):
    with rig("fault", rules=DELAY, spin_us=0) as r:
        start = time.monotonic()
        with Sender(signal.SIGINT), pytest.raises(KeyboardInterrupt):
            ways(r)[way]()
        assert time.monotonic() - start < 0.25
        assert r.queue.write(*r.pair, size=8, fence=True).wait(5).status is Status.OK
        out = np.zeros(4, dgkit.WC_DTYPE)
        while r.queue.pending:
            r.queue.poll(out, timeout=0.01)
        assert r.queue.run(records(r), out) == 1


@pytest.fixture
def seen():
    """Where a handler of SIGUSR1 that returns notes that it ran."""
    noted = []
    before = signal.signal(signal.SIGUSR1, lambda *_: noted.append(1))
    yield noted
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("way", WAYS)
def test_a_signal_whose_handler_returns_does_not_end_a_wait(way, seen):
    with rig("fault", rules=DELAY, spin_us=0) as r:
        start = time.monotonic()
        with Sender(signal.SIGUSR1):
            ways(r)[way]()
        assert seen == [1]
        if way != "latency":  # it takes a new sample instead
            assert time.monotonic() - start > 0.25  # all of the delay
            assert not r.queue.pending
        assert r.queue.write(*r.pair, size=8, fence=True).wait(5).status is Status.OK
        assert r.queue.run(records(r), np.zeros(1, dgkit.WC_DTYPE)) == 1


@pytest.mark.parametrize("way", ["run", "prepared run", "prepared batch"])
def test_a_handler_that_uses_the_queue_of_a_run_is_refused_and_the_run_ends(way):
    with rig("fault", rules=DELAY, spin_us=0) as r:
        refused = []

        def handler(*_):
            for call in (lambda: r.queue.write(*r.pair, size=8), r.queue.close):
                with pytest.raises(dgkit.QueueInUse):
                    call()
                refused.append(1)

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with Sender(signal.SIGUSR1):
                ways(r)[way]()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert refused == [1, 1]
        assert r.queue.write(*r.pair, size=8).wait(5).status is Status.OK


def test_a_run_with_a_timeout_ends_at_it_after_a_signal(seen):
    with rig("fault", rules=[FaultRule("lose", count=1)], spin_us=0) as r:
        out = np.zeros(1, dgkit.WC_DTYPE)
        with Sender(signal.SIGUSR1), pytest.raises(dgkit.PeerTimeout):
            r.queue.run(records(r), out, 0.2)
        assert seen == [1]
        assert r.queue.run(records(r), out) == 1


def test_ctrl_c_ends_a_long_measurement():
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    with rig(path="worker") as r:
        timer.start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            measure.rate(r.queue, *r.pair, window=8, seconds=60)
        assert time.monotonic() - start < 5
        timer.join(5)
        assert r.queue.write(*r.pair, size=8).wait(5).size == 8


def test_ctrl_c_does_not_end_a_large_copy_in_two():
    with rig(size=1 << 27, path="worker", spin_us=0) as r:
        r.local_bytes[:] = b"x" * (1 << 27)
        transfer = r.queue.write(*r.pair)
        with contextlib.suppress(KeyboardInterrupt), Sender(signal.SIGINT):
            transfer.wait()
        assert transfer.wait(10).size == 1 << 27
        assert r.remote_bytes == r.local_bytes


class InterruptingLines:
    """Raises KeyboardInterrupt at the n-th line that dgkit.dma begins, as Ctrl-C may at any."""

    def __init__(self, n):
        self.left = n

    def __call__(self, frame, event, arg):
        if f"{os.sep}dgkit{os.sep}dma{os.sep}" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self)

    def __exit__(self, *_):
        sys.settrace(self.before)


@pytest.mark.parametrize(
    "make",
    [
        lambda device, memory, token: device.register(memory),
        lambda device, memory, token: device.import_region(token),
    ],
    ids=["register", "import"],
)
def test_ctrl_c_anywhere_in_making_a_region_leaves_the_device_closable(make):
    memory = bytearray(4096)
    for line in itertools.count(1):
        with dgkit.Device() as device:
            target, made = device.register(memory), []
            token = target.export()
            try:
                with InterruptingLines(line):
                    made.append(make(device, memory, token))
            except KeyboardInterrupt as interrupt:
                made.append(interrupt)  # and what its frames hold, for longer than the device
        ended = type(made.pop()) is not KeyboardInterrupt
        memory.append(0)  # nothing holds it any more
        memory.pop()
        if ended:
            break
    assert line > 10


def test_a_region_that_ctrl_c_left_half_made_is_freed_without_a_warning(monkeypatch):
    memory, refused = bytearray(4096), []
    monkeypatch.setattr(sys, "unraisablehook", refused.append)
    with dgkit.Device() as device:
        with monkeypatch.context() as patch:
            patch.setattr(dma.region.Region, "_info", lambda _: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                device.register(memory)
        gc.collect()
        memory.append(0)  # nothing holds it any more
    assert refused == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it was made, and no one got it
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_an_imported_region_that_ctrl_c_left_half_made_is_given_back(monkeypatch, calls):
    refused, left = [], [calls]
    monkeypatch.setattr(sys, "unraisablehook", refused.append)
    real = dma.region.RemoteRegion._info

    def info(region):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return real(region)

    with dgkit.Device() as device:
        target = device.register(bytearray(4096))
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(dma.region.RemoteRegion, "_info", info)
            device.import_region(target.export())
        gc.collect()
        assert target.importers == 0
        target.close()
    assert all(each.exc_type is KeyboardInterrupt for each in refused)


POSTS = {
    "fence": lambda r: r.queue.write(*r.pair, size=8, fence=True),
    "no size": lambda r: r.queue.read(*r.pair),
    "rows": lambda r: r.queue.write_2d(*r.pair, size=8, rows=2, local_stride=8, remote_stride=16),
    "gather": lambda r: r.queue.gather([(r.local, 0, 8), (r.local, 64, 8)], r.remote),
}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older versions keep no table of handlers")
@pytest.mark.parametrize("kind", POSTS)
def test_ctrl_c_at_any_bytecode_of_a_post_loses_no_place_of_the_queue(kind):
    with rig(path="worker", depth=4) as r:
        for number in itertools.count(1):
            interrupting = Interrupting(number)
            with contextlib.suppress(KeyboardInterrupt), interrupting:
                POSTS[kind](r)
            gc.collect()
            deadline = time.monotonic() + 5
            while r.queue.pending:  # what was dropped is reaped as soon as it is complete
                r.queue.poll(np.zeros(1, dgkit.WC_DTYPE))
                assert time.monotonic() < deadline, f"a place is lost at bytecode {number}"
            if interrupting.left > 0:
                break
        assert number > 10


FACTORIES = {
    "empty": lambda _: dgkit.empty(4096),
    "empty and close": lambda _: contextlib.nullcontext(dgkit.empty(4096).close()),
    "Device": lambda _: dgkit.Device(),
    "register": lambda device: device.register(bytearray(4096)),
    "queue": lambda device: device.queue(depth=4),
    "gpu_queue": lambda device: device.gpu_queue(depth=64),
    "nic": lambda device: device.nic(),
}


def open_now():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))  # noqa: PTH208


def test_a_region_whose_finalizer_ctrl_c_interrupts_is_closed_before_its_memory_goes(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)  # pytest's keeps the region
    with dgkit.Device() as device, dgkit.Device() as other:
        region = device.register(bytearray(4096))
        token = region.export()
        with Interrupting(1):
            region = None
        assert region is None
        with pytest.raises(dgkit.DescriptorError, match="closed"):
            other.import_region(token)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older versions keep no table of handlers")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it was made, and no one got it
@pytest.mark.parametrize("look", [
    lambda connection: Inflow().ahead(connection.fileno(), 0),
    lambda _: check_descriptors("this", 3),
])  # fmt: skip
def test_ctrl_c_at_any_bytecode_of_a_look_leaves_no_descriptor(look):
    with socket.socket() as connection:
        before = open_now()
        for number in itertools.count(1):
            interrupting = Interrupting(number)
            with contextlib.suppress(KeyboardInterrupt), interrupting:
                look(connection)
            assert open_now() == before, f"at bytecode {number}"
            if interrupting.left > 0:
                break
    assert number > 10


def test_ctrl_c_cannot_keep_a_descriptor_open_that_nothing_refers_to(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    memory = dgkit.empty(4096)
    before = open_now()
    kept, memory = memory.keep, None
    with Interrupting(1):
        kept = None
    assert kept is None
    assert open_now()[0] == before[0] - 2  # the memfd and the one of its mapping


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older versions keep no table of handlers")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it was made, and no one got it
@pytest.mark.parametrize("kind", FACTORIES)
def test_ctrl_c_at_any_bytecode_of_a_factory_leaves_no_descriptor_and_no_thread(kind, monkeypatch):
    refused = []
    monkeypatch.setattr(sys, "unraisablehook", lambda each: refused.append(each.exc_type))
    with dgkit.Device() as device:
        with FACTORIES[kind](device):
            pass
        before = open_now()
        for number in itertools.count(1):
            interrupting = Interrupting(number)
            made = None
            with contextlib.suppress(KeyboardInterrupt), interrupting:
                made = FACTORIES[kind](device)
            if made is not None:
                with made:
                    pass
            made = None
            if open_now() != before:
                gc.collect()
                assert open_now() == before, f"at bytecode {number}"
            if interrupting.left > 0:
                break
    assert number > 10
    assert {*refused} <= {KeyboardInterrupt}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older versions keep no table of handlers")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it was made, and no one got it
def test_ctrl_c_at_any_bytecode_of_a_connection_leaves_no_descriptor_and_no_thread(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    nowhere = parse(f"ipc://{tmp_path}/nobody")
    Connection(nowhere, None).close()
    before = open_now()
    for number in itertools.count(1, 7):
        interrupting, made = Interrupting(number), None
        with contextlib.suppress(KeyboardInterrupt), interrupting:
            made = Connection(nowhere, None)
            made.close()
        if made is not None:
            made.close()
        del made
        gc.collect()
        until(lambda: open_now() == before, f"all is closed after Ctrl-C at bytecode {number}")
        if interrupting.left > 0:
            break
    assert number > 100


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older versions keep no table of handlers")
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # it was made, and no one got it
def test_ctrl_c_at_any_bytecode_of_the_start_of_a_process_leaves_no_zombie_and_no_descriptor(
    monkeypatch,
):
    parts = [f"{os.sep}{name}.py" for name in ("subprocess", "threading", "child")]
    monkeypatch.setattr(interrupting_module, "PARTS", parts)
    before = open_now()
    for number in itertools.count(1):
        interrupting = Interrupting(number)
        ours, theirs = socket.socketpair()
        with contextlib.suppress(KeyboardInterrupt), ours, interrupting:
            child.start("json.tool", theirs)  # no `main`: it fails at once
        del theirs
        until(lambda: not child_states(), f"no child is left after Ctrl-C at bytecode {number}")
        until(lambda: open_now() == before, f"all is closed after Ctrl-C at bytecode {number}")
        if interrupting.left > 0:
            break
    assert number > 10


NIC_ENDS = """
import contextlib, itertools, struct, sys, warnings
import dgkit
from support.interrupting import Interrupting
warnings.simplefilter("ignore")
sys.unraisablehook = lambda _: None

def interrupted(end):
    global last
    for number in itertools.count(1):
        last = queue = nic.queue_pair(4, receives=4)
        queue.connect(queue)
        interrupting = Interrupting(number)
        with contextlib.suppress(KeyboardInterrupt), interrupting:
            if end == "close":
                queue.close()
            else:
                queue = last = None
        if queue is not None:
            queue.close()
        queue = last = None
        assert nic.stats().queue_pairs == 0, number
        if interrupting.left > 0:
            return number

with dgkit.Device("soft") as device:
    with device.nic() as nic:
        assert interrupted("close") > 10
        assert interrupted("finalizer") > 3
    for number in itertools.count(1):
        nic, interrupting = device.nic(), Interrupting(number)
        with contextlib.suppress(KeyboardInterrupt), interrupting:
            nic.close()
        nic.close()
        if interrupting.left > 0:
            break
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older versions keep no table of handlers")
def test_ctrl_c_at_any_bytecode_of_a_queue_pairs_end_leaves_the_nic_no_memory_that_is_gone():
    run(NIC_ENDS)


def test_a_fork_while_a_thread_uses_a_nic_leaves_a_child_that_can_close_it():
    with dgkit.Device("soft") as device, device.nic() as nic, nic.queue_pair(4) as queue:
        held, end = threading.Event(), threading.Event()

        def hold():
            with nic.using:
                held.set()
                end.wait(20)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(20)
        child_pid = os.fork()
        if not child_pid:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            queue.close()
            nic.close()
            os._exit(0)
        assert os.waitpid(child_pid, 0)[1] == 0
        end.set()
        thread.join()
