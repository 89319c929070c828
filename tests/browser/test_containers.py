# SPDX-License-Identifier: Apache-2.0
"""Panels in containers of ipywidgets, in cells that are run again, after a reload and a restart."""

from itertools import pairwise

from playwright.sync_api import expect
from support.processes.waiting import until

SETUP = """
import dgkit, ipywidgets as W
from IPython.display import display
s = dgkit.connect()
s.empty(4096, name="held")
"""
NESTED = "W.Accordion([W.VBox([W.HBox([dgkit.HexView(s)])])], selected_index=0)"
CONTAINERS = (
    "W.HBox([dgkit.HexView(s), dgkit.LatencyPlot(s)])",
    "g = W.GridspecLayout(1, 2)\ng[0, 0], g[0, 1] = dgkit.HexView(s), dgkit.LatencyPlot(s)\ng",
    "W.Tab([dgkit.HexView(s), dgkit.TransferPanel(s)])",
    NESTED,
    "out = W.Output()\nwith out:\n    display(dgkit.HexView(s))\nW.VBox([out])",
    "W.interactive(lambda n: display(dgkit.HexView(s)), n=3)",
)


def slider(notebook):
    return notebook.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .widget-slider")


def all_ready(notebook):
    """Each container shows its panel."""
    for nth in range(len(CONTAINERS)):
        notebook.ready("hexview", nth)
    expect(notebook.page.locator(".jp-NotebookPanel .dgkit-hexview")).to_have_count(len(CONTAINERS))


# Left and right edges of the panels in each output, less its left edge.
EDGES = """() => [...document.querySelectorAll(".jp-Cell-outputArea")].map((output) =>
  [...output.querySelectorAll(".dgkit")].filter((panel) => panel.offsetParent).map((panel) => {
    const { left, right } = panel.getBoundingClientRect();
    return [left, right].map((x) => Math.round(x - output.getBoundingClientRect().left));
  })).filter((panels) => panels.length)"""


def test_containers_of_panels_that_ran_twice_are_there_after_a_reload_with_all_others(notebook):
    notebook.page.set_viewport_size({"width": 1600, "height": 5000})  # all are in view
    notebook.cell(SETUP)
    notebook.cell("W.IntSlider(description='plain')")
    for cell in [notebook.add(source) for source in CONTAINERS]:
        for _ in range(2):
            notebook.run(cell)
    all_ready(notebook)
    for panels in notebook.page.evaluate(EDGES):
        assert all(right - left > 600 for left, right in panels), panels
        assert all(one[1] <= other[0] for one, other in pairwise(panels)), panels
    notebook.save()
    notebook.lab_page.reload()
    notebook.open()
    all_ready(notebook)
    expect(slider(notebook).first).to_be_visible()
    expect(notebook.page.get_by_text("Loading widget")).to_have_count(0)
    notebook.lab_page.shot("containers")


def test_a_container_that_still_shows_a_closed_panel_says_so_at_once_and_after_a_reload(notebook):
    notebook.cell(SETUP)
    cell = notebook.add("view = dgkit.HexView(s); view")
    notebook.run(cell)
    notebook.cell("W.HBox([view, W.IntSlider()])")
    notebook.ready("hexview", 1)
    notebook.run(cell)
    closed = notebook.page.get_by_text("this panel was closed")
    expect(closed).to_have_count(1)
    expect(notebook.panel("hexview")).to_have_count(1)
    notebook.save()
    notebook.lab_page.reload()
    notebook.open()
    notebook.ready("hexview")
    expect(closed).to_have_count(1)
    expect(slider(notebook)).to_be_visible()
    notebook.lab_page.shot("container-closed")


def test_after_a_restart_the_cells_make_all_of_it_again(notebook):
    setup = notebook.add(SETUP)
    notebook.run(setup)
    cell = notebook.add(NESTED)
    for _ in range(2):
        notebook.run(cell)
    notebook.ready("hexview")
    notebook.restart_kernel()
    notebook.run(setup)
    notebook.run(cell)
    notebook.ready("hexview")
    until(lambda: notebook.panel("hexview").count() == 1, "the view of the last kernel is gone")
