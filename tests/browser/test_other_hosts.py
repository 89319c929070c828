# SPDX-License-Identifier: Apache-2.0
"""The dashboard in hosts of anywidget that are not Jupyter."""

import base64
import re
from itertools import count

import pytest
from playwright.sync_api import expect
from support.jupyter.app import served
from support.jupyter.lab import has_front_end
from support.jupyter.page import PANELS, SHOTS

import dgkit


@pytest.mark.parametrize("host", ["marimo", "panel"])
def test_the_dashboard_is_live(host, tmp_path, browser):
    if not has_front_end(host):
        pytest.skip(f"{host} is not installed (pip install marimo panel ipywidgets_bokeh)")
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    asked = []
    page.route(  # a machine without Internet
        re.compile("^https:"), lambda route: (asked.append(route.request), route.abort())
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
    # Panel's page asks for icons, without which ipywidgets' own buttons have none.
    assert [one.url for one in asked if one.resource_type != "stylesheet"] == []


# The policy of VS Code's notebooks, without its own host: neither a foreign host nor blob:.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data:"
)
# Of anywidget's interface what each host has; messages go through functions of the test.
HOST = """
const bytes = (text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const models = new Map();
class Model {
  #on = [];
  constructor(id) { this.id = id; }
  on(event, call) { this.#on.push([event, call]); }
  off(event, call) {
    this.#on = this.#on.filter(([one, other]) => one !== event || other !== call);
  }
  get() { return null; }
  send(content, _callbacks, _buffers) { toKernel(this.id, content); }
  receive(content, buffers) {
    for (const [event, call] of this.#on) if (event === "msg:custom") call(content, buffers);
  }
  widget_manager = { get_model: async (id) => models.get(id) };
}
for (const id of await modelIds()) models.set(id, new Model(id));
const board = models.values().next().value;
const { default: panel } = await import("/panel.js");
await panel.render({ model: board, el: document.querySelector("main") });
for (;;) {
  for (const [id, content, buffers] of await fromKernel())
    models.get(id).receive(content, buffers.map(bytes));
  await new Promise((resolve) => setTimeout(resolve, 20));
}
"""


def test_panels_need_anywidgets_interface_alone_under_the_policy_of_vs_code(browser):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    violations, asked, sent = [], count(), []
    with dgkit.connect() as session:
        board = dgkit.dashboard(session)
        panels = {panel.model_id: panel for panel in (board, *board.panels)}
        for panel in panels.values():
            panel.send = lambda content, buffers=None, panel=panel: sent.append(
                (panel.model_id, content, [base64.b64encode(one).decode() for one in buffers or []])
            )

        def answer(route):
            next(asked)
            if route.request.url.endswith("/panel.js"):
                route.fulfill(body=board._esm, content_type="text/javascript")
                return
            style, script = f"<style>{board._css}</style>", f"<script type=module>{HOST}</script>"
            route.fulfill(
                body=f"<!doctype html><meta charset=utf-8>{style}<main></main>{script}",
                headers={"content-type": "text/html", "content-security-policy": POLICY},
            )

        def take():
            taken, sent[:] = sent.copy(), []
            return taken

        page.expose_function("modelIds", lambda: list(panels))
        page.expose_function(
            "toKernel", lambda id, content: panels[id]._received(None, content, [])
        )
        page.expose_function("fromKernel", take)
        page.route("**/*", answer)
        page.on("pageerror", lambda error: violations.append(error.message))
        page.goto("https://notebook.invalid/")
        for name in PANELS:
            page.locator(f".dgkit-{name}[data-ready]").wait_for(state="attached")
        page.get_by_role("button", name="Show me").click()
        expect(page.locator(".dgd-said")).to_contain_text("at the median", timeout=60_000)
        expect(page.locator(".dgkit-latency canvas").first).to_be_visible()
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / "vscode-policy.png", animations="disabled")
        assert not violations
        assert next(asked) == 2  # the page and the module
        board.close()
    page.close()
