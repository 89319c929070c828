# SPDX-License-Identifier: Apache-2.0
"""DoctorPanel in a page: findings, the clipboard, checks again, the drawing, themes and widths."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from doctor.snapshots import snapshot_file
from playwright.sync_api import Locator, expect
from support.doctor.panel import DPU, FAR, large, saved
from support.jupyter.page import LabPage, Notebook
from support.processes.waiting import until

from dgkit.doctor.collect.snapshot import load

CELL = """from dgkit.widgets.doctor import DoctorPanel
p = DoctorPanel({})
p"""


@pytest.fixture(scope="module")
def shared(server, browser, tmp_path_factory) -> Iterator[tuple[Notebook, Path]]:
    path = saved(tmp_path_factory.mktemp("snapshots"))
    page = LabPage(server, browser).go()
    page.page.set_viewport_size({"width": 1600, "height": 1800})
    book = page.notebook("doctor")
    yield book, path
    page.close()


@pytest.fixture
def book(shared):
    """A notebook with one panel, `p`, of a host; its snapshot is `book.path_of_snapshot`."""
    notebook, path = shared
    notebook.path_of_snapshot = saved(path.parent)
    source = CELL.format(repr(str(path)))
    if not hasattr(notebook, "made"):
        notebook.made = notebook.add(source)
    notebook.run(notebook.made)
    judged(notebook)
    yield notebook
    notebook.lab_page.check()


def judged(notebook: Notebook) -> Locator:
    panel = notebook.ready("doctor")
    expect(panel).to_have_attribute("data-running", "false")
    return panel


def finding(panel: Locator, check: str) -> Locator:
    """The item of a check's finding."""
    return panel.locator(".dg-finding").filter(has=panel.page.get_by_text(check, exact=True)).first


def open_(item: Locator) -> None:
    if item.locator("details").get_attribute("open") is None:
        item.locator("summary").click()


def test_it_shows_what_is_wrong_worst_first_and_folds_what_is_right(book):
    panel = book.panel("doctor")
    expect(panel.get_by_text("snapshot, synthetic")).to_be_visible()
    expect(panel.get_by_text("a test's machine")).to_be_visible()
    expect(panel.get_by_text("chosen because there are a GPU and a BlueField-3")).to_be_visible()
    wrong = panel.get_by_role("list", name="Problems, the worst first")
    words = wrong.locator(".dg-verdict").all_text_contents()
    order = ["fail", "warn", "unknown"]
    assert words == sorted(words, key=order.index)
    kernel = finding(wrong, "kernel-version")
    expect(kernel).to_contain_text("5.15.0-25-generic")
    expect(kernel).to_contain_text("needed: 6.2")
    expect(kernel).to_contain_text("nvidia-peermem")
    right = panel.get_by_role("list", name="Checks that are ok")
    expect(right).to_be_hidden()
    panel.get_by_text(re.compile(r"^\d+ ok$")).click()
    expect(right).to_be_visible()
    panel.get_by_label("Problems only").check()
    expect(right).to_be_hidden()
    panel.get_by_label("Problems only").uncheck()


def with_command(panel: Locator, many: bool = False) -> Locator:
    """The first finding with a command, or with several; it is open."""
    button = re.compile("^Copy these" if many else "^Copy: ")
    inside = panel.page.get_by_role("button", name=button, include_hidden=True)
    item = panel.locator(".dg-finding").filter(has=inside).first
    open_(item)
    return item


def test_a_command_is_copied_and_so_are_those_in_a_row(book):
    panel, page = book.panel("doctor"), book.page
    one = with_command(panel)
    command = one.locator("code").first.text_content()
    one.get_by_role("button", name=f"Copy: {command}", exact=True).click()
    expect(panel.get_by_role("status")).to_have_text(f"Copied: {command}")
    assert page.evaluate("navigator.clipboard.readText()") == command
    several = with_command(panel, many=True)
    row = several.get_by_role("button", name=re.compile("^Copy these")).first
    row.click()
    expect(panel.get_by_role("status")).to_contain_text(" && ")
    text = page.evaluate("navigator.clipboard.readText()")
    shown = several.locator("code").all_text_contents()
    assert text in " && ".join(shown), "one that fails keeps the next from being run"
    assert row.text_content() == f"Copy these {text.count(' && ') + 1}"
    assert "#" not in text


def test_a_page_without_the_clipboard_copies_all_the_same(book):
    panel, page = book.panel("doctor"), book.page
    one = with_command(panel)
    page.evaluate("navigator.clipboard.writeText('before')")
    page.evaluate(
        "() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }"
    )
    try:
        one.get_by_role("button", name=re.compile("^Copy: ")).first.click()
        expect(panel.get_by_role("status")).to_contain_text("Copied: ")
    finally:
        page.evaluate("() => { delete navigator.clipboard.writeText; }")
    command = one.locator("code").first.text_content()
    assert page.evaluate("navigator.clipboard.readText()") == command


