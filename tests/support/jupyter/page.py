# SPDX-License-Identifier: Apache-2.0
"""A page of JupyterLab in Chromium, as a person has it: notebooks, cells, themes, the keyboard."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import (
    Browser,
    Locator,
    Page,
    Playwright,
    ViewportSize,
    expect,
    sync_playwright,
)
from support.jupyter.lab import Lab
from support.jupyter.notebooks import notebook
from support.processes import waiting

SHOTS = Path(__file__).parents[3] / ".cache/browser"
WAIT_MS = 20_000
VIEWPORT: ViewportSize = {"width": 1600, "height": 1000}

DASHBOARD = "import dgkit, numpy as np\nd = dgkit.dashboard()\nd"
QUIET = "import dgkit, numpy as np\nd = dgkit.dashboard()\nd.stop()\nd"  # does nothing by itself
PANELS = ("dashboard", "allocate", "transfer", "hexview", "latency")

# Function by which the scripts below find their notebook.
FIND = """
const app = window.jupyterapp;
const find = (path) => [...app.shell.widgets("main")].find((one) => one.context?.path === path);
"""
OPEN = """async (path) => {
  await app.commands.execute("docmanager:open", {path, factory: "Notebook"});
  const panel = find(path);
  await panel.revealed;
  await panel.context.ready;
  await panel.sessionContext.ready;
  app.shell.activateById(panel.id);
}"""
ADD = """([path, source]) => {
  const panel = find(path), cells = panel.content.model.sharedModel;
  cells.insertCell(cells.cells.length, {cell_type: "code", source});
  return cells.cells.length - 1;
}"""
RUN = """async ([path, index, wait]) => {
  const panel = find(path);
  app.shell.activateById(panel.id);
  panel.content.activeCellIndex = index;
  panel.content.deselectAll();
  const done = app.commands.execute("notebook:run-cell");
  if (wait) await done;
}"""
OUTPUTS = "([path, index]) => find(path).content.widgets[index].model.outputs?.toJSON() ?? []"
EXECUTE = """async ([path, code, expressions]) => {
  const kernel = find(path).sessionContext.session.kernel;
  const asked = {code, silent: false, store_history: false, user_expressions: expressions};
  return (await kernel.requestExecute(asked).done).content;
}"""
BUSY = """(path) => find(path).content.widgets.some(
  (cell) => cell.inputArea?.promptNode?.textContent.includes("*"))"""
# In this order: the toolbar of a widget that is closed as soon as it is shown throws an exception.
CLEAR = """() => {
  const widgets = [...app.shell.widgets("main")];
  for (const widget of widgets.sort((one, other) => one.isVisible - other.isVisible))
    widget.dispose();
  app.shell.collapseLeft();
  return document.body.dataset.jpThemeLight === "false";
}"""
COMMAND = """async ([path, name, args]) => {
  app.shell.activateById(find(path).id);
  await app.commands.execute(name, args);
}"""

# Exceptions of JupyterLab about requests to the kernel of a notebook that is closed, and of
# anywidget about a script that took two seconds on a busy machine: tests/browser/test_slow_page.py.
FORGIVEN = re.compile(r"Canceled future for|Failed to initialize model(?s:.*)at AbortSignal")


class Lost(AssertionError):
    """Exception that a cell raised."""


class Notebook:
    """One notebook on a page."""

    def __init__(self, lab_page: LabPage, path: str) -> None:
        self.lab_page, self.page, self.path = lab_page, lab_page.page, path

    def _ask(self, script: str, argument: Any) -> Any:
        return self.lab_page.ask(script, argument)

    def open(self) -> Notebook:
        """Show the notebook, and wait until its kernel is ready."""
        self.lab_page.opened.add(self.path)
        self._ask(OPEN, self.path)
        return self

    def add(self, source: str) -> int:
        """Add a cell at the end, and return its number."""
        return int(self._ask(ADD, [self.path, source]))

    def run(self, index: int, wait: bool = True) -> list[dict[str, Any]]:
        """Run a cell and return its outputs; raise Lost if the cell raised."""
        self._ask(RUN, [self.path, index, wait])
        outputs: list[dict[str, Any]] = self._ask(OUTPUTS, [self.path, index]) if wait else []
        for output in outputs:
            if output["output_type"] == "error":
                raise Lost(re.sub(r"\x1b\[[\d;]*m", "", "\n".join(output["traceback"])))
        return outputs

    def cell(self, source: str, wait: bool = True) -> list[dict[str, Any]]:
        """Run code in a new cell at the end."""
        return self.run(self.add(source), wait)

    def dashboard(self) -> Notebook:
        """Run a cell that opens the dashboard `d`, still, and wait until its panels are drawn."""
        self.cell(QUIET)
        for name in PANELS:
            self.ready(name)
        return self

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the kernel, by its repr; raise Lost if it raised."""
        answer = self._executed("", {"it": expression})["user_expressions"]["it"]
        if answer["status"] != "ok":
            raise Lost(f"{expression}: {answer['ename']}: {answer['evalue']}")
        return ast.literal_eval(answer["data"]["text/plain"])

    def execute(self, source: str) -> None:
        """Run code in the kernel without a cell, which costs half a second of CPU to add."""
        self._executed(source, {})

    def _executed(self, source: str, expressions: dict[str, str]) -> dict[str, Any]:
        reply: dict[str, Any] = self._ask(EXECUTE, [self.path, source, expressions])
        if reply["status"] != "ok":
            raise Lost(f"{source}: {reply['ename']}: {reply['evalue']}")
        return reply

    def quiet(self) -> None:
        """Wait until the kernel has answered the page's requests and the requests that followed."""
        for _ in range(2):
            self.value("None")

    def command(self, name: str, **args: Any) -> None:
        """Run a JupyterLab command with this notebook in front."""
        self._ask(COMMAND, [self.path, name, args])

    def busy(self) -> bool:
        """Return whether a cell runs: its number is a star. (The kernel's status may say idle.)"""
        return bool(self._ask(BUSY, self.path))

    def interrupt(self) -> None:
        """Interrupt the running cell, as Ctrl-C does, and wait for its end."""
        self._ask("(path) => find(path).sessionContext.session.kernel.interrupt()", self.path)
        waiting.until(lambda: not self.busy(), "the cell has ended", timeout=20)

    def restart_kernel(self) -> None:
        """Start a new kernel process for the same notebook."""
        self._ask("(path) => find(path).sessionContext.restartKernel()", self.path)
        self._ask("(path) => find(path).sessionContext.session.kernel.info", self.path)

    def save(self) -> Path:
        """Save the file, and return its path."""
        self._ask("(path) => find(path).context.save()", self.path)
        return self.lab_page.lab.root / self.path

    def output(self, index: int = -1) -> Locator:
        """Return the output of a cell, counted among the cells with output."""
        shown = self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell-outputArea")
        return shown.nth(index)

    def panel(self, name: str, nth: int = 0) -> Locator:
        """Return the nth panel of that name that is drawn in this page."""
        found = self.page.locator(f".jp-NotebookPanel:not(.lm-mod-hidden) .dgkit-{name}")
        return found.nth(nth)

    def ready(self, name: str, nth: int = 0, timeout_ms: float = WAIT_MS) -> Locator:
        """Return the same as panel(), once its view has its data."""
        panel = self.panel(name, nth)
        panel.and_(self.page.locator("[data-ready]")).wait_for(state="attached", timeout=timeout_ms)
        for fold in panel.locator("xpath=ancestor::details[not(@open)]").all():
            fold.evaluate("(fold) => { fold.open = true; }")
        panel.and_(self.page.locator("[data-ready]")).wait_for(timeout=timeout_ms)
        if name == "hexview":  # tests use the controls of its second row, too
            more = panel.get_by_role("button", name="More", exact=True)
            if more.get_attribute("aria-expanded") == "false":
                more.click()
        return panel


