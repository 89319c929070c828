# SPDX-License-Identifier: Apache-2.0
"""The dashboard as a whole: its status line, its layout, who cannot see or has no mouse."""

import contextlib
import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from support.jupyter.page import DASHBOARD, QUIET
from support.processes.waiting import until

import dgkit
from dgkit.widgets.base.esm import link

PANELS = ("allocate", "transfer", "hexview", "latency")


@pytest.fixture
def dashboard(board):
    return board.panel("dashboard")


def test_the_status_line_says_which_dpu_and_who_is_here(board, dashboard):
    dashboard.get_by_role("button", name="Machine").click()
    dpu = board.value("d.session.owned_pid")
    expect(dashboard.get_by_text(f"soft, pid {dpu}", exact=True)).to_be_visible()
    kernel = board.value("__import__('os').getpid()")
    expect(dashboard.get_by_text(f"host, pid {kernel}", exact=True)).to_be_visible()
    expect(dashboard.get_by_text(board.value("d.session.info['address']"))).to_be_visible()
    dashboard.get_by_text("Why no other provider?").click()
    expect(dashboard.get_by_text("softdoca: not asked for")).to_be_visible()
    dashboard.get_by_text("Why no other provider?").click()
    dashboard.get_by_role("button", name="Machine").click()


def test_its_counters_follow_the_session(board, dashboard):
    moved = dashboard.locator(".dgd-facts").nth(1)
    before = moved.text_content()
    board.execute("d.session.write(d.session.empty(4096), bytes(4096))")
    expect(moved).not_to_have_text(before)


def test_one_badge_names_the_provider_and_each_panel_alone_has_one(board, dashboard):
    expect(dashboard.locator(".dg-badge:visible")).to_have_text(["software DPU"])
    cell = board.add("alone = dgkit.LatencyPlot(d.session); alone")
    board.run(cell)
    expect(board.ready("latency", 1).locator(".dg-badge:visible")).to_have_text("software DPU")
    board.execute("alone.close()")


def test_show_me_writes_an_image_and_ends_in_a_sentence_with_numbers(board, dashboard):
    button = dashboard.get_by_role("button", name="Show me")
    expect(button).to_be_visible()
    board.lab_page.shot("dashboard-empty")
    button.click()
    expect(board.panel("latency")).to_have_attribute("data-running", "true")
    dashboard.get_by_text("The steps, in Python").click()
    steps = dashboard.get_by_role("list", name="Steps").get_by_role("listitem")
    expect(steps).to_have_count(4)
    board.lab_page.shot("dashboard-steps")
    expect(steps.last).to_have_class("dgd-done")
    expect(board.panel("latency")).to_have_attribute("data-running", "true")
    expect(board.panel("hexview").locator(".dg-hex-bytes .dg-selected")).to_have_count(16)
    expect(dashboard.get_by_text("The software DPU wrote 64 KiB in 16 DMA writes")).to_be_visible()
    expect(dashboard.get_by_text(re.compile(r"p50 of [\d,]+ samples: write 64 B"))).to_be_visible()
    expect(board.panel("hexview").get_by_role("application", name="Pixels")).to_be_visible()
    board.lab_page.theme(True)
    board.lab_page.shot("dashboard-steps-dark")
    board.lab_page.theme(False)
    lines = [step.text_content() for step in steps.locator("code").all()]
    assert "software DPU" in str(board.cell("\n".join(lines).replace("\xa0", " "))[0])
    expect(button).to_be_enabled()
    dashboard.get_by_role("button", name="Hide the steps").click()
    expect(steps).to_have_count(0)
    dashboard.get_by_role("button", name="Stop monitor").click()
    board.value("setattr(d.panels.hex, 'image', None)")


def test_its_button_starts_and_stops_the_monitor(board, dashboard):
    dashboard.get_by_role("button", name="Start monitor").click()
    expect(board.panel("latency")).to_have_attribute("data-running", "true")
    dashboard.get_by_role("button", name="Stop monitor").click()
    expect(board.panel("latency")).to_have_attribute("data-running", "false")


# Panels that are cut, and elements with a horizontal bar.
CUT = """(root) => [root, ...root.querySelectorAll("*")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth
    && (one.matches(".dgkit") || ["auto", "scroll"].includes(getComputedStyle(one).overflowX)))
  .map((one) => `${one.className}: ${one.scrollWidth} of ${one.clientWidth} px`)"""
BOTTOMS = """(root) => [...root.querySelectorAll(".dgd-column:nth-child(-n + 2)")]
  .map((one) => Math.round(one.lastChild.firstElementChild.getBoundingClientRect().bottom))"""
BAR = (
    "(bar) => new Set([...bar.children].flatMap((one) => [...one.getClientRects()]"
    ".map((box) => Math.round(box.bottom)))).size"
)


def comes(look, wanted):
    """Waits until the page, which resizes its parts after itself, looks as wanted."""
    with contextlib.suppress(AssertionError):
        until(lambda: look() == wanted, "the page is arranged", timeout=10)
    assert look() == wanted