def test_one_check_is_made_again_by_the_keyboard_and_the_focus_stays(book):
    panel = book.panel("doctor")
    item = finding(panel, "kernel-version")
    open_(item)
    newer = load(book.path_of_snapshot)
    newer.readings["ask uname"].data["release"] = "5.19.0-46-generic"
    newer.save(book.path_of_snapshot)
    again = item.get_by_role("button", name="Check this again: kernel-version")
    again.focus()
    book.page.keyboard.press("Enter")
    expect(item).to_contain_text("5.19.0-46-generic")
    expect(again).to_be_focused()
    expect(item.locator("details")).to_have_attribute("open", "")


def test_what_is_mended_goes_to_what_is_right_after_check_again(book):
    panel = book.panel("doctor")
    newer = load(book.path_of_snapshot)
    newer.readings["ask uname"].data["release"] = "6.8.0"
    newer.save(book.path_of_snapshot)
    panel.get_by_role("button", name="Check again", exact=True).click()
    right = panel.get_by_role("list", name="Checks that are ok", include_hidden=True)
    expect(right).to_contain_text("6.8.0")
    expect(panel.get_by_role("button", name="Check again", exact=True)).to_be_focused()


def test_a_run_that_fails_is_said_and_nothing_is_called_checked(book):
    panel = book.panel("doctor")
    book.path_of_snapshot.unlink()
    panel.get_by_role("button", name="Check again", exact=True).click()
    expect(panel.get_by_text("No such file")).to_be_visible()
    expect(panel.get_by_role("status")).to_have_text("The check failed.")


def test_another_goal_is_judged_for(book):
    panel = book.panel("doctor")
    panel.get_by_label("Goal").select_option("gpunetio")
    expect(panel.locator(".dg-headline")).to_contain_text("GPU kernels drive a NIC")
    judged(book)
    assert book.value("str(p.diagnosis.goal)") == "gpunetio"


def test_the_drawing_follows_the_pair_and_the_answer_stands_beside_it(book):
    panel = book.panel("doctor")
    tree = panel.get_by_role("region", name="Drawing of the PCIe tree")
    tree.scroll_into_view_if_needed()
    expect(panel).to_have_attribute("data-drawn", f"0000:1a:00.0 {DPU}")
    expect(tree.locator("canvas").first).to_be_visible()
    panel.get_by_label("GPU", exact=True).select_option(FAR)
    expect(panel.locator(".dg-answer")).to_contain_text("different CPU sockets")
    expect(panel).to_have_attribute("data-drawn", f"{FAR} {DPU}")
    expect(panel.get_by_text("Path: ")).to_contain_text("CPU, NUMA node 0")


def test_reloaded_it_has_what_it_had(book):
    panel = book.panel("doctor")
    panel.get_by_label("GPU", exact=True).select_option(FAR)
    expect(panel.locator(".dg-answer")).to_contain_text("different CPU sockets")
    panel.get_by_label("Goal").select_option("rdma")
    expect(panel.locator(".dg-headline")).to_contain_text("by RDMA")
    book.save()
    book.lab_page.reload()
    book.open()
    panel = judged(book)
    expect(panel.get_by_label("Goal")).to_have_value("rdma")
    expect(panel.get_by_label("GPU", exact=True)).to_have_value(FAR)
    expect(finding(panel, "kernel-version")).to_contain_text("5.15.0")
    tree = panel.get_by_role("region", name="Drawing of the PCIe tree")
    tree.scroll_into_view_if_needed()
    expect(panel).to_have_attribute("data-drawn", f"{FAR} {DPU}")


def test_run_again_it_leaves_no_thread_and_no_fd_and_of_widgets_the_closed_panels_only(book):
    book.cell("import threading, ipywidgets, os")
    instances = "ipywidgets.widgets.widget._instances"
    # Matplotlib keeps the fonts of its first picture open, which may be drawn after the measure.
    fds = "map('/proc/self/fd/{}'.format, os.listdir('/proc/self/fd'))"
    fds = f"sum(not os.path.realpath(fd).endswith('.ttf') for fd in {fds})"
    now = f"[threading.active_count(), {fds}, len({instances})]"
    book.run(book.made)
    judged(book)
    book.quiet()
    before = book.value(now)
    before[2] += 3 * 2  # a closed panel and its layout, to which a container may refer
    for _ in range(3):
        book.run(book.made)
        judged(book)

    def no_more() -> bool:
        """ipykernel closes the pipe of a thread that has ended within 10 s (iostream.py)."""
        return all(one <= was for one, was in zip(book.value(now), before, strict=True))

    until(no_more, f"no more threads, fds and widgets than {before}", timeout=30)


