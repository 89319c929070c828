# SPDX-License-Identifier: Apache-2.0
"""Closed panels: their models stay, so that containers with them load; all else is freed."""

import gc
import json
import threading
import tracemalloc
import weakref
from pathlib import Path

import ipywidgets
import pytest
from ipywidgets.widgets.widget import _instances
from support.processes.waiting import steady, until

import dgkit
from dgkit.errors import ClosedError
from dgkit.widgets.base import scheduler
from dgkit.widgets.base.panel import Panel, handler
from dgkit.widgets.base.session_model import SessionModel
from dgkit.widgets.base.static_output import StaticOutput

PANELS = ("AllocatePanel", "TransferPanel", "HexView", "LatencyPlot")
RUNS = 100


class Sample(Panel):
    name = "figure"  # any panel's
    title = 'A "sample" panel'


class Meanwhile(Panel):
    """Is closed in the middle of whatever uses it, as by a run of its cell in another thread."""

    name = "figure"
    title = "A panel"

    def __init__(self):
        self.own = {}
        super().__init__()

    def use(self, *_):
        self.close()
        return self.own["a key"]

    @handler
    def ask(self):
        self.closed or self.close()
        raise AttributeError("of a trait that is None now")

    static_html = static_text = use

    def run(self):
        yield
        self.ask()


def used():
    """Threads, descriptors."""
    return threading.active_count(), len([*Path("/proc/self/fd").iterdir()])


def sent_upon_reload(model_ids):
    """The bytes that a page receives of these models when it loads."""
    models = [_instances[model_id] for model_id in model_ids]
    return sum(len(json.dumps(ipywidgets.Widget.get_manager_state(widgets=[m]))) for m in models)


@pytest.mark.parametrize("box", [ipywidgets.HBox, ipywidgets.Tab, ipywidgets.Accordion])
def test_a_container_of_a_closed_panel_can_be_loaded_with_all_other_widgets(box):
    panel = Sample()
    outer = ipywidgets.VBox([box([panel])])
    panel.close()
    state = ipywidgets.Widget.get_manager_state()["state"]  # what a page asks for when it loads
    assert state[outer.children[0].model_id]["state"]["children"] == [f"IPY_MODEL_{panel.model_id}"]
    layout = state[panel.model_id]["state"]["layout"].removeprefix("IPY_MODEL_")
    assert layout in state
    for widget in (outer, outer.children[0]):
        widget.close()


def test_its_view_says_that_it_is_closed_and_why_in_valid_text():
    panel = Sample()
    panel.close()
    state = panel.get_state()
    assert r"A \"sample\" panel: this panel was closed" in state["_esm"]
    assert state["_css"] == ""
    bundle = panel._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "was closed" in data["text/html"]
    assert data["text/plain"] == "<closed dgkit.Sample>"


@pytest.mark.parametrize("panel", PANELS)
def test_a_use_of_a_closed_panel_is_refused(session, panel):
    made = getattr(dgkit, panel)(session)
    made.close()
    with pytest.raises(ClosedError, match="the panel is closed"):
        made.state()
    assert not hasattr(made, "anything")
    session.empty(64)  # nobody is notified, and nothing is logged
    assert made not in SessionModel.of(session)._panels
    assert not SessionModel.of(session)._listeners


def by_handler(panel, _session):
    panel._received(panel, {"id": "a-1", "call": "ask"}, [])


def by_task(panel, _session):
    task = scheduler.start(panel.run(), panel.fail, lambda: panel.own["a key"])
    until(lambda: task.done, "the task has ended")


def by_saved_notebook(panel, _session):
    StaticOutput(lambda: [panel]).publish()  # of a container


def by_listener(panel, session):
    SessionModel.of(session).listen(panel.use, "regions")
    SessionModel.of(session)._notify_state("regions")


@pytest.mark.parametrize("use", [by_handler, by_task, by_saved_notebook, by_listener])
def test_what_is_under_way_while_a_panel_is_closed_ends_without_a_word(
    own_session, caplog, capfd, use
):
    panel = Meanwhile()
    use(panel, own_session)
    assert panel.closed
    assert not caplog.records
    assert "Traceback" not in "".join(capfd.readouterr())


def test_an_attribute_that_a_panel_never_had_is_an_attribute_error():
    panel = Sample()
    with pytest.raises(AttributeError, match="no attribute 'absent'") as caught:
        _ = panel.absent
    assert not isinstance(caught.value, ClosedError)
    panel.close()


def test_a_closed_panel_keeps_no_session():
    session = dgkit.connect()
    panels = [getattr(dgkit, name)(session) for name in PANELS]
    boxes = [ipywidgets.HBox([panel]) for panel in panels]
    for panel in panels:
        panel.close()
    session.close()
    kept = weakref.ref(session)
    del session
    gc.collect()
    assert kept() is None
    for box in boxes:
        box.close()


@pytest.mark.parametrize("name", PANELS)
def test_what_is_left_of_100_runs_of_a_cell(session, name):
    region = session.empty(1 << 16)

    def run():
        panel = getattr(dgkit, name)(session)
        panel._repr_mimebundle_()
        if name == "LatencyPlot":
            panel.start()
        panel.close()

    run()
    gc.collect()
    before, models = steady(used), set(_instances)
    tracemalloc.start()
    try:
        for _ in range(RUNS):
            run()
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    left = set(_instances) - models
    print(
        f"{name}: {size / RUNS:.0f} bytes in the kernel, {sent_upon_reload(left) / RUNS:.0f} sent"
    )
    assert steady(used) == before
    assert session.regions == (region,)
    assert not session.monitors
    assert len(left) == 2 * RUNS  # the panel's model, and its layout's
    assert size < RUNS * 30_000
    assert sent_upon_reload(left) < RUNS * 4_000
