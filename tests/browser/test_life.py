# SPDX-License-Identifier: Apache-2.0
"""What happens to a dashboard: reload, restart, run again, more than one of it, a DPU that dies,
a notebook that is saved and not trusted."""

import os
import re
import signal
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect
from support.jupyter.page import Notebook
from support.processes.waiting import children, gone, steady, until

SAMPLES = "(d.panels.plot.state()['run'] or {}).get('samples', 0)"
RELOADS = 2


def samples(notebook, nth=0):
    """How many the plot on the page has drawn."""
    text = notebook.panel("latency", nth).locator("tbody td").first.text_content()
    return int(text.replace(",", ""))


def start(notebook):
    notebook.panel("dashboard").get_by_role("button", name="Start monitor").click()
    notebook.panel("latency").scroll_into_view_if_needed()  # what is out of sight gets no frames
    until(lambda: samples(notebook) > 100, "the plot moves", timeout=20)


@pytest.mark.timeout(300)
def test_reloaded_while_it_streams_it_is_there_each_time_with_its_history(own_board):
    start(own_board)
    own_board.save()
    for _ in range(RELOADS):
        before = own_board.value(SAMPLES)
        own_board.lab_page.reload()
        own_board.open()
        own_board.ready("latency")
        drawn = until(lambda: samples(own_board), "the plot is drawn", timeout=20)
        assert drawn >= before
        until(lambda: samples(own_board) > drawn, "the plot moves", timeout=20)  # noqa: B023
    for name in ("dashboard", "allocate", "transfer", "hexview"):
        own_board.ready(name)


def test_after_a_kernel_restart_it_says_so_and_the_cell_makes_a_new_one(own_board):
    start(own_board)
    dpu = own_board.value("d.session.owned_pid")
    own_board.restart_kernel()
    alert = own_board.panel("dashboard").get_by_role("alert").first
    expect(alert).to_contain_text("The kernel of this view has ended or was restarted")
    until(lambda: gone(dpu), "the DPU has ended with its kernel")
    own_board.panel("dashboard").get_by_role("button", name="Dismiss").first.click()
    own_board.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    own_board.panel("allocate").scroll_into_view_if_needed()
    own_board.panel("latency").scroll_into_view_if_needed()
    strips = own_board.panel("dashboard").locator(".dg-strip").locator("visible=true")
    expect(strips).to_have_count(0)
    own_board.run(1)
    own_board.ready("latency")
    start(own_board)


def test_run_all_twice_leaves_one_dpu_and_no_thread_more(own_board):
    start(own_board)
    kernel = own_board.value("__import__('os').getpid()")
    dpu = own_board.value("d.session.owned_pid")
    own_board.value("d.session.empty(64, name='kept').id")

    def left():  # seen from outside: a cell that asks would end with threads of its own
        return [len([*Path(f"/proc/{kernel}/{what}").iterdir()]) for what in ("fd", "task")]

    own_board.command("notebook:run-all-cells")
    own_board.ready("latency")
    # A dashboard in sight has a thread, which starts when its page has said that it is.
    own_board.panel("dashboard").scroll_into_view_if_needed()
    threads = "[thread.name for thread in __import__('threading').enumerate()]"
    until(lambda: "dgkit-frames" in own_board.value(threads), "the kernel knows what is in sight")
    before = steady(left)
    for _ in range(2):
        own_board.command("notebook:run-all-cells")
        own_board.ready("latency")
    until(
        lambda: all(now <= was for now, was in zip(left(), before, strict=True)),
        "the descriptors and threads of the closed dashboards are gone",  # as in test_doctor.py
    )
    assert own_board.value("d.session.owned_pid") == dpu
    assert children(kernel) == [dpu]
    expect(own_board.panel("allocate")).to_contain_text("kept")
    until(lambda: samples(own_board) > 0, "the plot is there")


def test_two_views_show_the_same(own_board):
    own_board.cell("d")
    second = own_board.ready("allocate", 1)
    first = own_board.panel("allocate", 0)
    first.get_by_label("Name").first.fill("seen twice")
    first.get_by_role("button", name="Allocate").click()
    expect(second.get_by_role("rowheader", name="seen twice")).to_be_visible()
    second.get_by_role("button", name="Free seen twice").click()
    expect(first.get_by_role("rowheader", name="seen twice")).to_have_count(0)
    start(own_board)
    own_board.ready("latency", 1).scroll_into_view_if_needed()
    until(lambda: samples(own_board, 1) > 100, "the second plot moves")


