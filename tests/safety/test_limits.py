# SPDX-License-Identifier: Apache-2.0
"""Limits of the system: files, memory, threads."""

import pytest
from support.processes.agents import agent
from support.processes.children import run

FILES = """
import gc, os, resource, sys
import dgkit
import dgkit.dma
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
gc.collect()
before = len(os.listdir("/proc/self/fd"))
held, refusals = [], 0
try:
    while len(held) < 100:
        held.append(dgkit.empty(4096))
except dgkit.LimitReached as error:
    assert error.errno == 24, error.errno
    assert "open files (ulimit -n)" in str(error), error
    refusals += 1
assert 10 < len(held) < 64, len(held)
for make in (dgkit.Device, lambda: dgkit.empty(1)):
    try:
        made = make()
        held.append(made)
    except dgkit.LimitReached as error:
        refusals += 1
    except OSError as error:
        assert error.errno == 24, error
held[0].buffer[:5] = b"alive"
assert bytes(held[0].buffer[:5]) == b"alive"
while held:
    held.pop().close()
gc.collect()
assert len(os.listdir("/proc/self/fd")) == before, os.listdir("/proc/self/fd")
with dgkit.Device() as device, device.register(dgkit.empty(4096)) as region:
    with device.import_region(region.export()) as remote:
        assert remote.size == 4096
print(refusals)
"""

OPENS = """
import gc, os, resource, dgkit
with dgkit.Device() as warm, warm.register(dgkit.empty(8)) as region:
    region.export()
region = None
gc.collect()
before = len(os.listdir("/proc/self/fd"))
refused = 0
def cycle():
    with dgkit.Device() as device, device.queue() as queue:
        with device.register(dgkit.empty(64)) as a, device.register(bytearray(64)) as b:
            with device.import_region(a.export()) as remote:
                queue.write(b, remote).wait(5)
for limit in range(before, before + 14):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 4096))
    try:
        cycle()
    except dgkit.DgkitError as error:
        assert isinstance(error, dgkit.LimitReached), repr(error)
        refused += 1
    error = None
    gc.collect()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    assert len(os.listdir("/proc/self/fd")) == before, (limit, os.listdir("/proc/self/fd"))
assert 0 < refused < 14, refused
print("ok")
"""

SESSION = """
import os, resource, sys
import dgkit, dgkit.session.monitor, numpy
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
CALLS = {
    "empty": lambda session: session.empty(64).close(),
    "register": lambda session: session.register(bytearray(64)).close(),
    "monitor": lambda session: session.monitor(next(iter(session.regions)), size=8).close(),
}
call, refused = CALLS[sys.argv[1]], 0
for spare in (1, 3, 5, 6, 7, 9, 19):
    with dgkit.connect() as session:
        if sys.argv[1] == "monitor":
            session.empty(8)
            call(session)
        held = []
        try:
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        for _ in range(spare):
            os.close(held.pop())
        try:
            call(session)
        except dgkit.DgkitError as error:
            assert isinstance(error, dgkit.LimitReached), repr(error)
            refused += 1
        for fd in held:
            os.close(fd)
        call(session)
assert 0 < refused < 7, refused
print("ok")
"""

ADDRESS_SPACE = """
import resource, dgkit
dgkit.empty(1).close()
resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
try:
    dgkit.empty(800 << 20)
except (dgkit.OutOfMemory, dgkit.LimitReached) as error:
    print(type(error).__name__)
dgkit.empty(1 << 20).close()
"""

LISTENER = """
import os, resource
import dgkit
from dgkit.wire.listener import Listener
open_listener = lambda: Listener(None, None).close()
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
open_listener()
used, refused = len(os.listdir("/proc/self/fd")), 0
for spare in range(0, 60, 3):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, 4096))
    try:
        open_listener()
    except dgkit.LimitReached as error:
        assert "file descriptors" in str(error), error
        refused += 1
assert 0 < refused < 20, refused
print("ok")
"""

# The stack of a thread is address space, of which root has no more than others.
THREADS = """
import os, resource, sys
import dgkit, dgkit.child, dgkit.session.connect, dgkit.wire.connection, dgkit.wire.listener
from dgkit.session.connect import inspect
CALLS = {
    "device": lambda: dgkit.Device("soft").close(),
    "listener": lambda: dgkit.wire.listener.Listener(None, None).close(),
    "connection": lambda: inspect(sys.argv[2], timeout=20),
    "process": lambda: dgkit.child.start_program(["true"], sys.stderr, os.environ).wait(),
}
call, hard, refused = CALLS[sys.argv[1]], resource.getrlimit(resource.RLIMIT_AS)[1], 0
kept = dgkit.Device("soft")  # the core's tables are more than what is left below
for mib in range(2, 128, 4):
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (mib << 20), hard))
    try:
        call()
        break
    except dgkit.LimitReached as error:
        assert "ulimit -v" in str(error), error
        refused += 1
    except (dgkit.OutOfMemory, MemoryError):
        pass
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
else:
    raise AssertionError("it never succeeds")
assert refused
print("ok")
"""


def test_one_memory_more_than_files_may_be_open_is_a_named_limit_and_nothing_leaks():
    assert int(run(FILES)) >= 1


def test_whatever_step_meets_the_limit_of_files_refuses_and_gives_all_back():
    assert run(OPENS) == "ok\n"


@pytest.mark.parametrize("call", ["empty", "register", "monitor"])
def test_a_session_names_the_limit_of_files_whatever_step_meets_it(call):
    assert run(SESSION, call) == "ok\n"


def test_an_agent_names_the_limit_of_files():
    assert run(LISTENER) == "ok\n"


@pytest.mark.parametrize("call", ["device", "listener", "connection", "process"])
def test_a_thread_that_cannot_start_names_its_limits(call):
    with agent() as running:
        assert run(THREADS, call, running.address) == "ok\n"


def test_too_little_address_space_is_a_named_limit():
    assert run(ADDRESS_SPACE).strip() in ("OutOfMemory", "LimitReached")
