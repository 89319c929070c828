# SPDX-License-Identifier: Apache-2.0
"""A GPU's context that is lost in the middle: each operation ends, by name, and nothing hangs."""

import pytest
from support.gpu.remote_region import HOST, MIB
from support.processes.children import child, run

from dgkit import Device


@pytest.fixture(scope="module")
def token():
    """The descriptor of memory of a host whose own context lives."""
    with child(HOST, MIB, "vmm", "rw") as host:
        yield bytes.fromhex(host.line())


LOST = """
import asyncio, sys, numpy as np, dgkit
from dgkit import WC_DTYPE, WR_DTYPE, Status
token = bytes.fromhex(sys.argv[1])
device = dgkit.Device("cuda")
queue = device.queue(512, spin_us=float(sys.argv[2]))
remote, local = device.import_region(token, timeout=5), device.register(dgkit.empty(1 << 20))
batch = np.zeros(300, WR_DTYPE)
batch["local"], batch["remote"], batch["op"], batch["size"] = local.id, remote.id, 1, 5000
def failed(use):
    try:
        return str(use())
    except dgkit.DgkitError as error:
        return f"{type(error).__name__} {error}"
"""

END = """
for end in (remote, local, queue, device):
    end.close()
print("closed")
"""


def lost(token, body, knobs, spin_us=50):
    return run(LOST + body + END, token.hex(), spin_us, DGKIT_FAKE_CUDA=knobs).splitlines()


@pytest.mark.parametrize("spin_us", [0, 50])
def test_a_context_that_is_lost_in_a_batch_fails_each_record(token, spin_us):
    body = """
out = np.zeros(300, WC_DTYPE)
print(queue.run(batch, out, timeout=20), {Status(s).name for s in out["status"]}, queue.pending)
print(queue.run(batch, out, timeout=20), {Status(s).name for s in out["status"]}, queue.pending)
print(failed(lambda: queue.write(local, remote, size=8).wait(20)))
"""
    first, again, one, end = lost(token, body, "lost@100", spin_us)
    assert first == again == "300 {'IO_FAILED'} 0"
    assert one.startswith("TransferError write completed with IO_FAILED")
    assert end == "closed"


def test_what_was_complete_before_the_context_was_lost_stays_complete(token):
    body = """
for i in range(20):
    print(failed(lambda: queue.write(local, remote, size=5000).wait(20).status.name))
"""
    # spins for long: going to sleep is a copy too
    *each, end = lost(token, body, "lost@7", spin_us=10_000_000)
    assert each[:7] == ["OK"] * 7
    assert all(words.startswith("TransferError") and "IO_FAILED" in words for words in each[7:])
    assert end == "closed"


@pytest.mark.parametrize("how", ["kernel", "chain", "rows", "read", "await"])
def test_nothing_hangs_when_the_context_is_lost(token, how):
    body = {
        "kernel": """
batch["size"], out = 8, np.zeros(300, WC_DTYPE)
queue.run(batch[:1], out, timeout=20)
print(queue.run(batch, out, timeout=20), {Status(s).name for s in out["status"]})
""",
        "chain": """
parts = [(local, i * 5000, 5000) for i in range(100)]
print(failed(lambda: queue.gather(parts, remote).wait(20)))
""",
        "rows": """
shape = dict(rows=100, size=8, local_stride=0, remote_stride=8)
print(failed(lambda: queue.write_2d(local, remote, **shape).wait(20)))
""",
        "read": """
print({failed(lambda: queue.read(local, remote, size=9).wait(20)) for _ in range(50)})
""",
        "await": """
async def one():
    return await queue.write(local, remote, size=5000)
async def main():
    return await asyncio.gather(*(one() for _ in range(50)), return_exceptions=True)
print({type(error).__name__ + str(error) for error in asyncio.run(main())})
""",
    }[how]
    knobs = "lost@30" if how in ("chain", "read") else "lost@0"
    said, end = lost(token, body, knobs, spin_us=0)
    assert "IO_FAILED" in said
    assert end == "closed"


def test_a_queue_with_work_of_a_lost_context_closes(token):
    body = """
transfers = [queue.write(local, remote, size=5000) for _ in range(50)]
queue.close()
print({failed(lambda: t.wait(0)).split(":")[0] for t in transfers})
"""
    said, end = lost(token, body, "lost@10,copy_us=1000")
    assert said == "{'TransferError write completed with IO_FAILED'}"
    assert end == "closed"


def test_after_it_what_needs_the_context_is_unavailable_and_names_the_error(token):
    body = """
print(failed(lambda: queue.write(local, remote, size=8).wait(20)))
print(failed(lambda: device.register(bytearray(64))))
print(failed(lambda: device.import_region(token, timeout=5)))
print(failed(lambda: device.queue()))
with dgkit.Device("cuda") as second:
    print(failed(lambda: second.queue()))
"""
    one, *uses, end = lost(token, body, "lost@0")
    assert "IO_FAILED" in one
    for said in uses:
        assert said.startswith("DeviceUnavailable"), said
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said
        assert "restart this process" in said
    assert end == "closed"


def test_a_host_lends_on_when_its_own_context_is_lost(fake_cuda):
    """The bytes of a block stay where another process maps them."""
    with (
        child(HOST, 4096, "vmm", "rw", DGKIT_FAKE_CUDA="lost@0") as host,
        Device("cuda") as device,
        device.queue() as queue,
        device.import_region(bytes.fromhex(host.line()), timeout=5) as remote,
        device.register(bytearray(b"y" * 64)) as local,
        device.register(bytearray(64)) as back,
    ):
        host.line()  # its fd
        assert "700" in host.ask("memory.array.get()")
        queue.write(local, remote, size=64).wait(5)
        queue.read(back, remote, size=64).wait(5)
        assert back.memory == b"y" * 64
        assert host.ask("region.close()") == "None"
