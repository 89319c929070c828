# SPDX-License-Identifier: Apache-2.0
"""TransferPanel: each kind of payload, reads, a sequence, a repeat that is cancelled."""

import re

import pytest
from playwright.sync_api import expect

SIZE = 1 << 16
BYTES = "bytes(sheet.array)"


@pytest.fixture
def panel(board):
    board.execute(f"sheet = d.session.empty({SIZE}, name='sheet')")
    panel = board.panel("transfer")
    expect(panel.get_by_label("Region")).to_contain_text("sheet")
    panel.get_by_label("Operation").select_option("write")
    panel.get_by_label("Repeat").fill("1")
    panel.get_by_label("Depth, in flight").fill("1")
    panel.get_by_label("Offset, bytes").fill("0")
    return panel


def newest(panel):
    """The newest completion."""
    return panel.get_by_role("table", name="Completions").locator("tbody tr").first


def start(panel):
    number = newest(panel).locator("td").first
    before = number.text_content() if number.count() else ""
    panel.get_by_role("button", name="Start", exact=True).click()
    if before:
        expect(number).not_to_have_text(before)
    return newest(panel)


@pytest.mark.parametrize(
    ("kind", "field", "value", "offset", "put"),
    [
        ("text", "Text", "grüezi", "16", "grüezi".encode()),
        ("hex", "Hex digits", "de ad be ef", "0x100", bytes.fromhex("deadbeef")),
        ("expression", "Expression", "np.arange(4, dtype='u1') * 2", "4K", bytes([0, 2, 4, 6])),
    ],
)  # fmt: skip
def test_it_writes(board, panel, kind, field, value, offset, put):
    panel.get_by_label("Payload").select_option(kind)
    panel.get_by_label(field, exact=True).fill(value)
    panel.get_by_label("Offset, bytes").fill(offset)
    row = start(panel)
    expect(row).to_contain_text("OK")
    expect(row).to_contain_text(re.compile(r"0 → [\d.,]+ → [\d.,]+"))  # submit, post, complete
    at = {"16": 16, "0x100": 256, "4K": 4096}[offset]
    assert board.value(f"{BYTES}[{at}:{at + len(put)}]") == put


def test_it_writes_a_pattern(board, panel):
    panel.get_by_label("Payload").select_option("pattern")
    panel.get_by_label("Pattern").select_option("byte")
    panel.get_by_label("Byte", exact=True).fill("0xab")
    panel.get_by_label("Size, bytes").fill("1K")
    expect(start(panel)).to_contain_text("OK")
    assert board.value(f"{BYTES}[:1025]") == b"\xab" * 1024 + b"\0"


def test_long_text_that_is_pasted_is_refused(board, panel):
    panel.get_by_label("Payload").select_option("text")
    field = panel.get_by_label("Text", exact=True)
    board.page.evaluate("(text) => navigator.clipboard.writeText(text)", "dgkit 0123456789" * 3750)
    field.fill("")
    board.page.keyboard.press("Control+V")
    expect(
        panel.get_by_text(
            "60,000 characters with what is pasted; the limit is 4,096: use a NumPy expression"
        )
    ).to_be_visible()


def test_it_shows_what_it_read(board, panel):
    board.execute("sheet.array[:16] = np.frombuffer(b'read by the DPU.', 'u1')")
    panel.get_by_label("Operation").select_option("read")
    panel.get_by_label("Size, bytes").fill("16")
    expect(start(panel)).to_contain_text("read sheet")
    expect(panel.get_by_label("First bytes of the last read")).to_contain_text("72 65 61")


def test_the_arrow_keys_go_to_the_buttons_of_the_transfers(panel):
    panel.get_by_label("Payload").select_option("text")
    panel.get_by_label("Text", exact=True).fill("a")
    for _ in range(2):
        start(panel)
    table = panel.get_by_role("region", name="Completions")
    rows = table.locator("tbody tr")
    first, second = (rows.nth(at).get_by_role("button") for at in (0, 1))
    table.focus()
    for key, now in (
        ("ArrowDown", first.nth(0)),
        ("ArrowRight", first.nth(1)),
        ("ArrowDown", second.nth(1)),
        ("ArrowLeft", second.nth(0)),
        ("ArrowUp", first.nth(0)),
    ):
        panel.page.keyboard.press(key)
        expect(now).to_be_focused()
    panel.page.keyboard.press("Tab")  # past the table
    expect(table.locator(":focus")).to_have_count(0)


def test_a_write_past_the_end_is_refused_beside_its_field(panel):
    panel.get_by_label("Payload").select_option("text")
    panel.get_by_label("Text", exact=True).fill("too far")
    panel.get_by_label("Offset, bytes").fill(str(SIZE - 3))
    panel.get_by_role("button", name="Start", exact=True).click()
    expect(panel.get_by_label("Text", exact=True)).to_have_attribute("aria-invalid", "true")


def test_a_repeat_says_how_it_went(panel):
    panel.get_by_label("Payload").select_option("hex")
    panel.get_by_label("Hex digits").fill("00" * 64)
    panel.get_by_label("Repeat").fill("200")
    panel.get_by_label("Depth, in flight").fill("8")
    start(panel)
    expect(panel.get_by_text("200 transfers, 12.50 KiB")).to_be_visible()


def test_a_long_repeat_is_cancelled(board, panel):
    board.execute("long = d.session.empty(1 << 26, name='long')")  # 6 TiB: it ends by this alone
    panel.get_by_label("Region").select_option(label="long, 64 MiB, host")
    panel.get_by_label("Payload").select_option("pattern")
    panel.get_by_label("Size, bytes").fill("64M")
    panel.get_by_label("Repeat").fill("100000")
    panel.get_by_role("button", name="Start", exact=True).click()
    panel.get_by_role("button", name="Cancel").click()
    expect(panel.get_by_role("status").filter(has_text="cancelled")).to_be_visible()
    expect(panel.get_by_role("button", name="Start", exact=True)).to_be_enabled()


def test_a_region_is_whole_beside_the_other_fields_of_a_panel_as_wide_as_a_page(notebook):
    notebook.page.set_viewport_size({"width": 1600, "height": 900})
    notebook.cell("import dgkit\ns = dgkit.connect()\nmine = s.empty(4096, name='mine again')")
    notebook.cell("dgkit.TransferPanel(s)")
    panel = notebook.ready("transfer")
    region, offset = panel.get_by_label("Region"), panel.get_by_label("Offset, bytes")
    expect(region).to_contain_text("mine again, 4 KiB, host")
    assert region.bounding_box()["width"] > 1.8 * offset.bounding_box()["width"]
    expect(region).to_have_css("text-overflow", "ellipsis")
