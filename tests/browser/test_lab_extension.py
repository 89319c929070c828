# SPDX-License-Identifier: Apache-2.0
"""dgkit's extension of JupyterLab: launcher cards, commands, sidebar, welcome notebook."""

import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect
from support.jupyter.notebooks import notebook
from support.jupyter.page import Notebook

import dgkit.jupyter

FOLDER = Path(dgkit.jupyter.__file__).parent / "labextensions/dgkit"
CARDS = ("Welcome to dgkit", "dgkit dashboard", "dgkit doctor")
WELCOME = "dgkit-welcome.ipynb"
TUTORIALS = ".jp-RenderedMarkdown li:has-text('The tutorials of dgkit')"


@pytest.fixture
def page(lab_page):
    (lab_page.lab.root / WELCOME).unlink(missing_ok=True)
    return lab_page.go().page


def test_its_package_names_this_version_and_a_file_that_is_there():
    package = json.loads((FOLDER / "package.json").read_text())
    assert package["version"] == dgkit.__version__
    assert (FOLDER / package["jupyterlab"]["_build"]["load"]).is_file()


def test_the_launcher_has_its_cards_and_the_page_no_error(page, lab_page):
    launcher = page.locator(".jp-Launcher")
    for card in CARDS:
        expect(launcher.get_by_text(card, exact=True)).to_be_visible()
    lab_page.shot("launcher")
    assert lab_page.errors == []
    assert lab_page.strangers() == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_sidebar_opens_a_dashboard_that_works(page, lab_page, dark):
    lab_page.theme(dark)
    page.locator(".jp-SideBar").get_by_title("dgkit", exact=True).click()
    sidebar = page.locator("#dgkit-sidebar")
    expect(sidebar.get_by_role("button")).to_have_count(len(CARDS))
    lab_page.shot(f"sidebar-{'dark' if dark else 'light'}")
    sidebar.get_by_role("button", name="dgkit dashboard").click()
    dashboard = page.locator(".dgkit-dashboard").first
    expect(dashboard.get_by_role("button", name="Start monitor")).to_be_visible(timeout=60_000)
    assert lab_page.errors == []


def test_the_welcome_notebook_is_made_once_and_what_is_written_there_stays(page, lab_page):
    page.locator(".jp-Launcher").get_by_text("Welcome to dgkit", exact=True).click()
    expect(page.get_by_role("heading", name="Welcome to dgkit")).to_be_visible()
    expect(page.locator(TUTORIALS)).to_contain_text("01, the first DMA (01_first_dma.ipynb)")
    expect(page.locator(TUTORIALS).get_by_role("link")).to_have_count(0)
    path = lab_page.lab.root / WELCOME
    book = nbformat.read(path, as_version=4)
    book.cells[0].source = "# Mine"
    nbformat.write(book, path)
    lab_page.go()
    lab_page.ask("async () => { await app.commands.execute('dgkit:welcome'); }")
    expect(page.get_by_role("heading", name="Mine")).to_be_visible()


def test_the_address_that_dgkit_lab_prints_opens_the_welcome_notebook(page, lab_page):
    page.goto(f"{lab_page.lab.url}lab?token={lab_page.lab.token}&dgkit=welcome")
    expect(page.get_by_role("heading", name="Welcome to dgkit")).to_be_visible(timeout=60_000)
    assert (lab_page.lab.root / WELCOME).is_file()
    book = Notebook(lab_page, WELCOME).open()
    lab_page.ask("async () => { await app.commands.execute('notebook:run-all-cells'); }")
    book.ready("dashboard")
    assert book.value("bytes(region.array[:18])") == b"hello from the DPU"
    expect(page.get_by_text("dgkit doctor:")).to_be_visible()
    lab_page.shot("welcome")


def test_its_links_lead_to_the_tutorials_that_are_there(page, lab_page):
    folder = lab_page.lab.root / "tutorials"
    folder.mkdir()
    nbformat.write(notebook("'a tutorial'"), folder / "01_first_dma.ipynb")
    lab_page.ask("async () => { await app.commands.execute('dgkit:welcome'); }")
    link = page.locator(TUTORIALS).get_by_role("link", name="01, the first DMA")
    expect(link).to_have_attribute("href", re.compile("/tutorials/01_first_dma.ipynb"))
    shutil.rmtree(folder)
