"""One JupyterLab and one Chromium for all tests here; pages and kernels are each test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lab_rig import Lab, lab
from page_rig import LabPage, Notebook, chromium
from playwright.sync_api import Browser


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
) -> Iterator[Callable[..., LabPage]]:
    """Opens tabs. At the end: no exception in any of them, and no kernel is left."""
    pages: list[LabPage] = []

    def make(**options: Any) -> LabPage:
        pages.append(LabPage(server, browser, **options))
        return pages[-1].go()

    yield make
    errors = [error for page in pages for error in page.errors]
    asked = [url for page in pages for url in page.strangers()]
    for page in pages:
        page.shot(f"last-{request.node.name}")
        page.close()
    server.end_sessions()
    assert not errors, "\n".join(errors)
    assert not asked, "the page asked outside"


@pytest.fixture
def lab_page(new_page: Callable[..., LabPage]) -> LabPage:
    return new_page()


@pytest.fixture
def notebook(lab_page: LabPage, request: pytest.FixtureRequest) -> Notebook:
    """An empty notebook, named after the test."""
    return lab_page.notebook(request.node.name)
