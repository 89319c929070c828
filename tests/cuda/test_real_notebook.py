# SPDX-License-Identifier: Apache-2.0
"""The panels, a monitor and the tutorials over a real GPU's memory."""

import pytest
from support.jupyter.notebooks import attempted, read, run, said
from support.jupyter.panels import View
from support.processes.waiting import until

import dgkit
from dgkit.widgets.latency.latency_panel import LatencyPlot

pytestmark = pytest.mark.gpu


@pytest.fixture
def session():
    with dgkit.connect(provider="cuda") as made:
        yield made


def test_latencies_of_a_gpu_are_plotted_while_a_kernel_writes_there(session):
    region = session.empty((1 << 20,), "f4", on="gpu")
    plot = View(LatencyPlot(session, region, size=4096))
    plot.panel.start()
    plot.ask("watch", view="one", on=True)
    until(lambda: len(plot.of("frame")) > 9, "ten frames", timeout=30)
    region.array[:] = 1.0
    plot.panel.stop()
    report = plot.panel.report()
    assert report.label == "software DPU, GPU copy engine"
    assert report.size == 4096
    assert report.p50_ns > 1000  # a copy by an engine beyond PCIe
    plot.panel.close()


def test_the_kernels_of_the_tutorial_run_on_the_gpu(tmp_path):
    right = """
low = max(s.completed_ns - s.gpu_complete_ns for s in stamps)
high = min(s.seen_ns - s.gpu_post_ns for s in stamps)
"""
    done = run(attempted(read("08_gpu_initiated"), right), tmp_path)
    cells = {cell.id: said(cell) for cell in done.cells if cell.cell_type == "code"}
    assert "The kernels run on a GPU" in cells["kernels"]
    (answer,) = [cell for cell in done.cells if "answer" in cell.metadata.get("tags", [])]
    assert "(GPU)" in said(answer), said(answer)
