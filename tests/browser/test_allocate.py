# SPDX-License-Identifier: Apache-2.0
"""AllocatePanel, used by mouse and by keyboard."""

import pytest
from playwright.sync_api import expect


@pytest.fixture
def panel(board):
    return board.panel("allocate")


def row(panel, name):
    return panel.get_by_role("row").filter(has=panel.page.get_by_role("rowheader", name=name))


def region(name):
    return f"next(region for region in d.session.regions if region.name == {name!r})"


def test_a_click_allocates_and_fills(board, panel):
    panel.get_by_label("Name").first.fill("by mouse")
    panel.get_by_label("Shape, items").fill("64, 32")
    panel.get_by_label("dtype").select_option("f4")
    panel.get_by_label("Fill pattern").select_option("ones")
    panel.get_by_role("button", name="Allocate").click()
    expect(row(panel, "by mouse")).to_contain_text("float32")
    expect(row(panel, "by mouse")).to_contain_text("rw")
    assert board.value(f"{region('by mouse')}.array.tobytes() == bytes([255]) * 64 * 32 * 4")


def test_the_keyboard_alone_allocates_selects_and_frees(board, panel):
    keys = panel.page.keyboard
    panel.get_by_label("Name").first.focus()
    keys.press("Control+A")
    keys.type("by keys")
    keys.press("Tab")
    keys.press("Control+A")
    keys.type("4K")
    keys.press("Tab")
    keys.type("u1")
    keys.press("Enter")
    keys.press("Escape")
    panel.get_by_label("Name").first.press("Enter")
    expect(row(panel, "by keys")).to_contain_text("4 KiB")
    row(panel, "by keys").get_by_role("button", name="Select").focus()
    keys.press("Enter")
    expect(row(panel, "by keys").get_by_role("button", name="Select")).to_have_attribute(
        "aria-pressed", "true"
    )
    row(panel, "by keys").get_by_role("button", name="Free by keys").focus()
    keys.press("Space")
    expect(row(panel, "by keys")).to_have_count(0)
    assert board.value("len(d.session.regions)") == 0


def test_a_wrong_shape_is_said_beside_its_field(board, panel):
    shape = panel.get_by_label("Shape, items")
    shape.fill("many")
    panel.get_by_role("button", name="Allocate").click()
    expect(shape).to_have_attribute("aria-invalid", "true")
    expect(shape).to_be_focused()
    shape.fill("16")
    expect(shape).not_to_have_attribute("aria-invalid", "true")
    assert board.value("len(d.session.regions)") == 0


def test_more_memory_than_there_is_is_said_in_the_strip(board, panel):
    panel.get_by_label("Shape, items").fill("500T")
    panel.get_by_role("button", name="Allocate").click()
    expect(panel.get_by_role("alert")).to_contain_text("Free a region, or request less memory")
    panel.get_by_role("button", name="Dismiss").click()
    panel.get_by_label("Shape, items").fill("1M")


def test_an_error_that_comes_before_the_reply_stays(board, panel):
    board.execute(
        "import functools, time\n"
        "of = type(d.panels.allocate); make = of.make\n"
        "@functools.wraps(make)\n"
        "def late(self, **fields):\n"
        "    reply = make(self, **fields); time.sleep(0.5); return reply\n"
        "of.make = late"
    )
    panel.get_by_label("Shape, items").fill("500T")
    panel.get_by_role("button", name="Allocate").click()
    expect(panel.get_by_role("alert")).to_contain_text("Free a region, or request less memory")
    board.execute("of.make = make")
    board.quiet()
    expect(panel.get_by_role("alert")).to_contain_text("Free a region, or request less memory")
    expect(panel.get_by_text("Allocating…")).to_have_count(0)
    panel.get_by_role("button", name="Dismiss").click()
    panel.get_by_label("Shape, items").fill("1M")


def test_a_state_that_was_overtaken_by_a_newer_one_is_ignored(board, panel):
    line = {"id": 99, "name": "overtaken", "done": 1, "total": 2}
    board.execute(
        "of = d.panels.allocate; of.broadcast_state('jobs', lambda: {'jobs': []})\n"
        f"of.broadcast('jobs', snapshot=1, jobs=[{line}])\n"
        "of.broadcast('status', text='All are sent.')"
    )
    expect(panel.get_by_text("All are sent.")).to_be_visible()
    expect(panel.get_by_text("overtaken")).to_have_count(0)


def test_an_exported_descriptor_is_copied_and_opens_the_region(board, panel):
    board.value("d.session.empty(4096, name='sent').id")
    row(panel, "sent").get_by_role("button", name="Export sent").click()
    descriptor = panel.get_by_role("textbox", name="Descriptor")
    expect(descriptor).to_have_value(board.value(f"{region('sent')}.token.hex()"))
    expect(panel.get_by_text("Copied.")).to_be_visible()
    copied = panel.page.evaluate("navigator.clipboard.readText()")
    board.execute("other = dgkit.Device('soft')")
    assert board.value(f"other.import_region(bytes.fromhex({copied!r})).size") == 4096
    board.execute("other.close()")
    panel.get_by_role("button", name="Close").click()


def test_a_variable_of_the_notebook_is_registered_by_its_name(board, panel):
    board.execute("mine = np.arange(1000, dtype='i4')")
    panel.get_by_text("Register a variable of the notebook").click()
    panel.get_by_label("Variable").fill("mine")
    panel.get_by_role("button", name="Register").click()
    expect(row(panel, "mine")).to_contain_text("4,000 uint8")
    board.execute(f"d.session.write({region('mine')}, bytes(4))")
    assert board.value("int(mine[0]), int(mine[1])") == (0, 1)
    panel.get_by_text("Register a variable of the notebook").click()


def test_a_slow_click_works_while_a_repeat_writes(board, panel):
    """A person holds the button down for longer than a repeat takes to report what it wrote."""
    board.cell("first, second = (d.session.empty(1 << 20, name=name) for name in ('one', 'two'))")
    expect(row(panel, "two")).to_be_visible()
    board.cell("run = d.panels.transfer.transfer('write', second, bytes(1 << 20), repeat=100_000)")
    for name in ("two", "one", "two"):
        select = row(panel, name).get_by_role("button", name="Select")
        select.click(delay=90)
        expect(select).to_have_attribute("aria-pressed", "true")
    assert board.value("run.ended") is False
    board.cell("run.cancel()")
