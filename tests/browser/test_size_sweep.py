# SPDX-License-Identifier: Apache-2.0
"""The size sweep of LatencyPlot: the switch of modes, progress, comparison, files, drawing."""

import re

import pytest
from PIL import Image
from playwright.sync_api import expect


def button(panel, name):
    return panel.get_by_role("button", name=name, exact=True)


def swept(panel, op):
    """Start a sweep of an operation from the panel, and wait until it is shown whole."""
    panel.get_by_label("Operation").select_option(op)
    button(panel, "Start sweep").click()
    expect(panel.locator(".dg-caption")).to_contain_text(
        f"{op}, auto path, 2 rounds of 100 samples"
    )
    expect(panel.get_by_role("status")).to_have_text("Done: 8 of 8 measurements.", timeout=90_000)


@pytest.fixture
def panel(board):
    """A plot of its own, in the mode for sweeps."""
    board.cell("swept = dgkit.LatencyPlot(d.session)\nswept")
    panel = board.ready("latency", 1)
    panel.scroll_into_view_if_needed()
    expect(panel).to_have_attribute("data-drawn", "")
    button(panel, "Size sweep").click()
    expect(panel).to_have_attribute("data-mode", "sweep")
    panel.get_by_label("Bytes (8, 64, 4K)").fill("8, 64, 4K, 256K")
    panel.get_by_label("Rounds").fill("2")
    panel.get_by_label("Samples a round").fill("100")
    yield panel
    board.execute("swept.close()")


def test_a_sweep_is_drawn_compared_and_saved(board, panel, tmp_path):
    swept(panel, "write")
    rows = panel.get_by_role("region", name="Sweep").locator("tbody th")
    expect(rows).to_have_text(["8 B", "64 B", "4 KiB", "256 KiB"])
    expect(panel.locator(".dg-sizes canvas").first).to_be_visible()
    box = panel.locator(".dg-sizes canvas").first.bounding_box()
    assert box["width"] > 0.8 * panel.bounding_box()["width"]
    board.lab_page.shot("sweep-light", panel)
    button(panel, "Published figures").click()
    caption = panel.locator(".dg-caption")
    expect(caption).to_contain_text("published by others, on hardware; no prediction")
    for words in ("29 µs at 64 B", "BlueField-2", "experiment_results.md", "3.44 µs at 2 B"):
        expect(caption).to_contain_text(words)
    expect(caption).not_to_contain_text("5.04 µs")  # of the other operation
    board.lab_page.shot("sweep-published", panel)
    button(panel, "Published figures").click()
    expect(caption).not_to_contain_text("published")
    button(panel, "Keep for comparison").click()
    expect(button(panel, "Remove comparison")).to_be_visible()
    swept(panel, "read")
    expect(panel.get_by_role("columnheader", name="after / before")).to_be_visible()
    expect(panel.locator(".dg-caption")).to_contain_text("before: software DPU")
    light = panel.locator(".dg-sizes > *").element_handle()
    board.lab_page.theme(True)
    light.wait_for_element_state("hidden")  # replaced by a figure of the other theme
    expect(panel.locator(".dg-sizes canvas").first).to_be_visible()
    board.lab_page.shot("sweep-dark", panel)
    board.lab_page.theme(False)
    with panel.page.expect_download() as saved:
        button(panel, "CSV").click()
    saved.value.save_as(tmp_path / "sweep.csv")
    assert "before,8,1,inline," in (tmp_path / "sweep.csv").read_text()
    with panel.page.expect_download() as saved:
        button(panel, "PNG").click()
    saved.value.save_as(tmp_path / "sweep.png")
    ratio = panel.page.evaluate("devicePixelRatio")
    width = panel.locator(".dg-figures").bounding_box()["width"]
    with Image.open(tmp_path / "sweep.png") as picture:
        assert picture.width == pytest.approx(ratio * (width + 24), abs=3)


def test_it_is_stopped_and_the_live_mode_goes_on(panel):
    button(panel, "Live").click()
    expect(panel).to_have_attribute("data-mode", "live")
    button(panel, "Start").click()
    expect(panel.get_by_text("Running.")).to_be_visible()
    button(panel, "Size sweep").click()
    expect(panel).to_have_attribute("data-mode", "sweep")
    panel.get_by_label("Rounds").fill("100")
    panel.get_by_label("Samples a round").fill("100000")
    button(panel, "Start sweep").click()
    expect(panel.get_by_role("progressbar", name="Progress of the sweep")).to_be_visible()
    button(panel, "Stop sweep").click()
    stopped = re.compile(r"Stopped: \d+ of 400 measurements\. The live measurement runs\.")
    expect(panel.get_by_role("status")).to_have_text(stopped)
    button(panel, "Live").click()
    expect(panel.get_by_text("Running.")).to_be_visible()


def test_what_is_wrong_is_said_and_its_field_marked(panel):
    sizes = panel.get_by_label("Bytes (8, 64, 4K)")
    sizes.fill("64, many")
    button(panel, "Start sweep").click()
    expect(panel.get_by_role("alert")).to_contain_text("'many' is not a size")
    expect(sizes).to_have_attribute("aria-invalid", "true")
    expect(sizes).to_be_focused()
    expect(sizes).to_have_value("64, many")
