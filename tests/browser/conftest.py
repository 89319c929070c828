# SPDX-License-Identifier: Apache-2.0
"""One JupyterLab and one Chromium for all tests of a stage. `board` is one notebook with a
dashboard that tests of single panels share; a test that breaks something has a notebook and a
kernel of its own, in a tab that is cleared after each test, or in a new one where it changes the
page itself."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator

import pytest
from playwright.sync_api import Browser, Error, expect
from support.jupyter.lab import Lab, lab
from support.jupyter.page import WAIT_MS, LabPage, Notebook, chromium

expect.set_options(timeout=WAIT_MS)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Take a picture of each page of a test that fails."""
    report = yield
    if report.when == "call" and report.failed:
        for value in item.funcargs.values():
            if isinstance(value, (LabPage, Notebook)):
                page = value if isinstance(value, LabPage) else value.lab_page
                with contextlib.suppress(Error):  # the page may be what failed
                    page.shot(item.name)
    return report


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Mark the tests for the stage browser of tests/run; the stage pages runs the others."""
    for item in items:
        if "shared_board" in item.fixturenames:
            item.add_marker("shared_board")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="session")
def idle_tabs(server: Lab, browser: Browser) -> Iterator[list[LabPage]]:
    """The tab that tests have one after the other: to load JupyterLab takes seconds."""
    tabs: list[LabPage] = []
    yield tabs
    for tab in tabs:
        tab.close()


@pytest.fixture
def lab_page(
    server: Lab, browser: Browser, idle_tabs: list[LabPage], request: pytest.FixtureRequest
) -> Iterator[LabPage]:
    """A tab with nothing open, as if new; a failed test leaves none to the next."""
    tab = idle_tabs.pop() if idle_tabs else LabPage(server, browser).go()
    failed = request.session.testsfailed
    yield tab
    if request.session.testsfailed > failed:
        tab.close()
    else:
        tab.clear()
        idle_tabs.append(tab)
    tab.check()


@pytest.fixture
def new_page(server: Lab, browser: Browser) -> Iterator[LabPage]:
    """A tab that no other test gets."""
    tab = LabPage(server, browser).go()
    yield tab
    tab.close()
    tab.check()


@pytest.fixture
def notebook(lab_page: LabPage, request: pytest.FixtureRequest) -> Notebook:
    """An empty notebook, named after the test."""
    return lab_page.notebook(request.node.name)


@pytest.fixture
def own_board(notebook: Notebook) -> Notebook:
    """A notebook of its own with a dashboard, to be broken."""
    return notebook.dashboard()


@pytest.fixture(scope="session")
def shared_board(server: Lab, browser: Browser) -> Iterator[Notebook]:
    page = LabPage(server, browser).go()
    page.page.set_viewport_size({"width": 1600, "height": 2600})
    yield page.notebook("shared").dashboard()
    page.close()


@pytest.fixture
def board(shared_board: Notebook) -> Iterator[Notebook]:
    """The notebook that tests share; `d` is the dashboard. Its regions are freed after each."""
    yield shared_board
    dialogs = shared_board.lab_page.dismiss_dialogs()
    shared_board.value("[region.close() for region in d.session.regions] and None")
    shared_board.lab_page.check()
    assert not dialogs, "a dialog of JupyterLab was left open"
