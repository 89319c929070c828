# SPDX-License-Identifier: Apache-2.0
"""The provider softdoca: devices, regions, sessions in both roles, labels, errors.

The same code is the provider doca, over the real libraries, which no machine of these tests has.
"""

import hashlib
import os

import pytest
from support.dma import keep
from support.processes import cli
from support.processes.agents import agent
from support.processes.children import run

import dgkit
from dgkit import Device, dma
from dgkit.dma import measure
from dgkit.errors import DeviceUnavailable, TransferError, Unsupported
from dgkit.html_cards import provider_badge
from dgkit.report import BandwidthReport, LatencyReport
from dgkit.types import Status, provider_label

MIB = 1 << 20
TASK = 2 * MIB  # bytes of one DMA task
SOFTWARE = "software DPU, softdoca"


@pytest.fixture
def device():
    with Device("softdoca") as made:
        yield keep(made)


@pytest.fixture(scope="module")
def session():
    with dgkit.connect(provider="softdoca") as made:
        yield made


@pytest.fixture(scope="module")
def dpu():
    """A session whose DPU is this process, with a host's agent that lends by softdoca."""
    with (
        agent(role="host", provider="softdoca") as host,
        dgkit.connect(host.address, provider="softdoca") as made,
    ):
        yield made


# ---- the device ----


def test_every_label_says_that_it_is_software(device):
    assert provider_label("softdoca") == SOFTWARE
    assert provider_label("doca") == "hardware"
    assert SOFTWARE in provider_badge("softdoca")
    assert repr(device) == f"<dgkit.Device softdoca, {SOFTWARE}, open>"
    card = device._repr_html_()
    assert SOFTWARE in card
    assert "behind a fence" in card
    assert device.caps.engine.startswith("softdoca ")
    assert "mlx5_0" in device.caps.engine
    assert not device.caps.ordered


def test_providers_says_what_both_are_or_what_to_install():
    found = {one.name: one for one in dma.providers()}
    assert found["softdoca"].usable
    assert SOFTWARE in found["softdoca"].why
    if not found["doca"].usable:
        assert "install DOCA" in found["doca"].why or "only one" in found["doca"].why


def test_looking_for_the_real_one_loads_nothing_that_keeps_softdoca_out():
    program = """
from dgkit import Device, dma
dma.providers()
Device("soft").why
Device("softdoca").close()
"""
    run(program)


def test_a_function_is_chosen_by_its_address():
    for pci in ("03:00.0", "0000:03:00.0"):
        with Device("softdoca", pci=pci) as device:
            assert "0000:03:00.0" in device.caps.engine
    with pytest.raises(DeviceUnavailable, match=r"ff:00\.0.*the devices are .*03:00\.0"):
        Device("softdoca", pci="ff:00.0")
    with pytest.raises(DeviceUnavailable, match=r"at ''; the devices are 0000:03:00\.0"):
        Device("softdoca", pci="")


@pytest.mark.parametrize("provider", ["soft", "cuda", "fault"])
def test_an_address_for_a_provider_without_functions_is_a_value_error(provider):
    with pytest.raises(ValueError, match=r"pci='03:00\.0'"):
        Device(provider, pci="03:00.0")
    with pytest.raises(ValueError, match=r"pci='03:00\.0'"):
        dgkit.connect(provider=provider, pci="03:00.0")


def test_an_address_that_is_no_text_is_a_type_error():
    with pytest.raises(TypeError, match="pci is 3"):
        Device("softdoca", pci=3)
    with pytest.raises(TypeError, match="pci is 3"):
        dgkit.connect(provider="softdoca", pci=3)


def test_faults_are_injected_over_softdoca():
    rules = [dgkit.FaultRule("error", every=2)]
    with Device("fault", over="softdoca", rules=rules) as made:
        device = keep(made)
        local, there = bytearray(b"x" * 64), bytearray(64)
        queue = device.queue()
        remote = device.import_region(device.register(there).export())
        region = device.register(local)
        with pytest.raises(TransferError) as info:
            queue.write(region, remote).wait()
        assert info.value.completion.status is Status.IO_FAILED
        queue.write(region, remote).wait()
        assert there == local


# ---- what is measured ----


