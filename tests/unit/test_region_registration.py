# SPDX-License-Identifier: Apache-2.0
"""How an RDMA adapter has a region's memory, as regions, sessions and reports say it."""

import pytest
from support.processes.agents import agent

import dgkit
from dgkit import memory
from dgkit.cli import options
from dgkit.dpu.benchmark import machine_fields
from dgkit.errors import DeviceUnavailable, Unsupported
from dgkit.report import Machine
from dgkit.widgets.allocate.allocate_panel import placement_options

WAYS = {
    "pinned": "pinned for the RDMA adapter",
    "on demand": "not pinned, the RDMA adapter pages it",
    "dma-buf": "as a dma-buf",
    "nvidia-peermem": "by its address (nvidia-peermem)",
}


@pytest.fixture
def regions():
    """A region and its import."""
    with (
        dgkit.Device("soft") as device,
        device.register(bytearray(64)) as region,
        device.import_region(region.export()) as remote,
    ):
        yield region, remote


@pytest.mark.parametrize("provider", ["soft", "fault"])
def test_a_provider_that_does_not_page_refuses_memory_on_demand(provider):
    with (
        dgkit.Device(provider) as device,
        pytest.raises(Unsupported, match=f"{provider} cannot register memory on demand"),
    ):
        device.register(bytearray(64), on_demand=True)


def test_without_an_adapter_nothing_is_said_of_registration(regions):
    for one in regions:
        assert one.registration == ""
        assert not any(way in repr(one) for way in WAYS)
        assert "Registered" not in one._repr_html_()
    assert "remote memory" not in machine_fields(regions[1].device, regions[1])["engine"]


@pytest.mark.parametrize(("way", "text"), WAYS.items())
def test_a_region_and_its_import_say_how_the_adapter_has_the_memory(regions, way, text):
    for one in regions:
        one.registration = way
        assert f", {way}>" in repr(one)
        assert text in one._repr_html_()


def test_a_measurement_says_how_the_remote_memory_is_registered(regions):
    remote = regions[1]
    remote.registration = "dma-buf"
    assert "remote memory: dma-buf" in str(Machine(**machine_fields(remote.device, remote)))


def test_a_region_of_a_session_says_it():
    with dgkit.connect() as session, session.empty(64) as region:
        assert region.registration == ""
        assert "Registered" not in region._repr_html_()
        region.registration = "nvidia-peermem"
        assert ", nvidia-peermem" in repr(region)
        assert "nvidia-peermem" in region._repr_html_()


def test_auto_takes_the_host_over_rdma_unless_a_gpu_is_named(monkeypatch):
    monkeypatch.setattr("dgkit.memory.gpu_error", lambda: None)
    with dgkit.connect() as session:
        monkeypatch.setattr(session.dpu, "provider", "verbs")
        with session.empty(64, on="auto") as region:
            assert region.place == "host"
            assert "adapter may refuse GPU memory; on='gpu' tries it" in region.chosen
        error = DeviceUnavailable(19, "no driver: install it", check="driver-loaded")
        monkeypatch.setattr("dgkit.memory.gpu_error", lambda: error)
        with session.empty(64, on="auto") as region:
            assert region.chosen == "host memory: no driver: install it"
        with pytest.raises(DeviceUnavailable):  # by memory: the session does not refuse it
            session.empty(64, on="cuda:7")


def test_the_command_line_takes_gpu_memory_over_rdma_where_it_is_named(monkeypatch):
    monkeypatch.setattr(memory.gpu_info, "why_no_gpu", lambda: "")
    monkeypatch.setattr(memory, "empty", lambda *_, **__: memory.wrap(bytearray(1)))
    assert options.resolve_place("gpu", "verbs").on == "gpu"
    found = options.resolve_place("auto", "verbs")
    assert (found.on, found.provider) == ("host", "verbs")
    assert "--on gpu tries it" in found.chosen


def test_the_panel_offers_gpu_memory_over_rdma(monkeypatch):
    with agent(role="host") as host, dgkit.connect(host.address) as session:
        monkeypatch.setattr(session.dpu, "provider", "verbs")
        (gpu,) = (option for option in placement_options(session) if option["value"] == "gpu")
        assert gpu["why"] == ""
