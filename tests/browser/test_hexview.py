# SPDX-License-Identifier: Apache-2.0
"""HexView: go, find, edit, compare, copy, what has changed; by mouse and by keyboard; 1 GiB."""

import re

import pytest
from playwright.sync_api import expect

SIZE = 1 << 20


@pytest.fixture
def panel(board):
    board.execute(
        f"page = d.session.empty({SIZE}, name='page')\n"
        "page.array[:] = np.arange(page.size, dtype='u4').view('u1')[: page.size]"
    )
    panel = board.panel("hexview")
    choose(panel, "page, 1 MiB")
    panel.get_by_label("Values").select_option("hex")
    panel.get_by_label("Source").select_option("dpu")
    panel.get_by_role("button", name="Refresh").click()
    return panel


def choose(panel, label):
    panel.get_by_label("Region").select_option(label=label)
    expect(panel.get_by_role("heading")).to_contain_text(label.split(",")[0])
    grid(panel).scroll_into_view_if_needed()  # what is not in view reads nothing


def grid(panel):
    return panel.get_by_role("grid")


def cell(panel, offset):
    """The cell of a byte that is in view."""
    head = grid(panel).locator(".dg-hex-row:not(.dg-hex-headrow) .dg-hex-offset").first
    expect(head).not_to_have_text("")
    first = int(head.text_content(), 16)
    return grid(panel).locator(f".dg-hex-bytes [data-k='{offset - first}']").first


def go(panel, where, offset):
    panel.get_by_label("Go to offset", exact=True).first.fill(where)
    panel.get_by_label("Go to offset", exact=True).first.press("Enter")
    row = offset - offset % 16
    expect(grid(panel).get_by_role("rowheader", name=f"{row:08x}")).to_be_visible()


def test_it_goes_to_an_offset_and_shows_its_bytes(panel):
    go(panel, "0x8000", 0x8000)
    expect(cell(panel, 0x8001)).to_have_text("20")
    go(panel, "end", SIZE - 1)
    expect(grid(panel).locator(".dg-hex-offset").last).to_have_text(f"{SIZE - 16:08x}")


def test_an_offset_that_is_not_there_is_said(panel):
    field = panel.get_by_label("Go to offset", exact=True).first
    field.fill("4M")
    field.press("Enter")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(panel.get_by_role("status").filter(has_text="is the last")).to_be_visible()
    field.fill("0")
    field.press("Enter")


def test_it_finds_bytes_and_text(board, panel):
    board.execute("page.array[700001:700007] = np.frombuffer(b'needle', 'u1')")
    panel.get_by_label("Find", exact=True).fill("needle")
    panel.get_by_label("Find", exact=True).press("Enter")
    expect(panel.get_by_role("status").filter(has_text="Found at 0xaae61")).to_be_visible()
    panel.get_by_label("Find as", exact=True).select_option("hex")
    panel.get_by_label("Find", exact=True).fill("6e6565 646c65")
    panel.get_by_role("button", name="Find previous").click()
    expect(panel.get_by_role("status").filter(has_text="Found at 0xaae61")).to_be_visible()
    panel.get_by_label("Find as", exact=True).select_option("text")
    panel.get_by_label("Find", exact=True).fill("no such words")
    panel.get_by_role("button", name="Find next").click()
    expect(panel.get_by_role("status").filter(has_text="Not found")).to_be_visible()


def test_typed_digits_are_written_by_dma_and_taken_back(board, panel):
    go(panel, "0x40", 0x40)
    moves = board.value("d.session.stats()['moves']")
    cell(panel, 0x42).click()
    panel.page.keyboard.type("c0de")
    expect(cell(panel, 0x43)).to_have_text("de")
    expect(cell(panel, 0x43)).not_to_have_class(re.compile("dg-writing"))
    assert board.value("bytes(page.array[0x42:0x44])") == b"\xc0\xde"
    assert board.value("d.session.stats()['moves']") > moves
    panel.page.keyboard.press("Control+Z")
    expect(cell(panel, 0x43)).to_have_text("00")
    panel.page.keyboard.press("F2")
    panel.page.keyboard.type("D")
    expect(cell(panel, 0x43)).to_have_text("44")
    panel.page.keyboard.press("F2")


