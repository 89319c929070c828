# SPDX-License-Identifier: Apache-2.0
"""LatencyPlot: start, pause, clear, before and after, files; it moves while a cell is busy."""

import json
import re

import pytest
from playwright.sync_api import expect
from support.processes.waiting import until

# Resolves when the number of samples on the page (of the run, not of the one before) has changed
# so many times.
MOVES = """([root, times]) => new Promise((resolve) => {
  const samples = () => root.querySelector("tbody tr:last-child td")?.textContent;
  let seen = samples();
  const watch = new MutationObserver(() => {
    const now = samples();
    if (now === seen) return;
    seen = now;
    if (--times <= 0) { watch.disconnect(); resolve(true); }
  });
  watch.observe(root, {subtree: true, childList: true, characterData: true});
})"""


def moves(notebook, times=3):
    """Waits until the plot has taken in new samples so many times."""
    notebook.panel("latency").get_by_role("button", name="PNG").scroll_into_view_if_needed()
    root = notebook.panel("latency").element_handle()
    assert notebook.lab_page.ask(MOVES, [root, times])


SAMPLES = "(d.panels.plot.state()['run'] or {}).get('samples', 0)"


def press(panel, name):
    panel.get_by_role("button", name=name, exact=True).click()


@pytest.fixture
def panel(board):
    panel = board.panel("latency")
    press(panel, "Start")
    expect(panel.get_by_text("Running.")).to_be_visible()
    yield panel
    pause = panel.get_by_role("button", name="Pause drawing")
    if pause.get_attribute("aria-pressed") == "true":
        pause.click()
    board.value("d.panels.plot.drop()")
    if panel.get_attribute("data-running") == "true":
        press(panel, "Stop")
    expect(panel).to_have_attribute("data-running", "false")


def test_it_runs_and_names_provider_path_and_machine(board, panel):
    moves(board)
    expect(panel.locator("[data-drawn]").or_(panel)).to_have_attribute("data-drawn", "")
    shown = panel.locator(".dg-caption").text_content()
    for words in ("software DPU", "provider soft", "write 64 B", "path", "cores"):
        assert words in shown
    assert panel.locator("canvas").count() >= 3
    press(panel, "Stop")
    expect(panel.get_by_text("Stopped.")).to_be_visible()


def test_started_by_a_cell_after_a_long_rest_it_moves(board, panel):
    press(panel, "Stop")
    expect(panel).to_have_attribute("data-running", "false")
    board.value("d.panels.plot._view_model.viewers._reported.clear()")
    board.value("d.panels.plot.start()")
    moves(board)


WINDOW = """() => {
  const shown = Bokeh.documents.find((one) => one.get_model_by_name("brush"));
  const { start, end } = shown.get_model_by_name("time").x_range;
  return [start, end];
}"""


def test_the_past_is_brushed_and_one_tip_has_latency_and_load(board, panel):
    expect(panel.locator(".dg-load canvas").first).to_be_visible()
    until(lambda: board.page.evaluate(WINDOW)[0] < -3, "there is a past")
    strip = panel.locator(".dg-brush")
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    at = lambda part: (box["x"] + part * box["width"], box["y"] + box["height"] / 2)  # noqa: E731
    board.page.mouse.move(*at(0.6))
    board.page.mouse.down()
    board.page.mouse.move(*at(0.4), steps=5)
    board.page.mouse.up()
    now = panel.get_by_role("button", name="Now", exact=True)
    expect(now).to_be_visible()
    _, end = board.page.evaluate(WINDOW)
    moves(board)
    assert board.page.evaluate(WINDOW)[1] < end < 0  # it stays where it is
    over = panel.locator(".dg-time").bounding_box()
    board.page.mouse.move(over["x"] + over["width"] / 2, over["y"] + over["height"] / 2)
    for name in ("p50:", "CPUs:"):
        expect(board.page.get_by_text(name, exact=True)).to_be_visible()
    expect(board.page.get_by_text("NVLink:", exact=True)).to_have_count(0)  # there is no GPU
    press(panel, "Later")
    press(panel, "Now")
    expect(now).to_be_hidden()
    assert board.page.evaluate(WINDOW)[1] > 0


def test_paused_it_stands_still_and_still_takes_samples(board, panel):
    moves(board)
    press(panel, "Pause drawing")
    expect(panel.get_by_text("Drawing is paused")).to_be_visible()
    shown, taken = panel.locator("tbody td").first.text_content(), board.value(SAMPLES)
    until(lambda: board.value(SAMPLES) > taken + 500, "samples are taken")
    assert panel.locator("tbody td").first.text_content() == shown
    press(panel, "Pause drawing")
    expect(panel.locator("tbody td").first).not_to_have_text(shown)


