# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a page of Voila: live, as in JupyterLab, without a notebook around it."""

import pytest
from playwright.sync_api import expect
from support.jupyter.lab import has_front_end
from support.jupyter.notebooks import notebook
from support.jupyter.page import PANELS, SHOTS
from support.jupyter.voila import voila

ICONS = "https://cdn.jsdelivr.net/npm/@fortawesome/"  # which Voila's own template asks for


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    if not has_front_end("voila"):
        pytest.skip("Voila is not installed (pip install voila)")
    folder = tmp_path_factory.mktemp("voila")
    with voila(folder, notebook("import dgkit\nd = dgkit.dashboard()\nd")) as found:
        yield found


@pytest.mark.parametrize(("width", "theme"), [(1600, "light"), (1000, "dark")])
def test_the_dashboard_is_live(address, browser, width, theme):
    context = browser.new_context(viewport={"width": width, "height": 2200})
    page = context.new_page()
    errors, asked = [], []
    page.on("pageerror", lambda error: errors.append(f"{error.message}\n{error.stack}"))
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(f"{address}?theme={theme}", timeout=60_000)
        for name in PANELS:
            page.locator(f".dgkit-{name}[data-ready]").wait_for(timeout=60_000, state="attached")
        dashboard, plot = page.locator(".dgkit-dashboard"), page.locator(".dgkit-latency")
        dashboard.get_by_text("The steps, in Python").click()
        steps = dashboard.get_by_role("list", name="Steps").get_by_role("listitem")
        expect(steps.last).to_have_class("dgd-done")
        expect(page.locator(".dgkit-hexview .dg-hex-bytes .dg-selected")).to_have_count(16)
        expect(plot).to_have_attribute("data-running", "true")
        expect(plot.locator("canvas").first).to_be_visible()
        card = page.locator(".dgkit-saved")
        expect(card).to_have_count(1)
        expect(card).to_be_hidden()
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"voila-{width}-{theme}.png", animations="disabled")
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1]
    finally:
        context.close()
    assert not errors, "\n".join(errors)
    own = (address, address.replace("http", "ws"), "blob:", "data:", ICONS)
    assert [url for url in asked if not url.startswith(own)] == []
