# SPDX-License-Identifier: Apache-2.0
"""Devices, providers and what this machine offers."""

import concurrent.futures
import copy
import gc
import os
import pickle
import time
import warnings
from pathlib import Path

import pytest

import dgkit
from dgkit import Device, FaultRule, dma
from dgkit.dma.gpu_queue_proxy import Proxy
from dgkit.errors import ClosedError, DeviceUnavailable


def test_the_example_of_the_api_works_as_it_is_written():
    np = pytest.importorskip("numpy")
    with dgkit.Device("soft") as dev:
        local = dev.register(dgkit.empty(1 << 20), access="rw")
        local.memory.array[:64] = 7
        token = local.export()
        assert isinstance(token, bytes)
        remote = dev.import_region(token)
        with dev.queue(depth=256) as q:
            t = q.write(local, remote, size=64, local_offset=0, remote_offset=128)
            c = t.wait(timeout=1.0)
            assert (c.status, c.size) == (dgkit.Status.OK, 64)
            assert c.path in (dgkit.TransferPath.INLINE, dgkit.TransferPath.WORKER)
            assert c.submit_ns <= c.post_ns <= c.complete_ns
            assert local.memory.array[128:192].tolist() == [7] * 64
            op = q.prepare_write(local, remote, size=64)
            op.run()
            op.post()
            batch, out = np.zeros(3, dgkit.WR_DTYPE), np.zeros(8, dgkit.WC_DTYPE)
            batch["local"], batch["remote"], batch["size"] = local.id, remote.id, 64
            q.post(batch)
            got = 0
            while got < 4:
                got += q.poll(out[got:], timeout=1.0)
            assert got == 4
        local.close()


def test_soft_says_that_it_is_software():
    with Device() as device:
        assert device.provider == "soft"
        assert repr(device) == "<dgkit.Device soft, software DPU, open>"
    assert repr(device) == "<dgkit.Device soft, software DPU, closed>"


def test_caps_are_those_of_the_provider():
    with Device() as device, Device("fault") as fault:
        caps = device.caps
        assert caps.provider == "soft"
        assert caps.ordered
        assert not fault.caps.ordered
        assert 0 < caps.inline_max < caps.max_size <= 1 << 63
        assert caps.max_queues >= 16


def test_spin_us_is_in_force_or_zero_on_one_cpu():
    with Device(spin_us=12.5) as device:
        assert device.caps.spin_ns == (12_500 if dma.cpus() > 1 else 0)
    with Device(spin_us=0) as device:
        assert device.caps.spin_ns == 0


def test_why_names_every_other_provider():
    with Device() as device:
        assert set(device.why) == {"cuda", "verbs", "doca", "softdoca", "fault"}
        assert device.why["fault"] == "not asked for"
        assert device.why["cuda"] == "not asked for" or "libcuda.so.1" in device.why["cuda"]


def test_providers_says_for_each_whether_it_is_usable_and_why():
    found = {p.name: p for p in dma.providers()}
    assert list(found) == ["soft", "cuda", "verbs", "doca", "softdoca", "fault"]
    assert found["soft"].usable
    assert found["fault"].usable
    assert all(p.why for p in found.values())


@pytest.mark.parametrize("name", ["rdma", "", "SOFT"])
def test_an_unknown_provider_is_unavailable_and_named(name):
    with pytest.raises(DeviceUnavailable, match=f"no provider is called '{name}'"):
        Device(name)


def test_fault_over_an_unknown_provider_or_itself_is_unavailable():
    for over in ("rdma", "fault"):
        with pytest.raises(DeviceUnavailable, match=f"the provider fault cannot wrap '{over}'"):
            Device("fault", over=over)


def test_rules_for_another_provider_than_fault_are_a_value_error():
    with pytest.raises(ValueError, match="not for 'soft'"):
        Device("soft", rules=[FaultRule("lose")])


@pytest.mark.parametrize("arguments", [{"provider": 5}, {"provider": None}, {"over": 5}])
def test_a_provider_that_is_no_text_is_a_type_error(arguments):
    with pytest.raises(TypeError, match="must be text"):
        Device(**arguments)


WRONG = {
    "spin_us is 'a'; it must be a number": lambda d, t: Device(spin_us="a"),
    "rules is 5; it must be a list of FaultRule": lambda d, t: Device("fault", rules=5),
    "op_timeout is 'x'; it must be a number": lambda d, t: d.queue(op_timeout="x"),
    "timeout is 'a'; it must be a number": lambda d, t: d.import_region(t, "a"),
    "token has type str; it must be the bytes": lambda d, t: d.import_region("junk"),
    "memory has type list; it must be bytes": lambda d, t: d.register([1, 2]),
    "regions is 5; it must be a list": lambda d, t: d.gpu_queue(regions=5),
}


@pytest.mark.parametrize("text", WRONG)
def test_an_argument_of_a_wrong_type_is_named(text):
    with Device() as device, device.register(bytearray(64)) as region:
        token = region.export()
        with pytest.raises(TypeError, match=text):
            WRONG[text](device, token)


@pytest.mark.parametrize("path", ["inline", "worker"])
@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan"), "x", -(1 << 80)])
def test_a_wrong_timeout_is_refused_also_by_a_transfer_that_is_complete(path, timeout):
    with Device() as device, device.register(bytearray(64)) as region:
        remote = device.import_region(region.export())
        with device.queue(path=path) as queue:
            transfer = queue.write(region, remote)
            transfer.wait(5.0)
            with pytest.raises((TypeError, ValueError), match="timeout is"):
                transfer.wait(timeout=timeout)
            assert transfer.wait(1 << 80).size == transfer.wait(None).size == 64


