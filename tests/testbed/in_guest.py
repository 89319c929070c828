# SPDX-License-Identifier: Apache-2.0
"""Runs in the host guest of the stage `testbed`: Device and a session over verbs.

Exits with 1 if a check fails.
"""

import ctypes
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable

import numpy as np

import dgkit
from dgkit import dma, errors, nccl
from dgkit.doctor.experiments.perform import Result, perform
from dgkit.doctor.experiments.plan import Experiment
from dgkit.doctor.finding import Verdict
from dgkit.types import GpuSpan

SLOW_S = 120.0


def check(condition: object, what: str) -> None:
    """Raise AssertionError with `what` unless the condition holds."""
    if not condition:
        raise AssertionError(what)


def a_device_says_what_it_is() -> None:
    """The engine names the RDMA device, and that this one is software."""
    with dgkit.Device("verbs") as device:
        check("rxe0" in device.caps.engine, device.caps.engine)
        check("in software" in device.caps.engine, device.caps.engine)
        check("RDMA" in repr(device), repr(device))
    found = {each.name: each for each in dma.providers()}["verbs"]
    check(found.usable, found.why)


def a_region_is_read_written_and_revoked() -> None:
    """A write, a read in rows, and an access error after the close."""
    source = np.arange(1 << 16, dtype=np.uint8)
    target = np.zeros(1 << 16, dtype=np.uint8)
    with dgkit.Device("verbs") as device, device.queue(depth=64) as queue:
        local = device.register(source, access="rw")
        exported = device.register(target, access="rw")
        remote = device.import_region(exported.export())
        queue.write(local, remote, size=source.size).wait(timeout=10)
        check(np.array_equal(source, target), "the bytes differ after a write")
        check("RDMA" in remote._repr_html_(), "the card does not say how the region is reached")
        exported.close()
        try:
            queue.read(local, remote, size=64).wait(timeout=10)
        except (errors.TransferError, errors.ClosedError, errors.AccessDenied) as error:
            check("revoked" in str(error) or "closed" in str(error), f"{error}")
        else:
            raise AssertionError("a closed region was read")


def a_session_moves_bytes_by_rdma() -> None:
    """A software DPU in a second process that moves the bytes by verbs."""
    with dgkit.connect(provider="verbs", timeout=60) as session:
        region = session.empty(1 << 20)
        data = os.urandom(1 << 20)
        report = session.write(region, data)
        check(bytes(region.array.data) == data, "the bytes differ after a session's write")
        check("by verbs" in str(report), f"{report}")
        check(bytes(session.read(region, 1 << 20)) == data, "the bytes read differ")
        latency = session.latency(region, size=64, op="write", count=200)
        check(latency.provider == "verbs", f"{latency}")
        check("in software" in latency.machine.engine, f"{latency.machine}")
        check("remote memory: pinned" in str(latency), f"{latency}")
        check("pinned" in repr(region), f"{region}")


class FakeGpuMemory:
    """Memory of the fake driver's GPU, which the caller has in LD_LIBRARY_PATH."""

    size, place, fd, fd_offset, share_process = 4096, "cuda:0", -1, 0, False

    def __init__(self) -> None:
        cuda = ctypes.CDLL("libcuda.so.1")
        context, address = ctypes.c_void_p(), ctypes.c_uint64()
        uuid = ctypes.create_string_buffer(16)
        calls = [
            cuda.cuInit(0),
            cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
            cuda.cuCtxSetCurrent(context),
            cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(self.size)),
            cuda.cuDeviceGetUuid_v2(uuid, 0),
        ]
        check(not any(calls), f"the fake driver answers {calls}")
        self.gpu = GpuSpan(
            kind="none", address=address.value, size=self.size, gpu=0, uuid=uuid.raw, why="fake"
        )


def gpu_memory_is_refused_with_the_reason_of_both_ways() -> None:
    """Soft-RoCE takes no dma-buf, and no module knows the address."""
    with dgkit.Device("verbs") as device:
        try:
            device.register(FakeGpuMemory())
        except errors.ExportError as error:
            check("rxe0 cannot access this GPU memory: as a dma-buf: " in str(error), f"{error}")
            check("nvidia-peermem: the module is not loaded" in str(error), f"{error}")
            check(error.check == "rdma-dmabuf", error.check)
            print(f"   {error}")
        else:
            raise AssertionError("Soft-RoCE took GPU memory")
        try:
            device.register(FakeGpuMemory(), on_demand=True)
        except ValueError as error:
            check("GPU memory cannot be registered on demand" in str(error), f"{error}")
        else:
            raise AssertionError("GPU memory was to be paged")
        device.register(bytearray(64)).close()  # and the device goes on


def memory_on_demand_is_refused_by_a_device_in_software() -> None:
    """The error says why; the same memory can be pinned."""
    memory = bytearray(64)
    with dgkit.Device("verbs") as device:
        try:
            device.register(memory, on_demand=True)
        except errors.Unsupported as error:
            check("rxe0 cannot register memory on demand" in str(error), f"{error}")
        else:
            raise AssertionError("Soft-RoCE was to page memory")
        check(device.register(memory).registration == "pinned", "it is not pinned")


def performed(*query: str) -> Result:
    """Return the result of an experiment, for which an emulated guest may need more than 30 s."""
    known = Experiment(name=query[0], subject="", does="", query=query, data_path="")
    return perform(known, limit_s=SLOW_S)


def an_agent_serves_the_doctors_experiments_and_nccls_plugin() -> None:
    """Loopback and an agent's memory work; Soft-RoCE takes no dma-buf. A rank is killed."""
    serve = [sys.executable, "-m", "dgkit", "serve", "--provider", "verbs"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as agent:
        address = agent.stdout.readline().strip()
        loopback = performed("rdma-loopback", "rxe0", "host", "host")
        peer = performed("rdma-peer", address, "", "host", "verbs")
        try:
            ranks = nccl.selftest(2, rounds=3, processes=True, kill=True, dpu=address)
        finally:
            agent.terminate()
    mapped = performed("register-dmabuf", "rxe0", "0")
    check(loopback.said == "the data are right both ways (pinned)", f"{loopback}")
    check(peer.said == "the data are right both ways, by verbs", f"{peer}")
    check(ranks["puts"] > 6, f"{ranks}")
    check((loopback.verdict, peer.verdict) == (Verdict.OK, Verdict.OK), f"{loopback}, {peer}")
    check(mapped.said == "ibv_reg_dmabuf_mr: Operation not supported", f"{mapped}")


def run(name: str, body: Callable[[], None]) -> bool:
    """Run one of the checks above; print how it ended."""
    began = time.monotonic()
    try:
        body()
    except Exception:
        traceback.print_exc()
        print(f"FAIL {name}", flush=True)
        return False
    print(f"ok   {name} ({time.monotonic() - began:.1f} s, emulated)", flush=True)
    return True


def main() -> int:
    """Run everything; 1 if something failed."""
    ok = [run(each.__name__, each) for each in (a_device_says_what_it_is,
          a_region_is_read_written_and_revoked, a_session_moves_bytes_by_rdma,
          gpu_memory_is_refused_with_the_reason_of_both_ways,
          memory_on_demand_is_refused_by_a_device_in_software,
          an_agent_serves_the_doctors_experiments_and_nccls_plugin)]  # fmt: skip
    return 0 if all(ok) else 1


if __name__ == "__main__":
    sys.exit(main())