@pytest.mark.parametrize(
    ("dark", "cases"),  # width, with the file browser; 1366: a laptop; 800: 1600 px at 200 %
    [
        (False, [(1600, True), (1600, False), (1366, True), (1000, True), (800, False)]),
        (True, [(1600, True), (1000, False), (800, True)]),
    ],
    ids=["light", "dark"],
)
def test_it_fits(board, dashboard, dark, cases):
    board.execute(
        "image = d.session.empty((64, 1024), 'f4', name='image')\n"
        "image.array[:] = np.eye(64, 1024)\n"
        "d.panels.transfer.transfer('write', image, bytes(1 << 17), offset=1 << 16).wait()"
    )
    page = board.lab_page
    page.theme(dark)
    try:
        for width, files in cases:
            if files:
                page.ask("async () => { await app.commands.execute('filebrowser:activate'); }")
            page.page.set_viewport_size({"width": width, "height": 2600})
            fits(board, dashboard, width)
            page.shot(f"dashboard-{width}{'-files' * files}-{'dark' if dark else 'light'}")
            page.ask("() => app.shell.collapseLeft()")
    finally:
        page.ask("() => app.shell.collapseLeft()")
        page.theme(False)
        page.page.set_viewport_size({"width": 1600, "height": 2600})


def fits(board, dashboard, width):
    """Wait until nothing is cut, and check that the panels are side by side if there is room."""
    comes(lambda: dashboard.evaluate(CUT), [])
    if width == 1600:
        comes(lambda: len(set(dashboard.evaluate(BOTTOMS))), 1)
        columns = board.panel("hexview").locator(".dg-hex-headrow .dg-hex-bytes > span")
        expect(columns).to_have_count(16)
        bar = board.panel("hexview").locator(".dg-hex-bar > *").first.locator("xpath=..")
        assert bar.evaluate(BAR) == 1, "the first row of the hex view's controls"
    left, right = (board.panel(name).bounding_box() for name in ("hexview", "latency"))
    beside = right["x"] > left["x"] + left["width"] - 1
    assert beside == (dashboard.evaluate("(root) => root.clientWidth") > 800)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_violation(board, dashboard, dark):
    board.execute("d.session.empty(4096, name='seen by axe').id")
    board.lab_page.theme(dark)
    try:
        found = Axe().run(board.page, context=".dgkit-dashboard").response
    finally:
        board.lab_page.theme(False)
    grave = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    said = [
        f"{one['id']}: {node['target']} {node['html']}" for one in grave for node in one["nodes"]
    ]
    assert not said, "\n".join(said)
    assert len(found["passes"]) > 10


def test_the_tab_key_goes_through_all_panels_and_is_seen(board, dashboard):
    """From the first button on; each stop has an outline."""
    board.execute("d.session.empty(4096, name='to be looked at')")
    expect(board.panel("hexview").get_by_role("grid")).to_be_visible()
    dashboard.get_by_role("button", name="Start monitor").focus()
    board.page.keyboard.press("Tab")  # now it is the keyboard that moves the focus
    board.page.keyboard.press("Shift+Tab")
    reached = set()
    for _ in range(120):
        stop = board.page.evaluate(
            """() => {
              let at = document.activeElement;
              const name = at.closest(".dgkit")?.className.match(/dgkit-(\\w+)/)?.[1];
              while (at.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
              const {outlineStyle, boxShadow} = getComputedStyle(at);
              return [name, outlineStyle !== "none" || boxShadow !== "none", at.outerHTML];
            }"""
        )
        if stop[0] is None:
            break
        assert stop[1], f"the focus is not seen: {stop[2][:200]}"
        reached.add(stop[0])
        board.page.keyboard.press("Tab")
    assert reached == {"dashboard", *PANELS}


BUTTON = "<section class='dgkit dgkit-dashboard'><b class='dg-button dgd-info'>i</b></section>"
LOOK = """[...document.querySelectorAll(".dgd-info")].map((one) => {
  const {font, padding, width, minHeight, borderRadius} = getComputedStyle(one);
  return [font, padding, width, minHeight, borderRadius].join();
})"""


def test_the_order_of_the_sheets_of_panels_does_not_matter(browser):
    folder = Path(dgkit.__file__).parent / "widgets"
    own = f"<style>{link(folder / 'dashboard/dashboard.js')[1]}</style>"
    other = f"<style>{link(folder / 'doctor/doctor.js')[1]}</style>"
    page, looks = browser.new_page(), []
    for sheets in (own, own + other, other + own):
        page.set_content(sheets + BUTTON)
        looks += page.evaluate(LOOK)
    page.close()
    assert "Georgia" in looks[0]
    assert looks[1:] == looks[:1] * 2


