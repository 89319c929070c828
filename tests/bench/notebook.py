# SPDX-License-Identifier: Apache-2.0
"""Times the widgets in a real JupyterLab in a real Chromium, with what each is held against.

    python tests/bench/notebook.py                              about twenty minutes
    python tests/bench/notebook.py hex saved                    some of them
    python tests/bench/notebook.py --minutes 1                  a shorter look at the memory
    python tests/bench/notebook.py --json results/NAME.json     and stores them

Nothing here passes or fails a test: it reports. The machine should have nothing else to do.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import psutil
from playwright.sync_api import Browser
from rich.console import Console
from rig import Figure, save
from support.jupyter.lab import EXTENSION, Lab, lab
from support.jupyter.page import DASHBOARD, PANELS, LabPage, Notebook, chromium
from support.processes.waiting import until
from table import shown

GIB = 1 << 30
JUMPS = 300
IDLE_DASHBOARDS, IDLE_S = 8, 20
SAMPLES = "(d.panels.plot.state()['run'] or {}).get('samples', 0)"

# From the Enter key in the field "Go to offset" to the frame after the bytes are there.
JUMP = """([field, grid, row, bytes]) => new Promise((resolve) => {
  const there = () => [...grid.querySelectorAll(".dg-hex-row:not(.dg-hex-headrow)")].some((line) =>
    line.querySelector(".dg-hex-offset").textContent === row &&
    line.querySelector(".dg-hex-bytes").textContent.replace(/\\s/g, "").startsWith(bytes));
  const start = performance.now();
  const watch = new MutationObserver(() => {
    if (!there()) return;
    watch.disconnect();
    const shown = performance.now() - start;
    requestAnimationFrame(() => {
      const painted = new MessageChannel();
      painted.port1.onmessage = () => resolve([shown, performance.now() - start]);
      painted.port2.postMessage(0);
    });
  });
  watch.observe(grid, {subtree: true, childList: true, characterData: true});
  field.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true}));
})"""
# What the same change of text takes until it is painted, without a kernel: the browser's own frame.
FRAME = """(grid) => new Promise((resolve) => {
  const texts = [], walk = document.createTreeWalker(grid, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) texts.push([walk.currentNode, walk.currentNode.data]);
  const other = (digit) => (15 - parseInt(digit, 16)).toString(16);
  const start = performance.now();
  for (const [node, text] of texts) node.data = text.replace(/[0-9a-f]/g, other);
  requestAnimationFrame(() => {
    const painted = new MessageChannel();
    painted.port1.onmessage = () => {
      resolve(performance.now() - start);
      for (const [node, text] of texts) node.data = text; // as the view left it
    };
    painted.port2.postMessage(0);
  });
})"""
ROUND_TRIP = """async (path) => {
  const kernel = find(path).sessionContext.session.kernel, start = performance.now();
  await kernel.requestKernelInfo();
  return performance.now() - start;
}"""
FRAMES = """(ms) => new Promise((resolve) => {
  const start = performance.now();
  let frames = 0;
  const next = (now) => {
    frames++;
    if (now - start < ms) requestAnimationFrame(next);
    else resolve(1000 * frames / (now - start));
  };
  requestAnimationFrame(next);
})"""
# How often a figure is drawn anew, counted by frames of the page in which its canvas is cleared.
REDRAWS = """([figure, ms]) => new Promise((resolve) => {
  const prototype = CanvasRenderingContext2D.prototype, clear = prototype.clearRect;
  const start = performance.now();
  let drawn = false, frames = 0;
  const inside = (node) => node && (node === figure || inside(node.parentNode ?? node.host));
  prototype.clearRect = function (...area) {
    drawn ||= inside(this.canvas);
    return clear.apply(this, area);
  };
  const next = (now) => {
    frames += Boolean(drawn);
    drawn = false;
    if (now - start < ms) { requestAnimationFrame(next); return; }
    prototype.clearRect = clear;
    resolve(1000 * frames / (now - start));
  };
  requestAnimationFrame(next);
})"""
# From running a cell to the last of its panels.
USABLE = """([path, index, names]) => new Promise((resolve) => {
  const start = performance.now();
  const panel = find(path);
  panel.content.activeCellIndex = index;
  app.commands.execute("notebook:run-cell");
  const look = () => names.every((name) => document.querySelector(`.dgkit-${name}[data-ready]`))
    ? resolve(performance.now() - start) : requestAnimationFrame(look);
  look();
})"""


class Bench:
    """A JupyterLab, a browser, and how long the memory is looked at."""

    def __init__(self, server: Lab, browser: Browser, minutes: float) -> None:
        self.server, self.browser, self.minutes = server, browser, minutes
        self._pages = 0

    def page(self) -> LabPage:
        """A new tab."""
        return LabPage(self.server, self.browser).go()

    def notebook(self, page: LabPage) -> Notebook:
        """A new notebook in it, with nothing but an empty cell."""
        self._pages += 1
        return page.notebook(f"bench{self._pages}")


def _met(value: float, most: float) -> bool:
    return value <= most


def hex_jump(bench: Bench) -> Iterator[Figure]:
    """Random jumps on 1 GiB of counters."""
    page = bench.page()
    book = bench.notebook(page).dashboard()
    book.cell(
        f"large = d.session.empty({GIB}, name='large')\n"
        "counters = large.array.view('u8')\n"
        "for at in range(0, counters.size, 1 << 20):\n"
        "    counters[at : at + (1 << 20)] = np.arange(at, at + (1 << 20), dtype='u8')"
    )
    panel = book.panel("hexview")
    field = panel.get_by_label("Go to offset", exact=True).first
    grid = panel.get_by_role("grid")
    grid.wait_for()
    shown_ms, painted_ms, floors, frames = [], [], [], []
    for number in range(JUMPS + 10):
        offset = random.Random(number).randrange(GIB // 16) * 16
        field.fill(hex(offset))
        wanted = (f"{offset:08x}", (offset // 8).to_bytes(8, "little").hex())
        took = page.ask(JUMP, [field.element_handle(), grid.element_handle(), *wanted])
        if number >= 10:
            shown_ms.append(took[0])
            painted_ms.append(took[1])
            floors.append(page.ask(ROUND_TRIP, book.path))
            frames.append(page.ask(FRAME, grid.element_handle()))
    page.close()
    yield from _jump("bytes in the page", shown_ms, (15, 30), "kernel round trip, ms", floors)
    yield from _jump("painted", painted_ms, (30, None), "the browser's own frame, ms", frames)


def _jump(
    end: str,
    took_ms: list[float],
    reach_ms: tuple[int, int | None],
    against: str,
    floors: list[float],
) -> Iterator[Figure]:
    """The median and the p95 of what a jump takes to its end, with what is part of it."""
    values = statistics.median(took_ms), statistics.quantiles(took_ms, n=20)[18]
    parts = statistics.median(floors), statistics.quantiles(floors, n=20)[18]
    for name, value, part, most in zip(("median", "p95"), values, parts, reach_ms, strict=True):
        what = f"hex view, 1 GiB, random jump to {end}, {name}"
        reach, met = (f"{most} ms", _met(value, most)) if most else ("published", None)
        yield Figure(what, "ms", value, reach, met, against, part)


def plot(bench: Bench) -> Iterator[Figure]:
    """The plot with 1,000 points and 20 new ones a second: the page's frames, the kernel's CPU."""
    page = bench.page()
    book = bench.notebook(page).dashboard()
    panel = book.panel("latency")
    idle_fps = page.ask(FRAMES, 3000)
    panel.get_by_label("Time shown").select_option("120")
    panel.get_by_role("button", name="Start", exact=True).click()
    panel.scroll_into_view_if_needed()
    until(lambda: book.value(SAMPLES) >= 50_000, "1,000 points of 50 samples", 120)
    kernel = psutil.Process(book.value("__import__('os').getpid()"))
    fps, shares = [], []
    for _ in range(3):
        kernel.cpu_percent()
        fps.append(page.ask(FRAMES, 7000))
        shares.append(kernel.cpu_percent())
    figure = panel.locator(".dg-time").element_handle()
    redraws = page.ask(REDRAWS, [figure, 7000])
    page.close()
    rate, share = statistics.median(fps), statistics.median(shares)
    beside = "fps with no plot running"
    yield Figure("plot, 20 Hz, 1,000 points, page", "fps", rate, "60", rate >= 59, beside, idle_fps)
    what = "plot, 20 Hz, 1,000 points, redraws"
    yield Figure(what, "a second", redraws, "20, at least 19", _met(19, redraws))
    what = "plot, 20 Hz, 1,000 points, kernel"
    yield Figure(what, "% of a core", share, "2 %", _met(share, 2), rounds=shares)


def usable(bench: Bench) -> Iterator[Figure]:
    """dashboard() in a fresh kernel, from the key to the last panel."""
    page = bench.page()
    took = []
    for _ in range(5):
        book = bench.notebook(page)
        index = book.add(DASHBOARD)
        took.append(page.ask(USABLE, [book.path, index, list(PANELS)]) / 1000)
        book.command("docmanager:save")
        book.command("application:close")
    page.close()
    middle = statistics.median(took)
    what = "dashboard() to usable, fresh kernel"
    yield Figure(what, "s", middle, "1.0 s", _met(middle, 1.0), rounds=took)


def reload(bench: Bench) -> Iterator[Figure]:
    """The page loads anew while the plot runs."""
    page = bench.page()
    book = bench.notebook(page).dashboard()
    book.panel("dashboard").get_by_role("button", name="Start monitor").click()
    until(lambda: book.value(SAMPLES) > 20_000, "a history of 20 s", 60)
    book.save()
    took, floors = [], []
    for _ in range(5):
        before = book.value(SAMPLES)
        start = time.perf_counter()
        page.reload()
        floors.append(time.perf_counter() - start)
        book.open()
        _has(page, before)
        took.append(time.perf_counter() - start)
    page.close()
    middle, floor = statistics.median(took), statistics.median(floors)
    what, beside = "page reload to full history", "JupyterLab alone, s"
    yield Figure(what, "s", middle, "3 s", _met(middle, 3), beside, floor, took, floors)


def _has(page: LabPage, samples: int) -> None:
    """Waits until the plot is drawn with so many samples."""
    page.page.wait_for_function(
        """(least) => {
          const text = document.querySelector(".dgkit-latency[data-drawn] tbody td")?.textContent;
          return text && Number(text.replaceAll(",", "")) >= least;
        }""",
        arg=samples,
    )


def memory(bench: Bench) -> Iterator[Figure]:
    """Streaming: what the kernel and the page hold after the first minute, and at the end."""
    page = bench.page()
    book = bench.notebook(page).dashboard()
    book.panel("dashboard").get_by_role("button", name="Start monitor").click()
    kernel = psutil.Process(book.value("__import__('os').getpid()"))
    devtools = page.context.new_cdp_session(page.page)
    devtools.send("Performance.enable")

    def held() -> tuple[float, float]:
        devtools.send("HeapProfiler.collectGarbage")
        metrics = devtools.send("Performance.getMetrics")["metrics"]
        heap = next(one["value"] for one in metrics if one["name"] == "JSHeapUsedSize")
        return kernel.memory_info().rss / 2**20, heap / 2**20

    rows = []
    begun = time.monotonic()
    for minute in range(1, max(2, round(bench.minutes)) + 1):
        page.page.wait_for_timeout(max(0.0, 1000 * (begun + 60 * minute - time.monotonic())))
        rows.append(held())
    page.close()
    for at, whose in enumerate(("kernel, resident", "page, JS heap after a collection")):
        values = [row[at] for row in rows]
        grown = values[-1] - values[0]
        what = f"{len(rows)} min of streaming, {whose}: growth after the first"
        yield Figure(what, "MiB", grown, "none", grown < 1, "at the end, MiB", values[-1], values)


def saved(bench: Bench) -> Iterator[Figure]:
    """The file of a notebook with a dashboard whose plot has run, and the pictures in it."""
    page = bench.page()
    book = bench.notebook(page).dashboard()
    book.cell(
        "noise = d.session.empty(1 << 20, name='noise')\n"
        "noise.array[:] = np.random.default_rng(1).integers(0, 256, 1 << 20, dtype='u1')\n"
        "for at in range(60):\n"
        "    d.panels.transfer.transfer('write', noise, bytes(4096), offset=at << 12).wait()"
    )
    book.panel("latency").get_by_label("Time shown").select_option("120")
    book.panel("dashboard").get_by_role("button", name="Start monitor").click()
    until(lambda: book.value(SAMPLES) > 20_000, "a history of 20 s", 60)
    file = book.save()
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    pictures = sum(len(output.get("data", {}).get("image/png", "")) for output in outputs) / 1000
    page.close()
    what = "a saved notebook with a dashboard: all its pictures, as base64"
    size = file.stat().st_size / 1000
    yield Figure(what, "kB", pictures, "60 kB", 0 < pictures <= 60, "the whole file, kB", size)


def idle(bench: Bench) -> Iterator[Figure]:
    """Eight dashboards in a page each, in use and then left alone: kernel and DPU of each."""
    with contextlib.ExitStack() as stack:
        books = []
        for _ in range(IDLE_DASHBOARDS):
            page = bench.page()
            stack.callback(page.close)
            books.append(bench.notebook(page).dashboard())
            books[-1].cell("d.session.write(d.session.empty(1 << 20, name='some'), b'hello')")
        pids = [book.value("[__import__('os').getpid(), d.session.owned_pid]") for book in books]
        processes = [[psutil.Process(pid) for pid in pair] for pair in pids]
        time.sleep(5)  # what the cells have started ends

        def used() -> list[float]:
            return [sum(sum(one.cpu_times()[:2]) for one in pair) for pair in processes]

        before, start = used(), time.monotonic()
        time.sleep(IDLE_S)
        took = time.monotonic() - start
        shares = [100 * (new - old) / took for new, old in zip(used(), before, strict=True)]
        memory = [sum(one.memory_full_info().uss for one in pair) / 2**20 for pair in processes]
    what = f"{IDLE_DASHBOARDS} dashboards idle, kernel and DPU of each: the most"
    most, beside = max(shares), "memory of its own, MiB"
    yield Figure(what, "% of a core", most, "0.4 %", _met(most, 0.4), beside, max(memory), shares)


ALL: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "hex": hex_jump, "plot": plot, "usable": usable, "reload": reload,
    "saved": saved, "idle": idle, "memory": memory,
}  # fmt: skip


def about(server: Lab, browser: Browser) -> dict[str, Any]:
    """The versions, and whether the server sends at once what it has."""
    names = ("jupyterlab", "jupyter_server", "ipykernel", "ipywidgets", "anywidget", "bokeh")
    return {
        "chromium": browser.version,
        "versions": {name: version(name) for name in names},
        "server_extension": f"{EXTENSION} | extension was successfully loaded"
        in server.log.read_text(),
    }


def main() -> None:
    """Measures, prints, and stores if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ALL))
    parser.add_argument("--minutes", type=float, default=10, help="of streaming (default 10)")
    parser.add_argument("--json", type=Path, help="store the figures here")
    options = parser.parse_args()
    if unknown := set(options.names) - set(ALL):
        parser.error(f"nothing is called {', '.join(sorted(unknown))}; there are {', '.join(ALL)}")
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="dgkit-lab-") as folder,
        lab(Path(folder)) as server,
        chromium() as browser,
    ):
        bench = Bench(server, browser, options.minutes)
        for name in options.names or ALL:
            for figure in ALL[name](bench):
                figures.append(figure)
                print(f"{figure.what}: {figure.value:,.4g} {figure.unit}", flush=True)
        told = about(server, browser)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(shown(figures, "dgkit's widgets in JupyterLab, software DPU"))
    if options.json:
        save(options.json, figures, **told)


if __name__ == "__main__":
    main()
