# SPDX-License-Identifier: Apache-2.0
"""Take pictures of the way of a newcomer: README, welcome page, tutorials 01 to 07, dashboard.

In JupyterLab, Notebook 7 and Voila, in both themes, 1600 and 1000 px wide. Run it by hand after a
change of how panels or tutorials look, and look at each picture, in .cache/browser/walk:

    PYTHONPATH=tests .cache/venv/bin/python tests/browser/walk.py
    PYTHONPATH=tests .cache/venv/bin/python tests/browser/walk.py lab 01_first_dma dashboard

It also prints what failed, what is cut, and what has a horizontal bar.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image
from playwright.sync_api import Browser, Page
from support.jupyter.lab import Lab, has_front_end, lab
from support.jupyter.notebooks import TUTORIALS, notebook
from support.jupyter.page import PANELS, SHOTS, LabPage, Notebook, NotebookPage, chromium
from support.jupyter.voila import voila
from support.processes.waiting import until

ROOT = Path(__file__).parents[2]
WELCOME = ROOT / "dgkit/jupyter/labextensions/dgkit/static/welcome.ipynb"
WALK = SHOTS / "walk"
WIDTHS = (1600, 1000)
SLICE_PX = 1400  # a picture is at most so high
TUTORIAL_NAMES = sorted(path.stem for path in TUTORIALS.glob("0[1-7]_*.ipynb"))
STOPS = ("readme", "welcome", *TUTORIAL_NAMES, "dashboard")
IN_VOILA = ("01_first_dma", "03_latency_and_bandwidth", "07_doctor", "dashboard")

RUN_ALL = """(path) => {
  app.shell.activateById(find(path).id);
  app.commands.execute("runmenu:run-all");
}"""
CODE = """const cells = [...find(path).content.model.sharedModel.cells]
  .filter((one) => one.cell_type === "code");
const errors = cells.flatMap((one) => one.getOutputs())
  .filter((out) => out.output_type === "error").map((out) => `${out.ename}: ${out.evalue}`);