@pytest.mark.parametrize("spin_us", [-1, float("nan")])
def test_a_negative_or_undefined_spin_is_a_value_error(spin_us):
    with pytest.raises(ValueError, match="spin_us is"):
        Device(spin_us=spin_us)


def test_close_is_idempotent_and_closes_queues_and_regions():
    device = Device()
    region, queue = device.register(bytearray(8)), device.queue()
    remote = device.import_region(region.export())
    device.close()
    device.close()
    assert device.closed
    assert queue.closed
    assert region.closed
    assert remote.closed


def test_a_closed_device_makes_nothing_more():
    device = Device()
    region = device.register(bytearray(8))
    token = region.export()
    device.close()
    for use in (
        lambda: device.caps,
        lambda: device.register(bytearray(8)),
        lambda: device.import_region(token),
        device.queue,
        device.__enter__,
        region.export,
    ):
        with pytest.raises(ClosedError, match="closed"):
            use()


def test_a_device_that_was_not_closed_warns_and_closes():
    device = Device()
    with pytest.warns(ResourceWarning, match="Device soft, software DPU, open> was not closed"):
        del device


def test_a_device_that_could_not_open_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DeviceUnavailable):
            Device("rdma")
        gc.collect()


def test_device_closes_its_thread():
    def engines():
        tasks = os.listdir("/proc/self/task")  # noqa: PTH208
        return len(tasks)

    before = engines()
    with Device():
        assert engines() == before + 1
    assert engines() == before


def test_html_says_software_and_escapes_nothing_it_should_not():
    with Device() as device:
        assert "inline copy" in device._repr_html_()
        assert "not asked for" not in device._repr_html_()
    assert "Device (closed)" in device._repr_html_()


def test_cpus_is_at_least_one_and_at_most_the_affinity():
    assert 1 <= dma.cpus() <= len(os.sched_getaffinity(0))


def test_now_ns_is_the_monotonic_clock():
    before = time.monotonic_ns()
    now = dma.now_ns()
    assert before <= now <= time.monotonic_ns()


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = dma.nonsense
    assert dma.WR_DTYPE.itemsize == 64
    assert dma.WC_DTYPE.itemsize == 48


def test_a_gpu_is_chosen_for_the_provider_cuda_alone():
    with pytest.raises(ValueError, match="gpu=1 is for the provider 'cuda', not for 'soft'"):
        Device("soft", gpu=1)


@pytest.mark.parametrize("name", ["soft\0", "\ud800", "a\x1b[31m"])
def test_a_provider_that_cannot_be_printed_is_refused(name):
    with pytest.raises(ValueError, match="printable characters only"):
        Device(name)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_device_cannot_be_copied(copied):
    with Device("soft") as device, device.nic() as nic, nic.queue_pair(64) as pair:
        region = device.register(dgkit.empty(4096))
        for owner in (device, nic, pair, device.gpu_queue(64, regions=[region])):
            with pytest.raises(TypeError, match=f"a {type(owner).__name__} cannot be copied"):
                copied(owner)


def _engine() -> int:
    """Return the thread id of the only engine of this process."""
    threads = Path("/proc/self/task").iterdir()
    (found,) = [t.name for t in threads if (t / "comm").read_text() == "dgkit-engine\n"]
    return int(found)


def _cpu_of(thread: int) -> int:
    """Return the CPU that a thread of this process ran on last (proc(5))."""
    text = Path(f"/proc/self/task/{thread}/stat").read_text()
    return int(text.rpartition(")")[2].split()[36])


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the process may use one CPU")
def test_an_engine_on_its_caller_s_cpu_moves_to_another_and_may_still_go_anywhere():
    allowed = os.sched_getaffinity(0)
    mine = min(allowed)
    with dgkit.Device("soft") as device:
        local = device.register(dgkit.empty(64))
        remote = device.import_region(local.export())
        with device.queue(path="worker") as queue:
            op = queue.prepare_write(local, remote, size=8)
            engine = _engine()
            os.sched_setaffinity(0, {mine})
            try:
                os.sched_setaffinity(engine, {mine})
                for _ in range(100):  # there is no other CPU for it: they take turns
                    op.run()
                assert device.stats.engine_moves == 0
                os.sched_setaffinity(engine, allowed)
                end = time.monotonic() + 20
                while _cpu_of(engine) == mine and time.monotonic() < end:
                    op.run()
                assert _cpu_of(engine) != mine
                assert os.sched_getaffinity(engine) == allowed
            finally:
                os.sched_setaffinity(0, allowed)


def test_a_device_counts_how_often_its_engine_slept():
    with dgkit.Device("soft", spin_us=0) as device:
        local = device.register(dgkit.empty(64))
        remote = device.import_region(local.export())
        with device.queue(path="worker", spin_us=0) as queue:
            end = time.monotonic() + 20
            while device.stats.engine_sleeps < 3 and time.monotonic() < end:
                queue.write(local, remote, size=8).wait()
        assert device.stats.engine_sleeps >= 3
        assert "Engine slept" in device._repr_html_()
    with pytest.raises(ClosedError):
        _ = device.stats


def test_threads_that_open_the_first_gpu_queues_share_one_proxy(monkeypatch):
    class SlowProxy(Proxy):
        def __init__(self, *args):
            super().__init__(*args)
            time.sleep(0.05)  # the other thread looks meanwhile

    monkeypatch.setattr(dma.device, "Proxy", SlowProxy)
    with dgkit.Device() as device, concurrent.futures.ThreadPoolExecutor(4) as pool:
        queues = list(pool.map(lambda _: device.gpu_queue(), range(4)))
        assert len({id(queue.proxy) for queue in queues}) == 1
        assert queues[0].proxy.stats().rings == 4
