# SPDX-License-Identifier: Apache-2.0
"""LatencyPlot with the path "GPU-initiated": kernels of the emulated GPU start the transfers."""

from support.jupyter.latency import measured

import dgkit
from dgkit.report import PostedLatencyReport


def test_kernels_start_the_transfers_and_the_plot_says_what_ran_them(session):
    plot = dgkit.LatencyPlot(session, path="GPU-initiated")
    assert plot.state()["label"] == "software DPU, emulated GPU"
    plot.start()
    measured(plot).stop()
    report = plot.report()
    assert isinstance(report, PostedLatencyReport)
    assert report.label == "software DPU, emulated GPU"
    assert plot.state()["run"]["words"] == "write 64 B, GPU-initiated path"
    assert plot.state()["run"]["label"] == "software DPU, emulated GPU"
    assert "emulated GPU" in plot.static_html()
    plot.close()


def test_one_plot_changes_between_the_paths(session):
    plot = dgkit.LatencyPlot(session)
    plot.start()
    measured(plot)
    regions = len(session.regions)
    plot.change(path="GPU-initiated")
    measured(plot)
    assert plot.report().path == "GPU-initiated"
    plot.change(path="inline", op="read")
    measured(plot)
    assert plot.report().label == "software DPU"
    plot.stop()
    assert len(session.regions) == regions
    plot.close()
