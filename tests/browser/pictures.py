# SPDX-License-Identifier: Apache-2.0
"""Renew the pictures in notebooks/ that the READMEs show.

Run it by hand on an idle machine, after a change of how panels look:
PYTHONPATH=tests .cache/venv/bin/python tests/browser/pictures.py
"""

import base64
import io
import itertools
import tempfile
from pathlib import Path
from typing import Any

from doctor.snapshots import snapshot_file
from PIL import Image
from playwright.sync_api import Locator, expect
from support.jupyter.lab import lab
from support.jupyter.page import WAIT_MS, LabPage, Notebook, chromium

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SHOWN_S = 31  # the plot shows the last 30 s

TRANSFERS = """
page = d.session.regions[0]
how = {"pattern": "counter", "size": "4K", "offset": "56K", "repeat": 5, "depth": 2}
d.panels.transfer.transfer("write", page, **how).wait()
"""
FLEET = """
import dgkit
from distributed import Client, LocalCluster
cluster = LocalCluster(n_workers=8, threads_per_worker=1, processes=False, dashboard_address=None)
fleet = dgkit.Fleet(Client(cluster))
running = fleet.start_sweep(["64", "4K", "64K", "1M"], count=2000, seconds=0.2)
dgkit.HeatMap(running)
"""
DOCTOR = "from dgkit.widgets.doctor import DoctorPanel\np = DoctorPanel({})\np"


def main() -> None:
    """Take the dashboard's picture in both themes and moving, the doctor's and a heat map's."""
    expect.set_options(timeout=WAIT_MS)
    with (
        tempfile.TemporaryDirectory() as folder,
        lab(Path(folder)) as server,
        chromium() as browser,
    ):
        page = LabPage(server, browser).go()
        _moving(page)
        _dashboard(page)
        _doctor(page)
        _fleet(page)
        page.close()


def _moving(page: LabPage) -> None:
    """Record the dashboard: "Show me" until its steps are done, then the latency live."""
    page.page.set_viewport_size({"width": 1400, "height": 900})
    page.theme(dark=False)
    board = page.notebook("moving").dashboard()
    dashboard = board.panel("dashboard")
    steps = dashboard.get_by_role("list", name="Steps").get_by_role("listitem")
    dashboard.scroll_into_view_if_needed()
    box = dashboard.bounding_box()
    assert box
    shown: list[tuple[float, Image.Image]] = []
    cast = page.page.context.new_cdp_session(page.page)

    def keep(frame: dict[str, Any]) -> None:
        image = Image.open(io.BytesIO(base64.b64decode(frame["data"])))
        shown.append((frame["metadata"]["timestamp"], image))
        cast.send("Page.screencastFrameAck", {"sessionId": frame["sessionId"]})

    cast.on("Page.screencastFrame", keep)
    cast.send("Page.startScreencast", {"format": "png"})
    dashboard.get_by_role("button", name="Show me").click()
    dashboard.get_by_text("The steps, in Python").click()
    page.page.mouse.move(0, 0)
    expect(steps.last).to_have_class("dgd-done")
    page.page.wait_for_timeout(2000)
    dashboard.get_by_role("button", name="Hide the steps").click()
    page.page.mouse.move(0, 0)
    page.page.wait_for_timeout(6000)
    cast.send("Page.stopScreencast")
    left, top, right = (int(each) for each in (box["x"], box["y"], box["x"] + box["width"]))
    _save_moving(shown, (left, top, right, 870), NOTEBOOKS / "dashboard.gif")


def _save_moving(
    shown: list[tuple[float, Image.Image]], box: tuple[int, int, int, int], file: Path
) -> None:
    """Write five frames a second at most, as they were timed but for pauses of over a second.

    The last one comes first: where the picture does not move, it is the one that is seen.
    """
    frames: list[tuple[float, Image.Image]] = []
    for when, image in shown:
        if frames and when - frames[-1][0] < 0.2:
            continue
        frames.append((when, image.convert("RGB").crop(box)))
    times = [when for when, _ in frames] + [frames[-1][0] + 1]
    durations = [round(1000 * min(b - a, 1)) for a, b in itertools.pairwise(times)]
    palette = frames[-1][1].quantize(256, Image.Quantize.MAXCOVERAGE)
    images = [each.quantize(palette=palette, dither=Image.Dither.NONE) for _, each in frames]
    images, durations = [images[-1], *images[:-1]], [durations[-1], *durations[:-1]]
    images[0].save(file, save_all=True, append_images=images[1:], duration=durations, loop=0)
    size = f"{images[0].width} x {images[0].height}, {len(images)} frames"
    print(f"{file}: {size}, {sum(durations) / 1000} s, {file.stat().st_size:,} bytes")


def _dashboard(page: LabPage) -> None:
    """Press "Show me", start five more transfers, and measure until the plot is full."""
    page.page.set_viewport_size({"width": 1400, "height": 3200})
    board = page.notebook("dashboard").dashboard()
    dashboard = board.panel("dashboard")
    dashboard.get_by_role("button", name="Show me").click()
    dashboard.get_by_text("The steps, in Python").click()
    steps = dashboard.get_by_role("list", name="Steps").get_by_role("listitem")
    expect(steps.last).to_have_class("dgd-done")
    dashboard.get_by_role("button", name="Hide the steps").click()
    board.cell(TRANSFERS)
    page.page.mouse.move(0, 0)
    page.page.wait_for_timeout(1000 * SHOWN_S)
    _keep(page, board, dashboard, "dashboard", ("light", "dark"))


def _doctor(page: LabPage) -> None:
    """Show a synthetic machine with one warning, its commands and its PCIe tree."""
    page.page.set_viewport_size({"width": 1280, "height": 2400})
    book = page.notebook("doctor")
    book.cell(DOCTOR.format(repr(str(snapshot_file("acs-on")))))
    panel = book.ready("doctor")
    expect(panel).to_have_attribute("data-running", "false")
    panel.locator(".dg-finding summary").first.click()
    tree = panel.get_by_role("region", name="Drawing of the PCIe tree")
    tree.scroll_into_view_if_needed()
    expect(tree.locator("canvas").first).to_be_visible()
    _keep(page, book, panel, "doctor", ("light",))


def _fleet(page: LabPage) -> None:
    """Sweep eight software pairs, as `dgkit fleet demo` does."""
    page.page.set_viewport_size({"width": 1280, "height": 1600})
    book = page.notebook("fleet")
    book.cell(FLEET)
    panel = book.ready("heatmap")
    expect(panel).to_have_attribute("data-line", "64 of 64 rows, ended", timeout=120_000)
    panel.scroll_into_view_if_needed()
    expect(panel.locator(".dg-figure canvas").first).to_be_visible()
    _keep(page, book, panel, "fleet", ("light",))
    book.cell("fleet.close(); fleet.client.close(); cluster.close()")


def _keep(page: LabPage, book: Notebook, part: Locator, name: str, themes: tuple[str, ...]) -> None:
    """Write the pictures of a part of the page."""
    for theme in themes:
        page.theme(theme == "dark")
        book.quiet()  # the plots take the theme by messages of the kernel
        page.page.wait_for_timeout(1000)
        png = part.screenshot(animations="disabled", style=":focus { outline: none !important; }")
        picture = NOTEBOOKS / f"{name}-{theme}.png"
        # a palette that also has the colours of small parts; a third of the size
        image = Image.open(io.BytesIO(png)).convert("RGB")
        image = image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        image.save(picture, optimize=True)
        print(f"{picture}: {image.width} x {image.height}, {picture.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