"""
ENDED = (
    f"(path) => {{ {CODE}"
    "return errors.length || cells.every((one) => !one.getSource().trim() || one.execution_count)}"
)
ERRORS = f"(path) => {{ {CODE} return errors; }}"
HEIGHT = """() => {
  const notebook = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-WindowedPanel-outer";
  const inner = document.querySelector(`${notebook}, #rendered_cells`); // the latter: Voila
  return Math.ceil(inner.scrollHeight + innerHeight - inner.clientHeight);
}"""
CUT = """() => [".dgkit", ".jp-OutputArea-output"]
  .flatMap((part) => [...document.querySelectorAll(`${part}, ${part} *`)])
  .filter((one) => one.clientWidth && one.scrollWidth > one.clientWidth + 1
    && (one.matches(".dgkit") || ["auto", "scroll"].includes(getComputedStyle(one).overflowX)))
  .map((one) => `${one.tagName}.${one.className}: ${one.scrollWidth} of ${one.clientWidth} px`)"""
LOADING = "() => !document.querySelector('#loading, .voila-spinner')"


def write(folder: Path, name: str) -> str:
    """Write the notebook of a stop and what it reads; its name."""
    shutil.copytree(TUTORIALS / "machines", folder / "machines", dirs_exist_ok=True)
    path = f"{name}.ipynb"
    nbformat.write(book_of(name), folder / path)
    return path


def book_of(name: str) -> Any:
    """Return the notebook of a stop."""
    if name == "welcome":
        return nbformat.read(WELCOME, 4)
    if name == "readme":
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        found = re.search(r"## The first ten lines\n\n```python\n(.*?)```", text, re.DOTALL)
        assert found, "README.md has no first ten lines"
        return notebook(found[1])
    if name == "dashboard":
        return notebook("import dgkit\n\nd = dgkit.dashboard()\nd")
    return nbformat.read(TUTORIALS / f"{name}.ipynb", 4)


def show_me(page: Page) -> None:
    """Do what a newcomer does with a dashboard: press its button, and watch the plot."""
    for name in PANELS:
        page.locator(f".dgkit-{name}[data-ready]").first.wait_for(state="attached", timeout=60_000)
    dashboard = page.locator(".dgkit-dashboard").first
    dashboard.get_by_role("button", name="Show me").click()
    dashboard.locator(".dgd-sample li:last-child.dgd-done").wait_for(
        state="attached", timeout=60_000
    )
    page.mouse.move(0, 0)
    page.wait_for_timeout(5000)  # of samples


def keep(page: Page, name: str, width: int) -> None:
    """Write the pictures of the whole page, and print what is cut."""
    page.add_style_tag(content=".jp-mod-scrollPastEnd::after { display: none !important; }")
    for _ in range(2):  # plots get another height with another width
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(700)
        page.set_viewport_size({"width": width, "height": min(16_000, page.evaluate(HEIGHT))})
        page.wait_for_timeout(1000)
    for line in sorted(set(page.evaluate(CUT))):
        print(f"{name}: {line}")
    image = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    WALK.mkdir(parents=True, exist_ok=True)
    for number, top in enumerate(range(0, image.height, SLICE_PX), 1):
        part = image.crop((0, top, image.width, min(image.height, top + SLICE_PX)))
        part.save(WALK / f"{name}-{number}.png")
    print(f"{name}: {image.width} x {image.height}", flush=True)


def in_jupyter(front: str, server: Lab, browser: Browser, names: list[str]) -> None:
    """Run each notebook once, and take its pictures."""
    for name in names:
        path = write(server.root, name)
        page = (NotebookPage if front == "notebook" else LabPage)(server, browser)
        try:
            if isinstance(page, NotebookPage):
                book = page.show(path)
            else:
                book = Notebook(page.go(), path).open()
            page.page.set_viewport_size({"width": WIDTHS[0], "height": 4000})
            _visit(page, book, f"{front}-{name}")
        finally:
            page.close()
        for error in page.errors:
            print(f"{front}-{name}: {error}")


def _visit(page: LabPage, book: Notebook, name: str) -> None:
    """Run all cells, and take the pictures of one notebook."""
    page.ask(RUN_ALL, book.path)
    until(lambda: page.ask(ENDED, book.path), "all cells have run", 300)
    for error in page.ask(ERRORS, book.path):
        print(f"{name}: {error}")
    if name.endswith("dashboard"):
        page.theme(False)
        keep(page.page, f"{name}-empty", WIDTHS[0])
        show_me(page.page)
    for theme in ("light", "dark"):
        page.theme(theme == "dark")
        book.quiet()  # the plots take the theme by messages of the kernel
        for width in WIDTHS:
            keep(page.page, f"{name}-{width}-{theme}", width)


def in_voila(browser: Browser, names: list[str]) -> None:
    """Visit each notebook as a page of Voila once a theme."""
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(TUTORIALS / "machines", Path(folder) / "machines")
            _voila_page(browser, Path(folder), name)


def _voila_page(browser: Browser, folder: Path, name: str) -> None:
    """Visit one notebook."""
    with voila(folder, book_of(name)) as address:
        for theme in ("light", "dark"):
            with _visitor(browser) as page:
                page.goto(f"{address}?theme={theme}", timeout=300_000)
                page.wait_for_function(LOADING)
                if name == "dashboard":
                    show_me(page)
                page.wait_for_timeout(3000)
                for width in WIDTHS:
                    keep(page, f"voila-{name}-{width}-{theme}", width)


@contextlib.contextmanager
def _visitor(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": WIDTHS[0], "height": 3000})
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.on("pageerror", lambda error: print(f"voila: {error.message}"))
    try:
        yield page
    finally:
        context.close()


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    fronts = ("lab", "notebook", "voila")
    parser.add_argument("what", nargs="*", metavar="WHAT", help=", ".join((*fronts, *STOPS)))
    what = parser.parse_args().what
    if unknown := set(what) - {*fronts, *STOPS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    chosen = [front for front in fronts if front in what] or fronts
    names = [name for name in STOPS if name in what] or list(STOPS)
    for front in set(chosen) - {"lab"}:
        if not has_front_end(front):
            sys.exit(f"{front} is not installed (pip install {front})")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        with lab(Path(folder), front_ends=True) as server:
            for front in chosen:
                if front != "voila":
                    in_jupyter(front, server, browser, names)
        if "voila" in chosen:
            in_voila(browser, [name for name in names if name in IN_VOILA])


if __name__ == "__main__":
    main()
