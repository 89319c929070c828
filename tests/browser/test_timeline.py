"""The time line of TransferPanel: a bar per transfer, zoom, and the way to its completion."""

import re

import pytest
from playwright.sync_api import expect
from support.processes.waiting import until


@pytest.fixture
def panel(board):
    board.cell(
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


def text(panel):
    return panel.locator(".dg-tl-text")


def test_each_transfer_has_a_bar_that_leads_to_its_completion(board, panel):
    panel.get_by_role("button", name="All", exact=True).click()
    expect(panel.locator(".dg-tl-lanes")).to_contain_text("write, ")
    count = board.value("len(d.panels.transfer.transfers)")
    expect(bars(panel)).to_have_count(count)
    expect(text(panel)).to_have_text(re.compile(r"transfers, .* in .*s"))
    panel.get_by_role("button", name="Latest").click()
    expect(text(panel)).to_have_text(re.compile(r"\d+ transfers, .* in .*s; .*[MG]B/s"))
    panel.get_by_role("button", name="All", exact=True).click()
    number = board.value("d.panels.transfer.last_completion['number']")
    bar = plot(panel).get_by_role("button", name=re.compile(rf"No\. {number}: submit .* post \+"))
    bar.dispatch_event("click")
    python = panel.get_by_role("button", name=f"Copy as Python: No. {number}", exact=True)
    expect(python).to_be_focused()


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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1000, 1600])
def test_it_is_drawn(board, panel, width, dark):
    page = board.lab_page
    page.theme(dark)
    page.page.set_viewport_size({"width": width, "height": 1800})
    panel.get_by_role("button", name="All" if width == 1000 else "Latest", exact=True).click()
    try:
        page.shot(f"timeline-{width}-{'dark' if dark else 'light'}", panel)
        assert panel.evaluate("one => one.scrollWidth <= one.clientWidth")
    finally:
        page.theme(False)
        page.page.set_viewport_size({"width": 1600, "height": 1800})
