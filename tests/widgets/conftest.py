# SPDX-License-Identifier: Apache-2.0
"""Sessions with a software DPU, panels that are closed, and nothing left on the frame thread."""

import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from support.jupyter.panels import View
from support.processes.agents import agent
from support.processes.waiting import until

import dgkit
from dgkit.widgets.base import scheduler


@pytest.fixture(scope="session")
def software_dpu():
    """The address of one software DPU: to start one costs more than most tests."""
    with agent() as running:
        yield running.address


@pytest.fixture
def session(software_dpu):
    """A session with the software DPU that all of them share."""
    with dgkit.connect(software_dpu) as session:
        yield session


@pytest.fixture
def own_session():
    """A session with a software DPU of its own, which a test may stop or kill."""
    with dgkit.connect() as session:
        yield session


@pytest.fixture
def view():
    """Makes a view of a panel; the panel is closed after the test."""
    made = []

    def make(panel):
        made.append(panel)
        return View(panel)

    yield make
    for panel in made:
        panel.close()


@pytest.fixture(autouse=True)
def no_frames_left():
    yield
    names = lambda: [thread.name for thread in threading.enumerate()]  # noqa: E731
    until(lambda: "dgkit-frames" not in names(), "the frame thread has ended", timeout=30)


@pytest.fixture
def occupied():
    """The frame thread is in a step of another task, until it is let go."""
    began, go = threading.Event(), threading.Event()

    def steps():
        began.set()
        go.wait(20)
        yield

    scheduler.start(steps(), pytest.fail)
    assert began.wait(20)
    yield go
    go.set()


@pytest.fixture
def notebook(monkeypatch):
    """The variables of a notebook."""
    variables = {"np": np}
    module = ModuleType("IPython")
    module.get_ipython = lambda: SimpleNamespace(user_ns=variables)
    monkeypatch.setitem(sys.modules, "IPython", module)
    return variables


@pytest.fixture
def plot(session, view):
    return view(dgkit.LatencyPlot(session)).panel


@pytest.fixture
def seen(plot):
    """A visible view of the plot."""
    seen = View(plot)
    seen.ask("watch", view="seen", on=True)
    return seen
