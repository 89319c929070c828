# SPDX-License-Identifier: Apache-2.0
"""The dashboard in Notebook 7: drawn, live, and not in a box with a scroll bar."""

import nbformat
import pytest
from playwright.sync_api import expect
from support.jupyter.lab import has_front_end, lab
from support.jupyter.notebooks import notebook
from support.jupyter.page import PANELS, QUIET, NotebookPage

SCROLLED = "(cell) => cell.classList.contains('jp-mod-outputsScrolled')"


@pytest.fixture
def book(tmp_path, browser):
    if not has_front_end("notebook"):
        pytest.skip("Notebook 7 is not installed (pip install notebook)")
    with lab(tmp_path, front_ends=True) as server:
        yield from shown(server, browser)


def shown(server, browser):
    """The dashboard's notebook in a page, which is looked at in the end."""
    nbformat.write(notebook(QUIET), server.root / "seven.ipynb")
    page = NotebookPage(server, browser, viewport={"width": 1600, "height": 900})
    page.forgiven = "reading 'schema'"  # settings of the server's other extensions
    yield page.show("seven.ipynb")
    page.shot("notebook-7")
    page.close()
    page.check()


def test_the_dashboard_is_live_and_stays_whole(book):
    book.run(0)
    for name in PANELS:
        book.ready(name)
    dashboard, cell = book.panel("dashboard"), book.page.locator(".jp-CodeCell").first
    dashboard.get_by_role("button", name="Show me").click()
    dashboard.get_by_text("The steps, in Python").click()
    steps = dashboard.get_by_role("list", name="Steps").get_by_role("listitem")
    expect(steps.last).to_have_class("dgd-done")
    # with the next picture, it finds the output tall, and restricts it
    book.page.wait_for_function(SCROLLED, arg=cell.element_handle())
    height = dashboard.bounding_box()["height"]
    assert height > 900
    assert cell.locator(".jp-Cell-outputArea").bounding_box()["height"] >= height
