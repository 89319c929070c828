# SPDX-License-Identifier: Apache-2.0
"""Bad luck of a process around a GPU: fork, no bytes, memory closed early, cycle after cycle."""

import cupy
from support.gpu.remote_region import DPU, MIB, holdings, noise, rig
from support.processes.children import child, run
from support.processes.waiting import held, steady

import dgkit
from dgkit import Status


def test_local_memory_is_given_back_only_when_the_engine_is_done_with_it(fake_cuda):
    for where in ("one process", "two processes"):
        with rig(where) as r:
            fake_cuda.order("copy_us=2000")
            r.local_bytes[:] = 5
            transfers = [r.queue.write(*r.pair, size=40_000) for _ in range(20)]
            r.local.close(timeout=5)
            r.local_bytes[:] = 6
            assert [t.wait(20).status for t in transfers] == [Status.OK] * 20
            assert (r.remote_bytes[:40_000] == 5).all()
            fake_cuda.order("")


FORKING = """
import os, sys, dgkit
from dgkit.errors import DeviceUnavailable
memory = dgkit.empty(4096, on="gpu")
device = dgkit.Device("cuda")
queue, region = device.queue(), device.register(memory)
local = device.register(bytearray(b"x" * 64))
remote = device.import_region(region.export())
def refused(use):
    try:
        use()
    except DeviceUnavailable as error:
        return str(error)
    return "not refused"
pid = os.fork()
if pid == 0:
    said = [
        refused(lambda: dgkit.Device("cuda")),
        refused(lambda: dgkit.empty(64, on="gpu")),
        refused(lambda: device.queue()),
        refused(lambda: device.register(bytearray(8))),
        refused(lambda: queue.write(local, remote, size=8)),
    ]
    for end in (remote, local, region, queue, device, memory):
        end.close()
    print(said, flush=True)
    os._exit(all("fork" in words for words in said) is False)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
queue.write(local, remote, size=64).wait(5)
print(memory.array[:64].get().tobytes() == b"x" * 64)
for end in (remote, local, region, queue, device, memory):
    end.close()
"""


def test_a_forked_child_is_refused_and_its_parent_goes_on(fake_cuda):
    said, *after = run(FORKING).splitlines()
    assert after == ["0", "True"], said


CYCLE = """
def cycle(token):
    with device.import_region(bytes.fromhex(token), timeout=10) as far, device.queue(8) as q:
        with device.register(dgkit.empty(8192)) as near:
            q.write(near, far, size=100).wait(20)
            q.read(near, far, size=8192).wait(20)
    return "done"
"""


def test_200_cycles_leave_both_processes_and_the_gpu_as_they_were(device, gpu):
    program = DPU.replace("kept = []", f"kept = []{CYCLE}")
    first = device.register(gpu)
    with child(program, first.export().hex()) as dpu:
        assert dpu.line() == "gpu"

        def cycle():
            with dgkit.empty(3 * MIB, on="gpu") as memory, device.register(memory) as region:
                memory.array[:100] = cupy.asarray(noise(100, 1))
                assert dpu.ask(f"cycle({region.export().hex()!r})") == "done"

        def state():
            return holdings(), steady(lambda: held(dpu.pid))

        cycle()
        before = state()
        for _ in range(200):
            cycle()
        assert state() == before
        assert dpu.end() == (0, "")
