# SPDX-License-Identifier: Apache-2.0
"""The overview strip of the hex view: it goes where it is clicked, and says what was read."""

import re

import pytest
from playwright.sync_api import expect
from support.processes.waiting import until

SIZE = 1 << 20


@pytest.fixture
def panel(board):
    board.execute(
        f"page = d.session.empty({SIZE}, name='page')\n"
        "page.array[: 1 << 19] = np.repeat(np.arange(128, dtype='u1'), 4096)\n"
        "page.array[5 << 17 : 6 << 17] = np.random.default_rng(0).integers(0, 256, 1 << 17)"
    )
    panel = board.panel("hexview")
    panel.get_by_label("Region").select_option(label="page, 1 MiB")
    expect(panel.get_by_role("heading")).to_contain_text("page")
    panel.get_by_label("Values").select_option("hex")
    panel.get_by_label("Source").select_option("dpu")
    panel.get_by_role("button", name="Refresh").click()
    expect(note(panel)).to_contain_text("256 parts of 4 KiB; all 1 MiB read by DMA")
    return panel


def strip(panel):
    return panel.get_by_role("slider", name="Overview of all bytes")


def scan(panel, button):
    """Click a button, and wait until a scan has ended."""
    scans = int(panel.locator(".dg-over").get_attribute("data-scan"))
    panel.get_by_role("button", name=button).click()
    until(lambda: int(panel.locator(".dg-over").get_attribute("data-scan")) > scans, "a scan")


def mark(panel):
    """Mark all as seen; the strip has been read since."""
    scan(panel, "Mark as seen")
    scan(panel, "Refresh")  # the scan that ended may have begun before the mark
    expect(note(panel)).not_to_contain_text("changed")


def note(panel):
    return panel.locator(".dg-over-row .dg-help")


def test_a_click_goes_there_and_the_bytes_in_view_are_framed(panel):
    box = strip(panel).bounding_box()
    strip(panel).click(position={"x": box["width"] * 0.75, "y": 10})
    expect(panel.get_by_role("grid").get_by_role("rowheader", name="000c0000")).to_be_visible()
    framed = panel.locator(".dg-over-window").bounding_box()
    assert abs(framed["x"] - box["x"] - 0.75 * box["width"]) < 8
    strip(panel).press("Home")
    expect(panel.get_by_role("grid").get_by_role("rowheader", name="00000000")).to_be_visible()
    strip(panel).press("ArrowRight")
    expect(panel.get_by_role("status").filter(has_text="Byte 0x1000")).to_be_visible()


def test_each_part_says_its_mean_its_entropy_and_whether_it_changed(board, panel):
    mark(panel)
    board.execute("page.array[4096 * 64] = 255")
    panel.get_by_role("button", name="Refresh").click()
    expect(note(panel)).to_contain_text("1 part changed")
    box = strip(panel).bounding_box()
    strip(panel).hover(position={"x": box["width"] * 64.5 / 256, "y": 10})
    expect(strip(panel)).to_have_attribute(
        "title", "0x40000 to 0x40fff: mean 64, entropy 0.0 bits per byte, changed"
    )
    mark(panel)


def test_of_a_large_region_it_reads_a_sample_and_says_so(board, panel):
    board.execute("large = d.session.empty(1 << 30, name='large')")
    before = board.value("d.session.stats()['bytes']")
    panel.get_by_label("Region").select_option(label="large, 1 GiB")
    panel.get_by_role("grid").scroll_into_view_if_needed()  # what is not in view reads nothing
    expect(note(panel)).to_contain_text(
        "a sample: 1 MiB of 1 GiB read by DMA, the middle 4 KiB of each part"
    )
    assert board.value("d.session.stats()['bytes']") - before < 4 << 20


def test_a_region_that_is_chosen_later_than_a_minute_after_the_view_s_report_is_read(board, panel):
    board.execute("from dgkit.widgets.base import panel as base_panel; base_panel._RECENT_S = 0.0")
    try:
        board.execute("later = d.session.empty(8192, name='later')")
        panel.get_by_label("Region").select_option(label="later, 8 KiB")
        panel.get_by_role("grid").scroll_into_view_if_needed()
        expect(note(panel)).to_contain_text("256 parts of 32 B; all 8 KiB read by DMA")
    finally:
        board.execute("base_panel._RECENT_S = 60.0")


def test_the_host_sees_it_directly(panel):
    panel.get_by_label("Source").select_option("host")
    expect(note(panel)).to_contain_text("read directly from the host's memory")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_drawn(board, panel, dark):
    page = board.lab_page
    mark(panel)
    board.execute("page.array[200 * 4096 : 204 * 4096 : 7] = 0x41")
    panel.get_by_role("button", name="Refresh").click()
    expect(note(panel)).to_contain_text("4 parts changed")
    panel.get_by_label("Overview", exact=True).select_option("entropy" if dark else "value")
    bars = panel.locator(".dg-over-bars")
    expect(bars).to_have_attribute("d", re.compile("M160 255V" if dark else "M127 255V128H"))
    page.theme(dark)
    try:
        for width in (1000, 1600):
            page.page.set_viewport_size({"width": width, "height": 1800})
            page.shot(f"overview-{width}-{'dark' if dark else 'light'}", panel)
    finally:
        page.theme(False)
        page.page.set_viewport_size({"width": 1600, "height": 2600})
