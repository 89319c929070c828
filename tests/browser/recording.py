# SPDX-License-Identifier: Apache-2.0
"""Record the dashboard for the demo page of the site: .github/site/recording.json.gz.

Run it by hand on an idle machine, after a change of how panels look or what they say to each other:
PYTHONPATH=tests .cache/venv/bin/python tests/browser/recording.py

It keeps each message between the kernel and the page, with its time. The page's player answers what
the panels ask for with what they got here, so the window has to be of the size that it has there.
"""

import gzip
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import expect
from support.jupyter.lab import lab
from support.jupyter.page import WAIT_MS, LabPage, chromium

RECORDING = Path(__file__).parents[2] / ".github/site/recording.json.gz"
WIDTH = 1200
LIVE_MS = 10_000
IMAGE_S = 0.7
Message = list[Any]  # seconds, panel, "to" or "from" the kernel, content, buffers in base64
KEEP = """
import base64, json, time
from pathlib import Path
from dgkit.widgets.base.panel import Panel
messages, began = [], time.monotonic()
def keep(way, panel, content, buffers):
    data = [base64.b64encode(each).decode() for each in buffers or ()]
    messages.append([round(time.monotonic() - began, 3), panel.model_id, way, content, data])
received, send = Panel._received, Panel.send
def _received(self, widget, content, buffers):
    keep("to", self, content, buffers)
    received(self, widget, content, buffers)
def _send(self, content, buffers=None):
    keep("from", self, content, buffers)
    send(self, content, buffers)
Panel._received, Panel.send = _received, _send
"""
SAVE = "Path({!r}).write_text(json.dumps({{'dashboard': d.model_id, 'messages': messages}}))"


def main() -> None:
    """Open the dashboard, press "Show me", watch the latency, and write what was said."""
    expect.set_options(timeout=WAIT_MS)
    with (
        tempfile.TemporaryDirectory() as folder,
        lab(Path(folder)) as server,
        chromium() as browser,
    ):
        page = LabPage(server, browser).go()
        page.page.set_viewport_size({"width": WIDTH + 180, "height": 1400})
        book = page.notebook("recording")
        book.cell(KEEP)
        book.cell("import dgkit\nd = dgkit.dashboard()\nd")
        board = book.ready("dashboard")
        page.page.wait_for_timeout(2000)
        board.get_by_role("button", name="Show me").click()
        page.page.wait_for_timeout(LIVE_MS)
        width = board.evaluate("it => it.getBoundingClientRect().width")
        kept = Path(folder) / "kept.json"
        book.cell(SAVE.format(str(kept)))
        said = {"width": width, **json.loads(kept.read_text(encoding="utf-8"))}
        page.close()
    said["messages"] = list(_fewer_images(_without_bokeh(said["messages"])))
    text = json.dumps(said, separators=(",", ":"))
    RECORDING.write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{RECORDING}: {len(said['messages'])} messages, {RECORDING.stat().st_size:,} bytes")


def _without_bokeh(messages: list[Message]) -> list[Message]:
    """Drop the scripts of BokehJS, which the site has as files."""
    asked = {m[3]["id"] for m in messages if m[2] == "to" and m[3]["call"] == "bokehjs"}
    return [[*m[:4], []] if m[3].get("id") in asked else m for m in messages]


def _fewer_images(messages: list[Message]) -> Iterator[Message]:
    """Drop the pictures of a region that another one follows within a second: most of the bytes."""
    newest = max((m[0] for m in messages if m[3].get("kind") == "image"), default=0.0)
    last = -IMAGE_S
    for message in messages:
        if message[3].get("kind") == "image":
            if message[0] - last < IMAGE_S and message[0] < newest:
                continue
            last = message[0]
        yield message


if __name__ == "__main__":
    main()