def test_what_has_changed_is_marked_until_it_is_seen(board, panel):
    go(panel, "0", 0)
    panel.get_by_role("button", name="Mark as seen").click()
    board.quiet()
    board.execute("page.array[5] = 0x99")
    panel.get_by_role("button", name="Refresh").click()
    expect(cell(panel, 5)).to_have_class(re.compile("dg-changed"))
    expect(cell(panel, 5)).to_have_text("99")
    panel.get_by_role("button", name="Mark as seen").click()
    expect(cell(panel, 5)).not_to_have_class(re.compile("dg-changed"))


def test_watched_live_it_shows_what_a_cell_writes(board, panel):
    go(panel, "0", 0)
    panel.get_by_role("button", name="Watch live").click()
    expect(panel.get_by_role("button", name="Watch live")).to_have_attribute("aria-pressed", "true")
    board.cell("page.array[6] = 0x77")
    # The new cell may have scrolled the panel away, and what nobody sees is not read.
    cell(panel, 6).scroll_into_view_if_needed()
    expect(cell(panel, 6)).to_have_text("77")
    panel.get_by_role("button", name="Watch live").click()


HISTORY = """
past = d.session.empty(256, name="past")
view = dgkit.HexView(d.session, past, history="1M")
d.session.write(past, b"one", 0)
d.session.write(past, b"two", 1)
past.array[9] = 7
view
"""


def test_the_keyboard_goes_through_the_past_of_the_bytes(board):
    at = board.add(HISTORY)
    board.run(at)
    panel = board.output(at).locator(".dgkit-hexview")
    past = panel.get_by_role("group", name="History of the bytes")
    expect(past.get_by_role("status")).to_contain_text("3 of 3: 1 byte at 0x9 changed outside")
    expect(cell(panel, 9)).to_have_class(re.compile("dg-hue5"))
    past.get_by_role("slider").focus()
    for _ in range(2):
        panel.page.keyboard.press("ArrowLeft")
    expect(past.get_by_role("status")).to_contain_text("1 of 3: DPU wrote 3 bytes at 0x0, bytes")
    expect(cell(panel, 2)).to_have_text("65")
    expect(cell(panel, 3)).to_have_text("00")
    expect(cell(panel, 2)).to_have_class(re.compile("dg-hue1"))
    past.get_by_role("button", name="Now").press("Enter")
    expect(cell(panel, 3)).to_have_text("6f")
    cell(panel, 3).click()
    past.get_by_role("button", name="Write of this byte").press("Enter")
    expect(past.get_by_role("status")).to_contain_text("2 of 3: DPU wrote 3 bytes at 0x1, bytes")
    past.get_by_role("button", name="Select its bytes").press("Enter")
    expect(grid(panel).locator(".dg-hex-bytes .dg-selected")).to_have_text(["74", "77", "6f"])
    board.execute("view.close()")


def test_both_sides_stand_beside_each_other_and_agree(board, panel):
    panel.get_by_label("Source").select_option("both")
    expect(panel.get_by_role("button", name="Count differences")).to_be_visible()
    panel.get_by_role("button", name="Count differences").click()
    expect(panel.get_by_role("status").filter(has_text="see the same bytes")).to_be_visible()


def test_bytes_are_read_as_numbers_of_either_order(board, panel):
    board.execute("page.array[:8] = np.frombuffer(np.array([1.5, -2], '>f4').tobytes(), 'u1')")
    go(panel, "0", 0)
    panel.get_by_label("Values").select_option("f32")
    panel.get_by_label("Byte order").select_option("big")
    expect(grid(panel).locator(".dg-hex-values").nth(1)).to_contain_text("1.5")
    panel.get_by_label("Byte order").select_option("little")


