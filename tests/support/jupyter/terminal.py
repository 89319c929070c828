# SPDX-License-Identifier: Apache-2.0
"""A terminal of JupyterLab, typed into as a person does."""

from __future__ import annotations

from playwright.sync_api import Locator
from support.jupyter.page import LabPage
from support.processes.waiting import until

OPEN = """async (cwd) => {
  const opened = await app.commands.execute("terminal:create-new", {cwd});
  app.shell.activateById(opened.id);
  await opened.content.session.ready;
  return opened.id;
}"""
TEXT = """(id) => {
  const panel = [...app.shell.widgets("main")].find((one) => one.id === id);
  const buffer = panel.content._term?.buffer.active, lines = [];
  for (let row = 0; row < (buffer?.length ?? 0); row++) {
    const line = buffer.getLine(row), text = line.translateToString(true);
    if (line.isWrapped) lines[lines.length - 1] += text; else lines.push(text);
  }
  return lines.join("\\n").trimEnd();
}"""


class Terminal:
    """A terminal in a folder of the server, whose shell shows `name` as its prompt."""

    def __init__(self, lab_page: LabPage, folder: str, name: str, **variables: str) -> None:
        self._lab_page, self._prompt = lab_page, f"{name}$"
        self._id = lab_page.ask(OPEN, folder)
        until(self._text, "the shell shows its prompt")
        export = " ".join(f"{key}='{value}'" for key, value in variables.items())
        self._type(f"export {export} PS1='{name}''$ '; clear")
        until(lambda: self._text() == self._prompt, "the terminal is clear")

    def _text(self) -> str:
        return str(self._lab_page.ask(TEXT, self._id))

    def _type(self, line: str) -> None:
        self.screen.click(timeout=60_000)  # a busy machine's page did not answer for 20 s
        self._lab_page.page.keyboard.insert_text(line)
        self._lab_page.page.keyboard.press("Enter")

    @property
    def screen(self) -> Locator:
        """What is seen of it."""
        return self._lab_page.page.locator(f"[id='{self._id}'] .xterm-screen")

    def run(self, line: str, timeout: float = 90.0) -> str:
        """Type a command; return what it printed once the prompt is back."""
        before = self._text().count(self._prompt)
        self._lab_page.ask("(id) => app.shell.activateById(id)", self._id)
        self._type(line)

        def ended() -> str:
            text = self._text()
            back = text.endswith(f"\n{self._prompt}") and text.count(self._prompt) == before + 1
            return text if back else ""

        text = until(ended, f"{line} ends", timeout)
        return text.rsplit(f"{self._prompt} {line}\n", 1)[1].removesuffix(self._prompt)
