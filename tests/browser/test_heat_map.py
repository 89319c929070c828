# SPDX-License-Identifier: Apache-2.0
"""The heat map of a sweep over software pairs, while it runs and when it has ended."""

import re

from playwright.sync_api import expect

START = """
import dgkit
from distributed import Client, LocalCluster
cluster = LocalCluster(
    n_workers=3, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0",
    scheduler_kwargs={"dashboard": False},
)
fleet = dgkit.Fleet(Client(cluster))
running = fleet.start_sweep(["64", "4K", "64K", "1M"], ["write", "read"], count=200, seconds=0.05)
heat = dgkit.HeatMap(running)
heat
"""


def test_a_heat_map_follows_a_sweep_to_its_end(notebook):
    notebook.cell(START)
    panel = notebook.ready("heatmap")
    panel.scroll_into_view_if_needed()
    expect(panel).to_have_attribute("data-drawn", "")
    canvas = panel.locator(".dg-figure canvas").first
    expect(canvas).to_be_visible()
    expect(panel.get_by_text("software DPU", exact=True)).to_be_visible()
    expect(panel).to_have_attribute("data-line", "24 of 24 rows, ended", timeout=60_000)
    expect(panel.get_by_role("status")).to_have_text("24 of 24 rows, ended")
    notebook.lab_page.shot("heat-map-light", panel)
    panel.get_by_label("Figure").select_option("gb_per_s")
    expect(panel.get_by_text(re.compile("time of a byte, times the median"))).to_be_visible()
    assert notebook.value("heat.figure") == "gb_per_s"
    light = panel.locator(".dg-figure > *").first.element_handle()
    notebook.lab_page.theme(True)
    light.wait_for_element_state("hidden")  # replaced by a figure of the other theme
    expect(canvas).to_be_visible()
    notebook.lab_page.shot("heat-map-dark", panel)
    notebook.cell("heat.close(); fleet.close(); fleet.client.close(); cluster.close()")
    expect(panel).to_have_count(0)