def test_all_controls_have_names_and_panels_are_landmarks(board, dashboard):
    unnamed = dashboard.evaluate(
        """(root) => [...root.querySelectorAll("button, input, select, textarea")]
          .filter((one) => !one.labels?.length && !one.ariaLabel && !one.textContent.trim())
          .map((one) => one.outerHTML)"""
    )
    assert not unnamed
    for title in ("Allocate memory", "Transfer", "Memory", "Latency"):
        expect(dashboard.get_by_role("region", name=title).first).to_be_visible()
        expect(dashboard.get_by_role("heading", name=title).first).to_be_visible()


def test_the_cell_ends_at_the_top_of_the_dashboard_which_moves(notebook):
    cell = notebook.add(DASHBOARD)
    notebook.lab_page.ask(
        """([path, cell]) => {
          find(path).content.activeCellIndex = cell;
          find(path).activate();
        }""",
        [notebook.path, cell],
    )
    notebook.page.keyboard.press("Shift+Enter")
    dashboard = notebook.ready("dashboard")
    expect(dashboard.locator(".dgd-value")).to_have_text(re.compile(r"[\d.]+ µs"))
    expect(notebook.panel("hexview").get_by_role("application", name="Pixels")).to_be_visible()
    top = dashboard.bounding_box()["y"]
    assert abs(top - notebook.page.locator(".jp-WindowedPanel-outer").bounding_box()["y"]) < 20
    notebook.page.mouse.move(0, 0)
    expect(dashboard.locator(".dgd-said")).to_contain_text("at the median")


def cells(board):
    return board.lab_page.ask("(path) => find(path).content.widgets.length", board.path)


def test_a_key_that_is_typed_in_a_panel_is_no_command_of_the_notebook(board):
    before = cells(board)
    panel = board.panel("allocate")
    panel.get_by_role("button", name="Allocate").focus()
    board.page.keyboard.type("abxdd")
    name = panel.get_by_label("Name").first
    name.fill("")
    name.focus()
    board.page.keyboard.type("abxdd")
    expect(name).to_have_value("abxdd")
    name.fill("")
    board.execute("d.session.empty(64, name='typed').id")
    grid = board.panel("hexview").get_by_role("grid")
    grid.focus()
    board.page.keyboard.type("abdd")
    assert cells(board) == before


def test_the_keys_of_jupyterlab_with_ctrl_work_on_a_button_of_a_panel(board):
    dirty = "(path) => find(path).context.model.dirty"

    def edited():
        board.cell("None")
        return board.lab_page.ask(dirty, board.path)

    until(edited, "the notebook is changed, and not saved by itself meanwhile")
    board.panel("allocate").get_by_role("button", name="Allocate").focus()
    board.page.keyboard.press("Control+S")
    until(lambda: not board.lab_page.ask(dirty, board.path), "it is saved")


def test_who_dismisses_an_error_by_the_keyboard_is_where_it_came_from(board):
    panel = board.panel("allocate")
    board.value("d.panels.allocate.fail(ValueError('nothing is wrong'))")
    panel.get_by_role("button", name="Allocate").focus()
    panel.get_by_role("button", name="Dismiss").focus()
    board.page.keyboard.press("Enter")
    expect(panel.get_by_role("button", name="Dismiss")).to_be_hidden()
    expect(panel.get_by_role("button", name="Allocate")).to_be_focused()


def test_its_panels_are_in_tabs_as_the_user_likes(notebook):
    cell = notebook.add(QUIET)
    notebook.run(cell)
    for name in PANELS:
        notebook.ready(name)
    dashboard = notebook.panel("dashboard")
    tab = lambda name: dashboard.get_by_role("tab", name=name, exact=True)  # noqa: E731
    dashboard.get_by_role("button", name="Tabs").click()
    expect(notebook.panel("hexview")).to_be_visible()
    expect(notebook.panel("transfer")).to_be_hidden()
    tab("Memory").focus()
    notebook.page.keyboard.press("End")
    expect(notebook.panel("transfer")).to_be_visible()
    expect(tab("Transfer")).to_be_focused()
    until(
        lambda: notebook.value("(d.arrangement, d.tab)") == ("tabs", "transfer"), "the kernel knows"
    )
    notebook.page.keyboard.press("ArrowRight")
    expect(notebook.panel("hexview")).to_be_visible()
    expect(notebook.panel("transfer")).to_be_hidden()
    until(lambda: notebook.value("(d.arrangement, d.tab)") == ("tabs", "hex"), "the kernel knows")
    notebook.value("d.session.empty(4096, name='in a tab').id")
    expect(notebook.panel("hexview").get_by_role("grid")).to_be_visible()
    notebook.lab_page.shot("dashboard-tabs")
    notebook.cell("d.arrangement = 'rows'")
    for name in ("hexview", "latency"):
        expect(notebook.panel(name)).to_be_visible()
    expect(notebook.panel("transfer")).to_be_hidden()
    dashboard.locator("summary").get_by_text("Transfer", exact=True).click()
    expect(notebook.panel("transfer")).to_be_visible()
    notebook.cell("d.panels.plot.close()")
    expect(dashboard.get_by_text("Latency: this panel was closed.")).to_be_visible()
