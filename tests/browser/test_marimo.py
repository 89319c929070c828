"""The dashboard in marimo, a host of anywidget that is not Jupyter."""

import pytest
from playwright.sync_api import expect
from support.jupyter.lab import has_front_end
from support.jupyter.marimo_app import marimo
from support.jupyter.page import PANELS, SHOTS


def test_the_dashboard_is_live(tmp_path, browser):
    if not has_front_end("marimo"):
        pytest.skip("marimo is not installed (pip install marimo)")
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(f"{error.message}\n{error.stack}"))
    try:
        with marimo(tmp_path) as address:
            page.goto(address, timeout=60_000)
            for panel in PANELS:
                view = page.locator(f".dgkit-{panel}[data-ready]")
                view.wait_for(timeout=60_000, state="attached")
            said = page.locator(".dgd-said")
            expect(said).to_contain_text("at the median", timeout=60_000)
            plot = page.locator(".dgkit-latency")
            expect(plot).to_have_attribute("data-running", "false")
            expect(plot.locator("canvas").first).to_be_visible()
            selected = page.locator(".dgkit-hexview .dg-hex-bytes .dg-selected")
            expect(selected).not_to_have_count(0)
            assert page.locator(".dgkit-dashboard").bounding_box()["width"] > 1000
            SHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SHOTS / "marimo.png", animations="disabled")
    finally:
        context.close()
    assert not errors, "\n".join(errors)