class LabPage:
    """A tab with JupyterLab.

    `errors` are exceptions of the page that nobody caught; those of scripts below the address
    `forgiven` are no failure.
    """

    def __init__(self, lab: Lab, browser: Browser, **options: Any) -> None:
        self.lab = lab
        self._viewport = options.pop("viewport", VIEWPORT)
        self.context = browser.new_context(
            viewport=self._viewport, accept_downloads=True, **options
        )
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.errors: list[str] = []
        self.forgiven = ""
        self.console: list[str] = []
        self.asked: list[str] = []
        self.opened: set[str] = set()
        self._reloaded = False
        self.page = self._page()

    def _page(self) -> Page:
        page = self.context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.errors.append(f"{error.message}\n{error.stack}"))
        page.on("console", lambda said: said.type == "error" and self.console.append(said.text))
        page.on("request", lambda request: self.asked.append(request.url))
        return page

    def strangers(self) -> list[str]:
        """Return the page's requests to hosts other than its own server."""
        own = (self.lab.url, self.lab.url.replace("http", "ws"), "blob:", "data:")
        return [url for url in self.asked if not url.startswith(own)]

    def go(self) -> LabPage:
        """Load JupyterLab with nothing open."""
        self.page.goto(f"{self.lab.url}lab?token={self.lab.token}&reset")
        self._loaded()
        self._reloaded = False
        return self

    def _loaded(self) -> None:
        self.page.wait_for_function("() => window.jupyterapp", timeout=60_000)
        self.ask("async () => { await app.restored; app.shell.collapseLeft(); }")
        self._splash_gone()

    def _splash_gone(self) -> None:
        """A second one while the first fades, and JupyterLab fails to remove it twice."""
        self.page.wait_for_selector("#jupyterlab-splash", state="detached")

    def reload(self) -> None:
        """Reload the page, as the browser's button does."""
        self._reloaded = True  # opens the notebook of its address at some later time
        self.page.reload()
        self._loaded()

    def ask(self, script: str, argument: Any = None) -> Any:
        """Run a script with `app` and `find(path)`; return its result, resolved within a minute."""
        late = "new Promise((_, no) => setTimeout(() => no(new Error('not in a minute')), 60000))"
        body = f"{FIND} return Promise.race([({script})(argument), {late}]);"
        return self.page.evaluate(f"(argument) => {{ {body} }}", argument)

    def notebook(self, name: str, *sources: str) -> Notebook:
        """Open a new notebook with these cells, and wait until its kernel is ready."""
        path = f"{name}.ipynb"
        nbformat.write(notebook(*sources), self.lab.root / path)
        return Notebook(self, path).open()

    def theme(self, dark: bool) -> None:
        """Switch JupyterLab to its dark or light theme, unless it has it: that takes seconds."""
        theme = "JupyterLab Dark" if dark else "JupyterLab Light"
        light = "false" if dark else "true"
        if self.ask("() => document.body.dataset.jpThemeLight") == light:
            return
        self.ask("(theme) => app.commands.execute('apputils:change-theme', {theme})", theme)
        body = f"body[data-jp-theme-light='{light}']"
        self.page.wait_for_selector(body, state="attached", timeout=60_000)
        self._splash_gone()

    def shot(self, name: str, of: Locator | None = None) -> Path:
        """Save a screenshot of the page, or of a part of it."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / (re.sub(r"[^\w.-]+", "-", name) + ".png")
        (of or self.page).screenshot(path=path, animations="disabled")
        return path

    def dismiss_dialogs(self) -> list[str]:
        """What JupyterLab's modal dialogs say; closes them, since nothing below can be clicked."""
        dialogs = self.page.locator("dialog.jp-Dialog")
        said = dialogs.all_inner_texts()
        for _ in said:
            self.page.keyboard.press("Escape")
        expect(dialogs).to_have_count(0)
        return said

    def check(self) -> None:
        """Raise AssertionError after an uncaught exception or an outside request since the last."""
        errors = [error for error in self.errors if not FORGIVEN.search(error)]
        self.errors.clear()
        if self.forgiven:
            errors = [error for error in errors if self.forgiven not in error]
        assert not errors, "\n".join(errors)
        assert not self.strangers(), "the page asked outside"
        self.asked.clear()

    def clear(self) -> None:
        """Close all documents without saving them, end their kernels, be as a new tab."""
        dialogs = self.dismiss_dialogs()
        if self._reloaded:
            self.go()
        if self.ask(CLEAR):
            self.theme(dark=False)
        self.page.set_viewport_size(self._viewport)
        self.lab.end_kernels(self.opened)
        self.opened.clear()
        self.forgiven = ""
        assert not dialogs, f"JupyterLab asked: {dialogs}"

    def close(self) -> None:
        """Close the tab, and end the kernels of its notebooks."""
        self.context.close()
        self.lab.end_kernels(self.opened)


class NotebookPage(LabPage):
    """A tab with Notebook 7, which has one notebook."""

    def show(self, path: str) -> Notebook:
        """Open a notebook of the server; its kernel is ready."""
        self.page.goto(f"{self.lab.url}notebooks/{path}?token={self.lab.token}")
        self.page.wait_for_function("() => window.jupyterapp", timeout=60_000)
        self.ask("async () => { await app.restored; }")
        self.opened.add(path)
        waiting.until(lambda: self.ask("(path) => !!find(path)", path), "it is there", 60)
        self.ask("async (path) => { await find(path).sessionContext.ready; }", path)
        return Notebook(self, path)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium, without a window."""
    program = shutil.which("chromium")
    assert program, "there is no program chromium (apt install chromium)"
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    started: Playwright
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, headless=True, args=options)
        try:
            yield browser
        finally:
            browser.close()