def test_cleared_it_begins_anew(board, panel):
    moves(board)
    press(panel, "Stop")
    expect(panel).to_have_attribute("data-running", "false")
    press(panel, "Clear")
    expect(panel.locator("tbody td").first).to_have_text("0")


def test_what_is_kept_as_before_lies_under_the_next_run(board, panel):
    moves(board)
    press(panel, "Keep for comparison")
    panel.get_by_label("Size", exact=False).fill("4096")
    panel.get_by_label("Size", exact=False).press("Tab")
    expect(panel.locator("tbody th")).to_have_text(
        ["before: write 64 B, inline path", "after: write 4 KiB, inline path"]
    )
    moves(board)
    expect(panel.locator("tfoot th")).to_have_text("after / before")
    expect(panel.locator("tfoot td").nth(2)).to_have_text(re.compile(r"^\d+\.\d\d$"))  # of p50
    board.lab_page.shot("overlay", panel)
    press(panel, "Remove comparison")
    expect(panel.locator("tbody th")).to_have_count(1)
    panel.get_by_label("Size", exact=False).fill("64")
    panel.get_by_label("Size", exact=False).press("Tab")


@pytest.mark.parametrize(
    ("button", "begins"),
    [
        ("PNG", b"\x89PNG"),
        ("CSV", b"# "),
        ("Histogram CSV", b"# "),
        ("Report", b"<"),
        ("Report JSON", b"{"),
    ],
)
def test_it_is_saved_as(board, panel, button, begins, tmp_path):
    moves(board)
    with panel.page.expect_download() as saved:
        press(panel, button)
    path = tmp_path / saved.value.suggested_filename
    saved.value.save_as(path)
    data = path.read_bytes()
    assert data.startswith(begins)
    if button == "Report JSON":
        assert "software DPU" in json.dumps(json.loads(data))
    elif button != "PNG":
        assert b"software DPU" in data


@pytest.mark.parametrize(
    "busy", ["import time; time.sleep(30)", "while True: pass"], ids=["sleeps", "computes"]
)
def test_it_moves_while_a_cell(board, panel, busy):
    moves(board, 1)
    board.cell(busy, wait=False)
    until(board.busy, "the cell runs")
    moves(board, 5)
    assert board.busy()
    board.interrupt()


def test_kernels_can_start_the_transfers_and_the_page_says_which_gpu(board, panel):
    path, caption = panel.get_by_label("Path"), panel.locator(".dg-caption")
    path.select_option("GPU-initiated")
    expect(caption).to_contain_text("GPU-initiated path", timeout=60_000)
    expect(caption).to_contain_text("software DPU, emulated GPU")
    moves(board)
    path.select_option("auto")
    expect(caption).not_to_contain_text("emulated GPU")


def test_panels_follow_the_presentation_mode_and_large_is_one_number_and_one_line(notebook):
    notebook.cell(
        "import dgkit\ns = dgkit.connect()\nr = s.empty(4096)\n"
        "s.write(r, bytes(range(256)) * 16)\nv = dgkit.HexView(s, r)\nv"
    )
    view = notebook.ready("hexview")
    byte = view.locator(".dg-hex-row .dg-hex-bytes").nth(2).locator("span").nth(3)
    height = byte.bounding_box()["height"]
    present = "() => app.commands.execute('application:toggle-presentation-mode')"
    notebook.lab_page.ask(present)
    try:
        until(lambda: 1.15 < byte.bounding_box()["height"] / height < 1.3, "it is 17 / 14 as high")
        byte.click()
        until(lambda: notebook.value("v.selection") == (0x13, 0x14), "the byte is selected")
        notebook.cell("p = dgkit.LatencyPlot(s)\np.start()\np")
        plot = notebook.ready("latency")
        plot.get_by_role("button", name="Large").click()
        expect(plot.locator(".dg-large strong")).to_have_text(re.compile(r"[\d.]+ µs"))
        expect(plot.locator(".dg-time canvas").first).to_be_visible()
        expect(plot.get_by_role("table")).to_have_count(0)
        notebook.lab_page.shot("latency-large")
    finally:
        notebook.lab_page.ask(present)
    until(lambda: abs(byte.bounding_box()["height"] - height) < 1, "it is as before")
