# SPDX-License-Identifier: Apache-2.0
"""Where a session's memory lies, on a machine whose DPU reaches no GPU: it says so at once."""

import pytest
from support.processes.agents import agent

import dgkit
from dgkit.errors import DeviceUnavailable, Unsupported


@pytest.fixture(scope="module")
def session():
    with dgkit.connect() as made:
        yield made


@pytest.fixture(scope="module")
def host():
    with agent(role="host") as running:
        yield running


@pytest.mark.parametrize("on", ["gpu", "cuda:0", "cuda:17"])
def test_gpu_memory_that_the_dpu_cannot_reach_is_refused_before_it_is_made(
    session, on, monkeypatch
):
    monkeypatch.setattr("dgkit.memory.empty", lambda *_, **__: pytest.fail("it was allocated"))
    monkeypatch.setattr("dgkit.memory.gpu_error", lambda: None)
    before = session.stats()["session_regions"]
    words = r"this session's DPU uses 'soft', which cannot reach GPU memory: connect\(provider="
    with pytest.raises(Unsupported, match=words):
        session.empty(64, on=on)
    assert session.stats()["session_regions"] == before


@pytest.mark.parametrize("on", ["gpu", "cuda:0"])
def test_where_no_gpu_can_be_used_that_is_what_is_said(session, on, monkeypatch):
    error = DeviceUnavailable(19, "no driver: install it", check="driver-loaded")
    monkeypatch.setattr("dgkit.memory.gpu_error", lambda: error)
    with pytest.raises(DeviceUnavailable, match="no driver: install it"):
        session.empty(64, on=on)
    with session.empty(64, on="auto") as region:
        assert region.chosen == "host memory: no driver: install it"


def test_with_an_agent_the_way_out_is_where_the_agent_was_started(host, monkeypatch):
    monkeypatch.setattr("dgkit.memory.gpu_error", lambda: None)
    with (
        agent() as dpu,
        dgkit.connect(dpu.address) as session,
        pytest.raises(Unsupported, match="dgkit serve --provider cuda"),
    ):
        session.empty(64, on="gpu")
    with dgkit.connect(host.address) as session:
        with pytest.raises(Unsupported, match=r"connect\(address, provider='cuda'\)"):
            session.empty(64, on="gpu")
        assert session.stats()["regions"] == 0


@pytest.mark.parametrize("role", ["host", "dpu"])
def test_auto_takes_the_host_and_says_that_the_dpu_is_why(session, host, role, monkeypatch):
    monkeypatch.setattr("dgkit.memory.gpu_error", lambda: None)
    address = host.address if role == "dpu" else None
    with dgkit.connect(address) as made, made.empty(64, on="auto") as region:
        assert (made.role, region.on, region.place) == (role, "host", "host")
        assert "DPU uses 'soft', which cannot reach GPU memory" in region.chosen
        assert region.chosen in repr(region)
        assert "Chosen" in region._repr_html_()
        made.write(region, b"moved")
        assert made.read(region, 5) == b"moved"


def test_what_was_not_chosen_needs_no_reason(session):
    with session.empty(64) as region:
        assert region.chosen == ""
        assert "auto" not in repr(region)
        assert "Chosen" not in region._repr_html_()


def test_the_place_of_memory_at_the_agent_is_told(session, host):
    with session.empty(64, on="dpu") as region:
        assert (region.on, region.place) == ("dpu", "host")
        assert " on dpu, 64 bytes" in repr(region)
    with dgkit.connect(host.address) as made, made.empty(64) as region:
        assert (region.on, region.place) == ("host", "host")


@pytest.mark.parametrize("on", ["moon", "cuda", "cuda:-1", "cuda:²", "cuda:99999", 1, None])
def test_a_place_that_there_is_not_is_refused_with_those_that_there_are(session, on):
    with pytest.raises(ValueError, match=r"'host' or 'dpu'.*'pinned', 'gpu', 'cuda:0'.*'auto'"):
        session.empty(64, on=on)


class OnGpu:
    """A memory on a GPU, as far as a session looks at it."""

    size, place, fd, fd_offset, share_process = 64, "cuda:0", -1, 0, False
    gpu = dgkit.types.GpuSpan(address=1 << 32, size=64, gpu=0, uuid=bytes(16), kind="vmm")


def test_an_array_on_a_gpu_is_refused_as_long_as_the_dpu_cannot_reach_it(session):
    with pytest.raises(Unsupported, match="cannot reach GPU memory"):
        session.register(OnGpu())