def test_it_judges_while_a_cell_is_busy(book):
    panel = book.panel("doctor")
    book.cell("import time; time.sleep(30)", wait=False)
    until(book.busy, "the cell runs")
    panel.get_by_label("Goal").select_option("rdma")
    expect(panel.locator(".dg-headline")).to_contain_text("by RDMA")
    assert book.busy()
    book.interrupt()


def test_this_machine_is_judged_without_a_snapshot(book):
    book.cell("q = DoctorPanel()\nq")
    panel = book.ready("doctor", 1)
    expect(panel).to_have_attribute("data-running", "false")
    expect(panel.get_by_text("this machine")).to_be_visible()
    assert book.value("q.diagnosis.case.machine.name") == "this machine"
    book.value("q.close()")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits(book, dark):
    page, panel = book.lab_page, book.panel("doctor")
    page.theme(dark)
    try:
        for width in (900, 1600):
            page.page.set_viewport_size({"width": width, "height": 4000})
            tree = panel.get_by_role("region", name="Drawing of the PCIe tree")
            tree.scroll_into_view_if_needed()
            expect(tree.locator("canvas").first).to_be_visible()
            page.shot(f"doctor-{width}-{'dark' if dark else 'light'}", panel)
            wide = panel.evaluate("one => [one.scrollWidth, one.clientWidth]")
            assert wide[0] <= wide[1], f"the panel is cut at {width}"
    finally:
        page.theme(False)
        page.page.set_viewport_size({"width": 1600, "height": 1800})


def test_a_machine_with_one_warning_fits_a_picture(book):
    """As notebooks/doctor-light.png, which tests/browser/pictures.py renews."""
    page = book.lab_page
    page.page.set_viewport_size({"width": 1280, "height": 2400})
    try:
        book.cell(f"s = DoctorPanel({str(snapshot_file('acs-on'))!r})\ns")
        panel = book.ready("doctor", 1)
        expect(panel).to_have_attribute("data-running", "false")
        warning = finding(panel, "acs")
        open_(warning)
        expect(warning.locator("code").first).to_contain_text("sudo setpci")
        tree = panel.get_by_role("region", name="Drawing of the PCIe tree")
        tree.scroll_into_view_if_needed()
        expect(tree.locator("canvas").first).to_be_visible()
        page.shot("doctor-acs-on", panel)
        wide = panel.evaluate("one => [one.scrollWidth, one.clientWidth]")
        assert wide[0] <= wide[1]
        book.value("s.close()")
    finally:
        page.page.set_viewport_size({"width": 1600, "height": 1800})


def test_a_large_machine_is_scrolled_and_not_squeezed(book, tmp_path):
    path = saved(tmp_path, large(), name="large")
    book.cell(f"r = DoctorPanel({str(path)!r})\nr")
    panel = book.ready("doctor", 1)
    tree = panel.get_by_role("region", name="Drawing of the PCIe tree")
    tree.scroll_into_view_if_needed()
    expect(tree.locator("canvas").first).to_be_visible()
    book.lab_page.shot("doctor-large", panel)
    wide = panel.evaluate("one => [one.scrollWidth, one.clientWidth]")
    assert wide[0] <= wide[1]
    inside = tree.evaluate("one => [one.scrollWidth, one.clientWidth]")
    assert inside[0] > inside[1]
    book.value("r.close()")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_serious_violation(book, dark):
    panel = book.panel("doctor")
    for item in panel.locator("summary").all():
        if item.is_visible() and item.locator("..").get_attribute("open") is None:
            item.click()
    book.lab_page.theme(dark)
    try:
        found = Axe().run(book.page, context=".dgkit-doctor").response
    finally:
        book.lab_page.theme(False)
    grave = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    said = [
        f"{one['id']}: {node['target']} {node['html']}" for one in grave for node in one["nodes"]
    ]
    assert not said, "\n".join(said)
    assert len(found["passes"]) > 10


def test_the_nics_are_a_table_and_an_experiment_says_what_it_does(book):
    book.cell(f"n = DoctorPanel({str(snapshot_file('dgx-a100'))!r})\nn")
    panel = book.ready("doctor", 1)
    expect(panel).to_have_attribute("data-running", "false")
    fold = panel.locator("details").filter(has_text="Which NIC for which GPU")
    fold.locator("summary").click()
    expect(fold.get_by_role("row")).to_have_count(9)
    book.value("n.close()")
    book.cell("e = DoctorPanel(goal='laptop')\ne")
    panel = book.ready("doctor", 1)
    expect(panel).to_have_attribute("data-running", "false")
    fold = panel.locator("details").filter(has_text="Try it: a result overrules an")
    fold.locator("summary").click()
    fold.get_by_role("button", name="DOCA DMA: write and read 4 KiB").click()
    expect(fold.locator(".dg-verdict")).to_have_text("ok", timeout=30000)
    book.value("e.close()")