def test_a_selection_by_mouse_is_copied(board, panel):
    board.execute("page.array[:4] = [1, 2, 3, 255]")
    go(panel, "0", 0)
    panel.get_by_role("button", name="Refresh").click()
    cell(panel, 0).click()
    cell(panel, 3).click(modifiers=["Shift"])
    panel.get_by_label("Copy as").select_option("hex")
    panel.get_by_role("button", name="Copy the selection").click()
    expect(panel.get_by_role("status").filter(has_text="4 bytes copied")).to_be_visible()
    copied = panel.page.evaluate("navigator.clipboard.readText()")
    assert bytes.fromhex(copied) == bytes([1, 2, 3, 255])


def test_the_keyboard_alone_moves_selects_and_copies(panel):
    go(panel, "0", 0)
    grid(panel).focus()
    keys = panel.page.keyboard
    keys.press("Control+Home")
    keys.press("ArrowRight")
    keys.press("Shift+ArrowDown")
    keys.press("Control+C")
    expect(panel.get_by_role("status").filter(has_text="17 bytes copied")).to_be_visible()
    keys.press("Control+End")
    expect(grid(panel).locator(".dg-hex-offset").last).to_have_text(f"{SIZE - 16:08x}")
    keys.press("Control+Home")


def test_a_gib_is_scrolled_and_jumped_through(board, panel):
    size = 1 << 30
    places = [0, size - 16, size // 2, 123_456_784, 0x2FFFFFF0]
    board.execute(
        f"large = d.session.empty({size}, name='large')\n"
        f"for place in {places}: large.array[place : place + 8].view('u8')[:] = place + 1"
    )
    choose(panel, "large, 1 GiB")
    for offset in places:
        go(panel, hex(offset), offset)
        for at, byte in enumerate((offset + 1).to_bytes(8, "little")):
            expect(cell(panel, offset + at)).to_have_text(f"{byte:02x}")
    grid(panel).hover()
    panel.page.mouse.wheel(0, 4000)
    expect(grid(panel).get_by_role("rowheader", name="2ffffff0")).to_have_count(0)
    grid(panel).focus()
    panel.page.keyboard.press("Control+End")
    expect(grid(panel).locator(".dg-hex-offset").last).to_have_text(f"{size - 16:08x}")


def test_drawn_where_it_has_no_width_it_is_whole_once_it_has_some(notebook):
    """As in a tab that is left before its cell has run."""
    hide = notebook.page.add_style_tag(content=".jp-OutputArea { display: none !important }")
    notebook.cell(
        "import dgkit\ns = dgkit.connect()\nr = s.empty(4096, name='page')\n"
        "r.array[512] = 7\nv = dgkit.HexView(s)\nv"
    )
    panel = notebook.panel("hexview")
    panel.and_(notebook.page.locator("[data-ready]")).wait_for(state="attached")
    notebook.cell("v.select(512, 516)")
    notebook.quiet()
    hide.evaluate("(style) => style.remove()")
    expect(grid(panel).get_by_role("rowheader", name="00000200")).to_be_visible()
    expect(cell(panel, 512)).to_have_text("07")
    expect(cell(panel, 515)).to_have_class(re.compile("dg-selected"))
    expect(panel.get_by_role("alert")).to_be_hidden()


@pytest.mark.parametrize("dtype", ["hex", "f32"])
def test_at_900_px_the_controls_take_three_lines_and_groups_stay_together(panel, dtype):
    panel.get_by_label("Values").select_option(dtype)
    panel.page.set_viewport_size({"width": 900, "height": 1800})
    bottom = lambda control: round(control.evaluate("(at) => at.getBoundingClientRect().bottom"))  # noqa: E731
    controls = panel.locator(".dg-row").first.locator("input, select, button")
    lines = {bottom(one) for one in controls.all() if one.is_visible()}
    offset, pattern = (panel.get_by_label(name, exact=True) for name in ("Go to offset", "Find"))
    together = [
        (offset.first, panel.get_by_role("button", name="Go to offset")),
        (pattern, panel.get_by_role("button", name="Find next")),
        (panel.get_by_label("Copy as"), panel.get_by_role("button", name="Copy the selection")),
    ]
    apart = [(one, other) for one, other in together if bottom(one) != bottom(other)]
    panel.page.set_viewport_size({"width": 1600, "height": 2600})
    assert len(lines) <= 3
    assert not apart
