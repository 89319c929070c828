"""The dashboard in hosts of anywidget that are not Jupyter."""

from pathlib import Path

import anywidget
import pytest
from playwright.sync_api import expect
from support.jupyter.app import served
from support.jupyter.lab import has_front_end
from support.jupyter.page import PANELS, SHOTS

# ipywidgets_bokeh loads a widget's JavaScript from a server that is not there.
UNPKG = "https://unpkg.com/anywidget@**"
ANYWIDGET = Path(anywidget.__file__).parent / "nbextension/index.js"


@pytest.mark.parametrize("host", ["marimo", "panel"])
def test_the_dashboard_is_live(host, tmp_path, browser):
    if not has_front_end(host):
        pytest.skip(f"{host} is not installed (pip install marimo panel ipywidgets_bokeh)")
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.route(
        UNPKG,
        lambda route: route.fulfill(
            path=ANYWIDGET,
            content_type="text/javascript",
            headers={"Access-Control-Allow-Origin": "*"},
        ),
    )
    errors = []
    page.on("pageerror", lambda error: errors.append(f"{error.message}\n{error.stack}"))
    try:
        with served(host, tmp_path) as address:
            page.goto(address, timeout=60_000)
            for panel in PANELS:
                view = page.locator(f".dgkit-{panel}[data-ready]")
                view.wait_for(timeout=60_000, state="attached")
            said = page.locator(".dgd-said")
            expect(said).to_contain_text("at the median", timeout=60_000)
            plot = page.locator(".dgkit-latency")
            expect(plot).to_have_attribute("data-running", "true")
            expect(plot.locator("canvas").first).to_be_visible()
            selected = page.locator(".dgkit-hexview .dg-hex-bytes .dg-selected")
            expect(selected).not_to_have_count(0)
            page.get_by_role("button", name="Stop monitor").click()
            expect(plot).to_have_attribute("data-running", "false")
            assert page.locator(".dgkit-dashboard").bounding_box()["width"] > 1000
            SHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SHOTS / f"{host}.png", animations="disabled")
            page.close()  # before its server ends
    finally:
        context.close()
    assert not errors, "\n".join(errors)