def test_the_bare_loop_is_the_floor_and_figures_say_who_made_them(device):
    region = device.register(bytearray(4096))
    remote, local = device.import_region(region.export()), device.register(bytearray(4096))
    queue = device.queue()
    with queue.prepare_write(local, remote, size=64) as op:
        assert len(measure.measure_bare(op, 100)) == 100
        assert op.run().path == "worker"
    assert measure.latency(queue, local, remote, count=100).provider == "softdoca"
    with pytest.raises(Unsupported, match="does not copy inline"):
        device.queue(path="inline")


# ---- sessions ----


def exchange(session):
    """Bytes through each of the session's calls, of sizes around a task's limit."""
    data = os.urandom(TASK + 4099)
    with session.empty(len(data), name="a") as a, session.empty(len(data), name="b") as b:
        for size in (1, 64, 4097, 70_000, TASK, len(data)):
            report = session.write(a, data[:size])
            assert (report.size, report.provider) == (size, "softdoca")
            assert session.read(a, size=size) == data[:size]
        assert session.digest(a) == hashlib.sha256(data).hexdigest()
        assert session.copy(a, b).size == len(data)
        assert session.read(b, size=len(data)) == data
    with session.empty(4096, on="dpu") as c:
        session.write(c, data[:4096])
        assert session.read(c, size=4096) == data[:4096]


def test_bytes_go_both_ways_where_this_process_is_the_host(session):
    assert session.role == "host"
    assert session.device.provider == "softdoca"
    exchange(session)


def test_bytes_go_both_ways_where_this_process_is_the_dpu(dpu):
    assert dpu.role == "dpu"
    exchange(dpu)


def test_a_session_says_that_its_dpu_is_softdoca(session):
    assert session.info["dpu"]["provider"] == "softdoca"
    assert session.info["dpu"]["software"] is True
    assert session.info["dpu"]["engine"].startswith("softdoca ")
    assert "software DPU (softdoca, pid" in repr(session)
    assert SOFTWARE in session._repr_html_()
    with session.empty(64, name="r") as region:
        assert SOFTWARE in region._repr_html_()
        assert 184 < len(region.token) <= 768


def test_reports_name_the_provider_its_label_and_its_own_floor(session):
    with session.empty(64 * 1024) as region:
        latency = session.latency(region, size=64, count=500)
        rate = session.bandwidth(region, size=4096, seconds=0.05)
    assert isinstance(latency, LatencyReport)
    assert isinstance(rate, BandwidthReport)
    for report in (latency, rate):
        assert (report.provider, report.label) == ("softdoca", SOFTWARE)
        assert report.floor_kind == "DOCA's own calls, bare C loop"
        assert "DMA tasks" in str(report)
        assert SOFTWARE in report._repr_html_()
        assert report.machine.engine.startswith("softdoca ")
        assert not report.no_floor


def test_an_agent_serves_softdoca_to_several_sessions():
    with agent(provider="softdoca", pci="03:00.0") as serving:
        with dgkit.connect(serving.address) as one, dgkit.connect(serving.address) as two:
            for session in (one, two):
                exchange(session)
        with pytest.raises(ValueError, match="pci"), agent() as soft:
            dgkit.connect(soft.address, provider="softdoca", pci="03:00.0")


# ---- commands ----


def test_demo_and_bench_run_over_softdoca(tmp_path):
    done = cli.run(tmp_path, "demo", "--quick", "--provider", "softdoca")
    assert done.returncode == 0, done.stderr
    assert SOFTWARE in done.stdout
    assert "equal on both sides" in done.stdout
    few = ("--sizes", "64,4K", "--depths", "8", "--count", "200", "--seconds", "0.02")
    done = cli.run(tmp_path, "bench", "--provider", "softdoca", *few)
    assert done.returncode == 0, done.stderr
    assert SOFTWARE in done.stdout


def test_info_shows_both_and_why_not(tmp_path):
    done = cli.run(tmp_path, "info")
    providers = done.stdout.partition("Providers")[2].partition("\n\n")[0]
    lines = {line.split()[0]: line for line in providers.splitlines() if line.strip()}
    assert " usable" in lines["softdoca"]
    assert SOFTWARE in lines["softdoca"]
    assert "DOCA" in lines["doca"]
