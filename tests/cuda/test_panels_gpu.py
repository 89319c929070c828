# SPDX-License-Identifier: Apache-2.0
"""The panels over GPU memory: where it is offered, filled by CuPy, moved to and from."""

import cupy
import numpy as np
import pytest
from support.jupyter.panels import View
from support.processes.waiting import until

import dgkit
from dgkit.widgets.allocate.allocate_panel import AllocatePanel
from dgkit.widgets.base import namespace
from dgkit.widgets.base.fill_patterns import BLOCK, Pattern
from dgkit.widgets.transfer.transfer_panel import TransferPanel

MIB = 1 << 20


@pytest.fixture(scope="module")
def session():
    with dgkit.connect(provider="cuda") as made:
        yield made


@pytest.fixture
def panel(session):
    made = View(AllocatePanel(session))
    yield made
    made.panel.close()


def test_each_gpu_is_offered_by_name_with_its_memory(panel):
    panel.ask("hello")
    places = {place["value"]: place for place in panel.wait_for("places")["places"]}
    assert {"host", "dpu", "pinned", "cuda:0", "auto"} <= set(places)
    assert places["cuda:0"]["text"].startswith("GPU 0: dgkit fake GPU, ")
    assert not any(place["why"] for place in places.values())


@pytest.mark.any_gpu
@pytest.mark.parametrize("on", ["cuda:0", "gpu", "pinned"])
@pytest.mark.parametrize("fill", ["ones", "counter", "random:3", "text:abc"])
def test_memory_of_a_gpu_is_filled(panel, session, on, fill):
    form = {"shape": str(BLOCK // 4 + 6), "dtype": "f4", "on": on, "fill": fill, "name": "g"}
    panel.ask("make", **form)
    until(lambda: panel.of("status") or panel.errors, "it is made")
    assert not panel.errors
    (region,) = session.regions
    expected = b"".join(block.tobytes() for block in Pattern(fill).blocks(region.size, "f4"))
    assert session.read(region, region.size) == expected
    assert isinstance(region.array, np.ndarray if on == "pinned" else cupy.ndarray)
    region.close()


@pytest.mark.any_gpu
def test_from_python_the_array_is_there_when_the_call_returns(panel):
    with panel.panel.allocate((3, 5), "u2", "gpu", fill="counter") as region:
        assert region.array.get().tolist() == np.arange(15).reshape(3, 5).tolist()


@pytest.mark.any_gpu
def test_transfers_go_to_a_gpu_and_say_whose_engine_copied(session):
    view = View(TransferPanel(session))
    with session.empty(4096, on="gpu", name="g") as region:
        assert view.panel.transfer("write", region, b"hello", repeat=3).wait(10).ended
        assert region.array[:5].get().tobytes() == b"hello"
        assert "GPU copy engine" in view.ask("timeline")["clock"]
        assert view.ask("hello")["completions"][-1]["provider"] == "cuda"
    view.panel.close()


def test_an_array_on_a_gpu_is_a_variable_and_an_expression(monkeypatch):
    found = {"grid": cupy.arange(4, dtype="u1")}
    monkeypatch.setattr(namespace, "user_namespace", lambda: found)
    (offered,) = namespace.candidates()
    assert offered["text"] == "ndarray on a GPU, 4 B"
    assert namespace.evaluate("grid", 1 << 20) == b"\0\1\2\3"