def test_two_notebooks_have_a_dpu_each(own_board):
    other = own_board.lab_page.notebook("other").dashboard()
    pids = [book.value("d.session.owned_pid") for book in (own_board, other)]
    assert pids[0] != pids[1]
    other.value("d.session.empty(64, name='only here').id")
    expect(other.panel("allocate").get_by_role("rowheader", name="only here")).to_be_visible()
    own_board.open()
    expect(own_board.panel("allocate")).to_be_visible()
    expect(own_board.panel("allocate").get_by_text("only here")).to_have_count(0)


def test_a_dpu_that_is_killed_is_said_and_started_again_and_the_plot_keeps_its_history(own_board):
    own_board.value("d.session.empty(4096, name='of the host').id")
    start(own_board)
    dashboard = own_board.panel("dashboard")
    pid = own_board.value("d.session.owned_pid")
    os.kill(pid, signal.SIGKILL)
    again = dashboard.get_by_role("button", name="Start the DPU again")
    expect(again).to_be_visible()
    expect(dashboard.get_by_role("alert").first).to_contain_text("gone")
    own_board.panel("hexview").get_by_role("button", name="Refresh").click()
    own_board.quiet()
    expect(dashboard.get_by_role("alert").get_by_text(re.compile("gone|lost"))).to_have_count(1)
    drawn = samples(own_board)
    own_board.lab_page.shot("killed")
    again.focus()
    own_board.page.keyboard.press("Enter")
    expect(again).to_be_hidden()
    expect(dashboard.get_by_role("button", name=re.compile("monitor"))).to_be_focused()
    expect(dashboard.get_by_role("alert").first).to_be_hidden()
    assert samples(own_board) >= drawn > 0
    assert own_board.value("d.session.owned_pid") not in (0, pid)
    expect(own_board.panel("latency").locator(".dg-badge")).to_have_text("software DPU")
    kept = own_board.ready("allocate").get_by_role("rowheader", name="of the host")
    expect(kept).to_have_count(1)
    own_board.ready("allocate").get_by_role("button", name="Allocate").click()
    expect(own_board.panel("allocate").get_by_role("rowheader")).to_have_count(2)
    expect(own_board.panel("latency")).to_have_attribute("data-running", "true")  # again


ALONE = """
import dgkit
session = dgkit.connect()
region = session.empty(64, name="kept")
session.write(region, b"kept")
dgkit.HexView(session, region)
"""


def test_a_panel_alone_starts_a_killed_dpu_again_and_shows_the_bytes(lab_page):
    book = lab_page.notebook("alone")
    book.cell(ALONE)
    panel = book.ready("hexview")
    os.kill(book.value("session.owned_pid"), signal.SIGKILL)
    panel.get_by_role("button", name="Refresh").click()
    again = panel.get_by_role("button", name="Start the DPU again")
    expect(again).to_be_visible()
    expect(panel.locator("[data-stale]")).to_have_count(1)
    again.press("Enter")
    expect(panel.get_by_role("alert")).to_be_hidden()
    expect(panel.locator("[data-stale]")).to_have_count(0)
    expect(panel.get_by_role("grid").locator(".dg-hex-bytes [data-k='0']").first).to_have_text("6b")


def test_a_saved_notebook_is_small_and_shows_a_card_where_it_is_not_trusted(own_board):
    start(own_board)
    path = own_board.save()
    assert path.stat().st_size < 80_000  # of which the pictures take 60,000 at most
    book = nbformat.read(path, as_version=4)
    book.cells[-1].source += "\n# from somebody else"
    nbformat.write(book, path.with_name("strange.ipynb"))
    strange = Notebook(own_board.lab_page, "strange.ipynb").open()
    card = strange.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .dgkit-saved")
    expect(card).to_be_visible()
    expect(card.locator("strong")).to_have_text(
        ["dgkit session", "Allocate memory", "Transfer", "Memory", "Latency"]
    )
    expect(strange.page.get_by_text("software DPU").last).to_be_visible()
    expect(strange.panel("dashboard")).to_have_count(0)


def test_nothing_is_asked_of_a_busy_kernel_that_it_does_not_answer_later(own_board):
    own_board.cell("import time; time.sleep(3)", wait=False)
    until(own_board.busy, "the cell runs")
    panel = own_board.panel("allocate")
    panel.get_by_label("Name").first.fill("asked early")
    panel.get_by_role("button", name="Allocate").click()
    expect(panel.get_by_role("rowheader", name="asked early")).to_be_visible()
