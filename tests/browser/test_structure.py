# SPDX-License-Identifier: Apache-2.0
"""Structures over the bytes of the hex view, and going back."""

import re
from itertools import product

import pytest
from playwright.sync_api import expect

STRUCTURE = """
import ctypes
class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float))
class Packet(ctypes.Structure):
    _fields_ = (("magic", ctypes.c_uint32), ("kind", ctypes.c_uint16, 3),
                ("flags", ctypes.c_uint16, 13), ("name", ctypes.c_char * 10),
                ("points", Point * 2), ("table", ctypes.c_int16 * 12), ("sent", ctypes.c_uint64))
page = d.session.empty(1 << 16, name="page")
for at in range(0, 1 << 12, ctypes.sizeof(Packet)):
    made = Packet(magic=0xD6C1, kind=5, name=b"packet", sent=at)
    made.points[1].y = 2.5
    page.array[at : at + ctypes.sizeof(Packet)] = list(bytes(made))
hexview = d.panels.hex
hexview.structure = Packet
"""


@pytest.fixture
def panel(board):
    panel = board.panel("hexview")
    board.execute(STRUCTURE)
    panel.get_by_label("Region").select_option(label="page, 64 KiB")
    panel.get_by_label("Values").select_option("hex")
    panel.get_by_label("Source").select_option("dpu")
    panel.get_by_role("button", name="Refresh").click()
    expect(value(panel, "magic")).to_have_text("54977 (0xd6c1)")
    yield panel
    board.execute("hexview.structure = None; hexview.structure")


def row(panel, name):
    return panel.get_by_role("table", name="Fields of the structure").get_by_role("row").filter(
        has=panel.page.get_by_role("button", name=name, exact=True)
    )  # fmt: skip


def value(panel, name):
    return row(panel, name).locator("td").last


def cell(panel, at):
    return panel.get_by_role("grid").locator(f".dg-hex-bytes [data-k='{at}']").first


def selected(panel):
    return panel.get_by_role("grid").locator(".dg-hex-bytes .dg-selected")


MESSAGE = """
hexview.structure = {"kind": "u8", "real": "f32 @ 4 if kind == 1", "id": "u32 @ 4 if kind == 2",
                     "next": "u8 @ 8 -> char[3]"}
page.array[:48] = [1, 0, 0, 0, 0, 0, 192, 63, 32, *[0] * 23, *b"end", *[0] * 13]
"""


def test_a_union_follows_its_tag_a_pointer_leads_on_and_edits_are_listed(board, panel):
    board.execute(MESSAGE)
    panel.get_by_role("button", name="Refresh").click()
    expect(value(panel, "real")).to_have_text("1.5")
    expect(row(panel, "id")).to_be_hidden()
    value(panel, "next").get_by_role("button", name="32 (0x20): b'end'").click()
    expect(selected(panel)).to_have_count(3)
    panel.get_by_label("Find as").select_option("regex")
    panel.get_by_label("Find", exact=True).fill(r"[\x01-\x09]\0+")
    panel.get_by_label("Find", exact=True).press("Enter")
    expect(panel.get_by_text(re.compile("^Found at"))).to_be_visible()
    expect(selected(panel)).to_have_count(2)
    panel.get_by_label("Go to offset").first.fill("0")
    panel.get_by_label("Go to offset").first.press("Enter")
    panel.get_by_role("grid").press_sequentially("02")
    expect(value(panel, "id")).to_have_text("1069547520 (0x3fc00000)")
    expect(row(panel, "real")).to_be_hidden()
    panel.locator("summary").get_by_text("1 edit", exact=True).click()
    edit = panel.get_by_role("table", name="Edits").get_by_role("row").nth(1)
    expect(edit).to_contain_text("0x00102")
    with board.page.expect_download() as file:
        panel.get_by_role("button", name="Save", exact=True).click()
    assert "session.write(region, b'\\x02', offset=0)" in file.value.path().read_text()
    board.execute("d.panels.hex._edits.clear(); d.panels.hex._changed()")


def test_fields_have_values_and_colours_and_the_selection_is_linked_both_ways(panel):
    expect(value(panel, "name")).to_have_text("b'packet'")
    expect(value(panel, "points[1].y")).to_have_text("2.5")
    expect(cell(panel, 0)).to_have_class(re.compile("dg-hue1"))
    expect(cell(panel, 6)).to_have_class(re.compile("dg-hue4"))
    row(panel, "name").get_by_role("button").click()
    expect(selected(panel)).to_have_count(10)
    expect(row(panel, "name")).to_have_attribute("aria-current", "true")
    cell(panel, 1).click()
    expect(row(panel, "magic")).to_have_attribute("aria-current", "true")
    expect(row(panel, "name")).not_to_have_attribute("aria-current", "true")


def test_it_is_moved_by_its_size_and_to_the_cursor(board, panel):
    size = board.value("ctypes.sizeof(Packet)")
    panel.get_by_role("button", name="Next structure").click()
    expect(value(panel, "sent")).to_have_text(f"{size} ({size:#x})")
    assert board.value("hexview.structure_offset") == size
    cell(panel, 8).click()
    panel.get_by_role("button", name="Place at the cursor").click()
    expect(panel.get_by_text("Packet at 0x8,")).to_be_visible()
    expect(panel.get_by_role("button", name="Previous structure")).to_be_disabled()
    board.execute("hexview.structure_offset = 0")
    expect(value(panel, "sent")).to_have_text("0")


def test_a_jump_is_gone_back_from(board, panel):
    cell(panel, 16).click()
    cell(panel, 19).click(modifiers=["Shift"])
    panel.get_by_label("Go to offset", exact=True).first.fill("0x8000")
    panel.get_by_label("Go to offset", exact=True).first.press("Enter")
    top = panel.get_by_role("grid").get_by_role("rowheader", name="00008000")
    expect(top).to_be_visible()
    panel.get_by_role("grid").press("Alt+ArrowLeft")
    expect(top).to_have_count(0)
    expect(selected(panel)).to_have_count(4)
    expect(panel.get_by_role("button", name="Back")).to_be_disabled()


def test_alone_it_fits_beside_the_file_browser(board, panel):
    page = board.lab_page
    row(panel, "points[0].x").get_by_role("button").click()
    alone = board.add("alone = dgkit.HexView(d.session, page)\nalone.structure = Packet\nalone")
    board.run(alone)
    view = board.ready("hexview", 1)
    page.ask("() => app.commands.execute('filebrowser:activate')")
    try:
        for dark, width in product([False, True], [1000, 1600]):
            page.theme(dark)
            page.page.set_viewport_size({"width": width, "height": 1100})
            view.scroll_into_view_if_needed()
            expect(value(view, "magic")).to_have_text("54977 (0xd6c1)")
            row(view, "points[0].x").get_by_role("button").click()
            page.shot(f"structure-{width}-{'dark' if dark else 'light'}")
            assert view.evaluate("one => one.scrollWidth <= one.clientWidth")
    finally:
        page.theme(False)
        page.ask("() => app.shell.collapseLeft()")
        page.page.set_viewport_size({"width": 1600, "height": 2600})
        board.execute("alone.close()")
