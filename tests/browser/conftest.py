"""One JupyterLab and one Chromium for all tests here. `board` is one notebook with a dashboard that
tests of single panels share; a test that breaks something has a page and a kernel of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect
from support.jupyter.lab import Lab, lab
from support.jupyter.page import WAIT_MS, LabPage, Notebook, chromium

expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def new_page(
    server: Lab, browser: Browser, request: pytest.FixtureRequest
) -> Iterator[Callable[[], LabPage]]:
    """Opens tabs. At the end: no exception in any of them, and no kernel is left."""
    pages: list[LabPage] = []

    def make() -> LabPage:
        pages.append(LabPage(server, browser))
        return pages[-1].go()

    yield make
    for page in pages:
        page.shot(request.node.name)
        page.close()
    for page in pages:
        page.check()


@pytest.fixture
def lab_page(new_page: Callable[[], LabPage]) -> LabPage:
    return new_page()


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
def board(shared_board: Notebook, request: pytest.FixtureRequest) -> Iterator[Notebook]:
    """The notebook that tests share; `d` is the dashboard. Its regions are freed after each."""
    yield shared_board
    shared_board.lab_page.shot(request.node.name)
    dialogs = shared_board.lab_page.dismiss_dialogs()
    shared_board.value("[region.close() for region in d.session.regions] and None")
    shared_board.lab_page.check()
    assert not dialogs, "a dialog of JupyterLab was left open"
