# SPDX-License-Identifier: Apache-2.0
"""Copy as Python: the clipboard has lines that run in the next cell."""

import pytest
from playwright.sync_api import expect


@pytest.fixture
def filled(board):
    board.execute("grid = d.session.empty(4096, name='grid'); grid.array[:] = 7; d.selected = grid")
    for name in ("transfer", "hexview"):
        shown = board.panel(name).get_by_label("Region", exact=True).locator("option:checked")
        expect(shown).to_contain_text("grid")
    return board


def copy(board, panel, name="Copy as Python"):
    """Press the button; return what the clipboard has then."""
    board.page.evaluate("navigator.clipboard.writeText('')")
    button = panel.get_by_role("button", name=name)
    button.click()
    expect(panel.get_by_text("of Python.")).to_be_visible()
    return board.page.evaluate("navigator.clipboard.readText()")


def test_of_a_transfer(filled):
    panel = filled.panel("transfer")
    panel.get_by_label("Text", exact=True).fill("copied")
    panel.get_by_role("button", name="Start", exact=True).click()
    # not the row of a transfer before this one, whose region is closed by now
    row = panel.get_by_role("row").filter(has_text="write grid").first
    last = row.get_by_role("button", name="Copy as Python")
    expect(last).to_be_visible()
    text = copy(filled, panel, last.get_attribute("aria-label"))
    filled.cell("grid.array[:] = 0")
    filled.cell(text)
    assert filled.value("bytes(grid.array[:6])") == b"copied"


def test_of_an_allocation(filled):
    text = copy(filled, filled.panel("allocate"), "Copy as Python: grid")
    filled.cell(text)
    assert filled.value("[one.name for one in d.session.regions]").count("grid") == 2


def test_of_a_search(filled):
    filled.cell("grid.array[70:73] = (1, 2, 3)")
    panel = filled.panel("hexview")
    panel.get_by_label("Find as", exact=True).select_option("hex")
    panel.get_by_label("Find", exact=True).fill("01 02 03")
    panel.get_by_label("Find", exact=True).press("Enter")
    expect(panel.get_by_text("Found at 0x46")).to_be_visible()
    filled.cell(copy(filled, panel))
    assert filled.value("at") == 70
    panel.get_by_label("Find as", exact=True).select_option("text")


def test_of_a_measurement(filled):
    text = copy(filled, filled.panel("latency"))
    outputs = filled.cell(text.replace("sleep(5)", "sleep(0.5)"))
    printed = "".join(output.get("text", "") for output in outputs)
    assert printed.count("µs") == 3
