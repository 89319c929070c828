# SPDX-License-Identifier: Apache-2.0
"""The image of the hex view: pixels, a click that goes to their bytes, live, large regions."""

import pytest
from playwright.sync_api import expect
from support.processes.waiting import until

PIXEL = """([canvas, x, y]) => [...canvas.getContext("2d").getImageData(x, y, 1, 1).data]"""


@pytest.fixture
def panel(board):
    board.execute(
        "y, x = np.mgrid[:128, :128]\n"
        "picture = d.session.empty((128, 128), dtype='f4', name='picture')\n"
        "picture.array[:] = np.hypot(x - 64, y - 64)\n"
        "hexview = d.panels.hex"
    )
    panel = board.panel("hexview")
    panel.get_by_label("Region").select_option(label="picture, 64 KiB")
    expect(panel.get_by_role("heading")).to_contain_text("picture")
    panel.get_by_label("Values").select_option("hex")
    panel.get_by_label("Source").select_option("dpu")
    image(panel).locator("summary").click()
    expect(note(panel)).to_contain_text("128 rows of 128 items of f32, all bytes, read by DMA")
    yield panel
    board.execute("hexview.image = None")
    expect(image(panel)).not_to_have_attribute("open", "")


def image(panel):
    return panel.locator("details.dg-image")


def note(panel):
    return image(panel).locator(".dg-help").last


def plot(panel):
    return panel.get_by_role("application", name="Pixels")


def pixel(board, panel, x, y):
    return board.page.evaluate(PIXEL, [plot(panel).locator("canvas").element_handle(), x, y])


def test_a_click_and_the_keys_go_to_the_bytes_of_a_pixel(panel):
    canvas = plot(panel)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box["width"] == box["height"] >= 128
    one = box["width"] / 128
    canvas.click(position={"x": 30.5 * one, "y": 100.5 * one})
    start = 4 * (100 * 128 + 30)
    chosen = panel.get_by_role("status").filter(has_text=f"{start:#x} to {start + 3:#x}")
    expect(chosen).to_have_text(f"4 bytes selected, {start:#x} to {start + 3:#x}.")
    expect(panel.get_by_role("grid").locator(".dg-hex-bytes .dg-selected")).to_have_count(4)
    canvas.press("ArrowDown")
    below = start + 4 * 128
    expect(panel.get_by_role("status").filter(has_text=f"{below:#x} to")).to_be_visible()
    canvas.press("Alt+ArrowLeft")  # not a key of the image
    expect(panel.get_by_role("status").filter(has_text=f"{below:#x} to")).to_be_visible()
    panel.get_by_role("button", name="Back", exact=True).click()
    expect(panel.get_by_role("status").filter(has_text="Byte 0x0")).to_be_visible()


def test_its_pixels_follow_the_bytes_live_and_the_setting(board, panel):
    until(
        lambda: pixel(board, panel, 64, 64) == [0x44, 0x01, 0x54, 255],
        "viridis of the least value",
    )
    panel.get_by_role("button", name="Watch live").click()
    expect(panel.get_by_role("button", name="Watch live")).to_have_attribute("aria-pressed", "true")
    board.execute("picture.array[64, 64] = 1000")
    until(lambda: pixel(board, panel, 64, 64) == [0xFD, 0xE7, 0x25, 255], "the greatest value")
    panel.get_by_role("button", name="Watch live").click()
    expect(panel.get_by_role("button", name="Watch live")).to_have_attribute(
        "aria-pressed", "false"
    )
    panel.get_by_label("Palette").select_option("grey")
    until(lambda: pixel(board, panel, 64, 64) == [255, 255, 255, 255], "white")
    panel.get_by_label("Pixels per row").fill("64")
    panel.get_by_label("Pixels per row").press("Enter")
    expect(note(panel)).to_contain_text("256 rows of 64 items")
    panel.get_by_label("Pixels per row").fill("5000")
    panel.get_by_label("Pixels per row").press("Enter")
    expect(panel.get_by_role("alert")).to_contain_text("it must be 1 to 4,096 items per row")
    panel.get_by_role("button", name="Dismiss").click()


def test_of_a_large_region_it_shows_rows_and_goes_on(board, panel):
    board.execute("large = d.session.empty(1 << 24, name='large')")
    panel.get_by_label("Region").select_option(label="large, 16 MiB")
    expect(note(panel)).to_contain_text("256 rows of 512 items of u8, 0x0 to 0x1ffff")
    panel.get_by_role("button", name="Next rows").click()
    expect(note(panel)).to_contain_text("0x20000 to 0x3ffff")
    panel.get_by_role("button", name="Previous rows").click()
    expect(note(panel)).to_contain_text("0x0 to 0x1ffff")
    expect(panel.get_by_role("button", name="Previous rows")).to_be_disabled()


@pytest.mark.parametrize(("width", "dark"), [(1600, False), (1000, True)])
def test_it_is_drawn(board, panel, width, dark):
    page = board.lab_page
    page.theme(dark)
    page.page.set_viewport_size({"width": width, "height": 1800})
    try:
        page.shot(f"image-{width}-{'dark' if dark else 'light'}", panel)
        assert panel.evaluate("one => one.scrollWidth <= one.clientWidth")
    finally:
        page.theme(False)
        page.page.set_viewport_size({"width": 1600, "height": 1800})
