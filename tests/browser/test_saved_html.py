# SPDX-License-Identifier: Apache-2.0
"""What a notebook keeps of hostile names and snapshots as HTML, in a page without scripts."""

from playwright.sync_api import Browser, Route
from support.doctor.hostile import planted_snapshot
from support.hostile import HOSTILE_TEXTS, MARK

import dgkit
from dgkit.doctor.collect.snapshot import RecordedReader
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine
from dgkit.doctor.runner import diagnose

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
RECORD = """window.violations = [];
document.addEventListener("securitypolicyviolation", (one) =>
  violations.push(one.violatedDirective));"""
LINKS = """[...document.querySelectorAll("[href], [src], [action], [srcdoc]")]
  .map((one) => one.getAttribute("href") ?? one.outerHTML)"""
HANDLERS = """[...document.querySelectorAll("*")].flatMap((one) => [...one.attributes])
  .filter(({ name }) => name.startsWith("on")).map(({ name }) => name)"""


def saved() -> list[str]:
    """Return the cards of sessions, regions, panels and machines with hostile texts."""
    cards = []
    with dgkit.connect() as session:
        for text in HOSTILE_TEXTS.values():
            name = "".join(one for one in text if one >= " " and not 127 <= ord(one) < 160)[:128]
            cards.append(session.empty(64, name=name)._repr_html_())
        dashboard = dgkit.dashboard(session)
        cards += [session._repr_html_(), dashboard.static_html()]
        dashboard.close()
    for text in HOSTILE_TEXTS.values():
        machine = Machine(RecordedReader(planted_snapshot("not-root", text)), text[:100])
        cards.append(diagnose([machine], goal=Goal.RDMA)._repr_html_())
    return cards


def test_saved_html_tries_no_script_and_asks_for_nothing(browser: Browser) -> None:
    body = f"<!doctype html><meta charset=utf-8><p>first</p>{''.join(saved())}<p id=last>last</p>"
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        head = {"content-type": "text/html", "content-security-policy": POLICY}
        route.fulfill(body=body if len(asked) == 1 else "", headers=head)

    page = browser.new_page()
    page.add_init_script(RECORD)
    page.route("**/*", answer)
    page.goto("http://saved.invalid/")
    page.locator("#last").wait_for()
    assert len(asked) == 1
    assert page.evaluate("violations") == []
    assert page.evaluate(f"Object.keys(window).filter((name) => name.startsWith('{MARK}'))") == []
    assert page.evaluate(HANDLERS) == []
    assert all(link.startswith("https://") for link in page.evaluate(LINKS))
    page.close()
