# SPDX-License-Identifier: Apache-2.0
"""The time line of TransferPanel: a bar with both DMAs per transfer, zoom, the way to its bytes."""

import re
from itertools import product

import pytest
from playwright.sync_api import expect
from support.processes.waiting import until


@pytest.fixture
def panel(board):
    board.execute(
        "sheet = d.session.empty(1 << 22, name='sheet')\n"
        "d.panels.transfer.transfer('write', sheet, bytes(1 << 20), repeat=8, depth=4).wait()\n"
        "d.panels.transfer.transfer('read', sheet, size=1 << 16, repeat=4, depth=2).wait()"
    )
    panel = board.panel("transfer")
    expect(bars(panel).last).to_be_visible()
    return panel


def plot(panel):
    return panel.get_by_role("group", name="Time line of transfers")


def bars(panel):
    return plot(panel).locator(".dg-tl-bar")


def bar_of(panel, number):
    said = rf"No\. {number}: READ submit .* post \+.*; WRITE submit .*"
    return plot(panel).get_by_role("button", name=re.compile(said))


def text(panel):
    return panel.locator(".dg-tl-text")


def test_each_transfer_has_a_bar_that_leads_to_its_completion(board, panel):
    panel.get_by_role("button", name="All", exact=True).click()
    expect(panel.locator(".dg-tl-lanes")).to_contain_text("write, ")
    # The list may hold a transfer of another test that failed before a DMA: it has no bar.
    count = board.value("sum('complete_ns' in each for each in d.panels.transfer.transfers)")
    expect(bars(panel)).to_have_count(count)
    expect(text(panel)).to_have_text(re.compile(r"transfers, .* in .*s"))
    panel.get_by_role("button", name="Latest").click()
    expect(text(panel)).to_have_text(re.compile(r"\d+ transfers, .* in .*s; .*[MG]B/s$"))
    panel.get_by_role("button", name="All", exact=True).click()
    number = board.value("d.panels.transfer.last_completion['number']")
    bar = bar_of(panel, number)
    bar.dispatch_event("click")
    python = panel.get_by_role("button", name=f"Copy as Python: No. {number}", exact=True)
    expect(python).to_be_focused()


def test_a_click_shows_the_bytes_of_a_transfer_in_the_hex_view(board, panel):
    board.execute("d.panels.transfer.transfer('write', sheet, b'marked', offset=0x1230).wait()")
    number = board.value("d.panels.transfer.last_completion['number']")
    board.execute("d.selected = d.session.empty(64, name='other')")
    expect(board.panel("hexview").get_by_role("heading")).to_contain_text("other")
    panel.get_by_role("button", name="Latest").click()
    bar = bar_of(panel, number)
    bar.dispatch_event("click")
    shown = f"No. {number}: 6 bytes of sheet at offset 4,656, shown in the hex view."
    expect(panel.get_by_role("status").filter(has_text=shown)).to_be_visible()
    expect(board.panel("hexview").get_by_role("heading")).to_contain_text("sheet")
    selected = board.panel("hexview").locator(".dg-hex-bytes .dg-selected")
    expect(selected).to_have_text(["6d", "61", "72", "6b", "65", "64"])


# Labels of the axis that the edge of the plot cuts.
CUT = """(plot) => [...plot.querySelectorAll(".dg-tl-tick > span")]
  .filter((one) => one.getBoundingClientRect().right > plot.getBoundingClientRect().right)
  .map((one) => one.textContent)"""


def test_no_label_is_cut_at_the_right_edge(board, panel):
    panel.get_by_role("button", name="All", exact=True).click()
    for _ in range(12):  # the labels move
        plot(panel).press("ArrowRight")
        assert plot(panel).evaluate(CUT) == []
    board.page.set_viewport_size({"width": 1000, "height": 1800})
    until(lambda: plot(panel).evaluate(CUT) == [], "it is drawn for the width")
    board.page.set_viewport_size({"width": 1600, "height": 2600})
    panel.get_by_role("button", name="Latest").click()


def test_it_zooms_by_buttons_wheel_and_keys(panel):
    panel.get_by_role("button", name="Latest").click()
    expect(panel.get_by_role("button", name="Latest")).to_have_attribute("aria-pressed", "true")
    plot(panel).focus()
    plot(panel).press("ArrowRight")
    plot(panel).press("ArrowLeft")
    expect(text(panel)).to_contain_text("in view")
    plot(panel).hover()
    panel.page.keyboard.down("Control")
    panel.page.mouse.wheel(0, -100)
    panel.page.keyboard.up("Control")
    plot(panel).press("0")
    expect(panel.get_by_role("button", name="Latest")).to_have_attribute("aria-pressed", "true")
    panel.get_by_role("button", name="All", exact=True).click()
    count = bars(panel).count()
    for _ in range(8):
        panel.get_by_role("button", name="Zoom in").click()
    until(lambda: bars(panel).count() < count, "fewer transfers in view")
    for _ in range(9):
        panel.get_by_role("button", name="Zoom out").click()
    expect(bars(panel)).to_have_count(count)
    panel.get_by_role("button", name="Latest").click()


def test_it_is_drawn(board, panel):
    page = board.lab_page
    try:
        for dark, width in product([False, True], [1000, 1600]):
            page.theme(dark)
            page.page.set_viewport_size({"width": width, "height": 1800})
            shown = "All" if width == 1000 else "Latest"
            panel.get_by_role("button", name=shown, exact=True).click()
            page.shot(f"timeline-{width}-{'dark' if dark else 'light'}", panel)
            assert panel.evaluate("one => one.scrollWidth <= one.clientWidth")
    finally:
        page.theme(False)
        page.page.set_viewport_size({"width": 1600, "height": 2600})
