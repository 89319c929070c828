# SPDX-License-Identifier: Apache-2.0
"""Panels as widgets among others: traits, links, containers, layout, and a second view."""

import pytest
from playwright.sync_api import expect
from support.processes.waiting import until

SIZE = 1 << 16
SETUP = f"""
import time, dgkit, ipywidgets as W
s = dgkit.connect()
r = s.empty({SIZE}, name="bytes")
view = dgkit.HexView(s, r)
view
"""


@pytest.fixture
def shown(notebook):
    """A notebook that shows `view`, a hex view."""
    notebook.cell(SETUP)
    notebook.ready("hexview")
    expect_row(notebook.panel("hexview"), 0)
    return notebook


def expect_row(panel, offset):
    """The first row of a hex view begins at this offset."""
    row = panel.locator(".dg-hex-row:not(.dg-hex-headrow) .dg-hex-offset").first
    expect(row).to_have_text(f"{offset:08x}")


def slider(notebook):
    return notebook.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .noUi-handle").first


def test_both_views_of_a_panel_go_where_its_trait_says_when_the_cell_is_done(shown):
    shown.command("notebook:create-output-view")
    second = shown.page.locator(".jp-LinkedOutputView .dgkit-hexview")
    expect(second).to_have_attribute("data-ready", "")
    expect_row(second, 0)
    shown.cell("view.offset = 0x4000; view.columns = 16; time.sleep(1)")
    expect_row(second, 0x4000)
    shown.lab_page.shot("traits-two-views")
    expect_row(shown.page.locator(".jp-Notebook .dgkit-hexview"), 0x4000)


def test_a_slider_and_a_hex_view_move_each_other(shown):
    shown.cell(f"slider = W.IntSlider(max={SIZE} - 1, step=16)\nW.link((slider, 'value'), "
               "(view, 'offset'))\nslider")  # fmt: skip
    slider(shown).focus()
    slider(shown).press("End")
    until(lambda: shown.value("view.offset") > SIZE - 32, "it is at the end")
    shown.cell("view.offset = 0x2000")
    until(lambda: shown.value("slider.value") == 0x2000, "the slider follows")
    panel = shown.panel("hexview")
    expect_row(panel, 0x2000)
    panel.get_by_role("grid").hover()
    shown.page.mouse.wheel(0, 400)
    until(lambda: shown.value("slider.value") > 0x2000, "the slider follows the wheel")
    assert shown.value("slider.value == view.offset")


def test_a_link_in_the_page_reaches_the_panel_and_a_bad_value_is_said_there(shown):
    shown.cell(f"slider = W.IntSlider(max={SIZE} + 15, step=16)\nW.jslink((slider, 'value'), "
               "(view, 'offset'))\nslider")  # fmt: skip
    slider(shown).focus()
    slider(shown).press("ArrowRight")
    until(lambda: shown.value("view.offset") == 16, "the panel follows")
    slider(shown).press("End")
    strip = shown.panel("hexview").get_by_role("alert")
    expect(strip).to_contain_text(f"offset is {SIZE + 15}; it must be 0 to {SIZE - 1:,}")
    assert shown.value("view.offset") == 16


def test_interact_moves_a_view_and_reads_its_selection(shown):
    shown.cell("seen = []\nW.interact(lambda n: setattr(view, 'offset', n * 4096), n=(0, 8))")
    expect_row(shown.panel("hexview"), 4 * 4096)
    shown.cell("W.interactive(lambda data: print('selected', bytes(data)), data=view)")
    expect(shown.panel("hexview")).to_have_count(1)
    shown.cell("r.array[2:5] = (1, 2, 3); view.selection = (2, 5)")
    expect(shown.page.get_by_text(r"selected b'\x01\x02\x03'")).to_be_visible()


def test_panels_of_a_tab_are_drawn_when_it_is_opened(shown):
    shown.cell("plot = dgkit.LatencyPlot(s)\ntab = W.Tab([plot, dgkit.HexView(s, r)])\ntab")
    shown.ready("latency")
    shown.cell("plot.running = True; tab.children[1].selection = (32, 40); tab.selected_index = 1")
    hexview = shown.ready("hexview", 1)
    expect_row(hexview, 32)
    expect(hexview.locator(".dg-hex-bytes .dg-selected")).to_have_count(8)
    shown.cell("tab.selected_index = 0")
    expect(shown.panel("latency")).to_have_attribute("data-running", "true")
    shown.cell("plot.running = False")
    expect(shown.panel("latency")).to_have_attribute("data-running", "false")


def test_a_panel_has_the_size_of_its_layout(shown):
    shown.cell("view.layout.width = '620px'")
    panel = shown.panel("hexview")
    until(lambda: 560 < panel.bounding_box()["width"] < 625, "it is narrow")
    shown.cell("view.layout.display = 'none'")
    expect(panel).to_be_hidden()
