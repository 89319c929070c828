# SPDX-License-Identifier: Apache-2.0
"""A lab from its release to the feedback, as its student and its instructor work in JupyterLab."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import expect
from support.jupyter.page import Lost, Notebook
from support.jupyter.terminal import Terminal
from support.teaching import solution, source

# An environment that has nbgrader besides all of this one: tests/run keeps it apart, since it
# brings extensions of JupyterLab.
HOME = os.environ.get("DGKIT_NBGRADER", "")
COURSE, STUDENT, LAB = "dma101", "student", "lab1"
NOTEBOOK = f"{STUDENT}/{LAB}/{source(LAB).name}"
MATHJAX = "https://cdnjs.cloudflare.com/"  # which nbgrader's own page of feedback asks for
ATTACK = """<img src=x onerror="document.title = 'attacked'; fetch('/attacked')">

[a link](javascript:document.title='attacked') $\\href{javascript:document.title='attacked'}{x}$
```
<script>document.title = "attacked"</script>
"""
CELL = """([path, name]) => find(path).content.widgets.findIndex(
  (cell) => cell.model.getMetadata("nbgrader")?.grade_id === name)"""
SCROLL = "async ([path, index]) => { await find(path).content.scrollToItem(index); }"
SHOW = "async (path) => { await app.commands.execute('docmanager:open', {path}); }"


def variables():
    """What a shell needs to find nbgrader, and nbgrader the templates of nbconvert."""
    share = Path(sys.prefix) / "share/jupyter"
    return {"PATH": f"{HOME}/bin{os.pathsep}{os.environ['PATH']}", "JUPYTER_PATH": str(share)}


@pytest.fixture
def handed_out(server, tmp_path):
    """A course whose first lab is in the exchange; a folder of a student who takes it."""
    course, student, exchange = server.root / COURSE, server.root / STUDENT, tmp_path / "exchange"
    exchange.mkdir()
    exchange.chmod(0o777)
    for folder in (course, student):  # of the test before
        shutil.rmtree(folder, ignore_errors=True)
    student.mkdir()

    def do(*words):
        done = subprocess.run(
            words, cwd=course if course.exists() else server.root, env=os.environ | variables(),
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    do("dgkit", "teach", "init", COURSE)
    root = f"\nc = get_config()\nc.Exchange.root = {str(exchange)!r}\n"
    with (course / "nbgrader_config.py").open("a") as file:
        file.write(f"{root}c.Grader.allow_not_isolated = True\n")
    (student / "nbgrader_config.py").write_text(f"{root}c.CourseDirectory.course_id = {COURSE!r}\n")
    do("nbgrader", "generate_assignment", "--create", LAB)
    do("nbgrader", "release_assignment", LAB)
    yield do
    for each in server.get("api/terminals"):
        server.get(f"api/terminals/{each['name']}", "DELETE")


def written():
    """What the student writes. The visible tests do not see that a list may be cut short."""
    cells = solution(LAB)
    counted = re.search(r" +if len\(records\) != count:\n.*\n", cells["walk"])
    cells["walk"] = cells["walk"].replace(counted[0], "")
    return {name: re.sub(r"\n *### .*", "", text) for name, text in cells.items()}


class Student:
    """Works in a released notebook."""

    def __init__(self, book):
        self.book = book

    def _index(self, name):
        return self.book.lab_page.ask(CELL, [NOTEBOOK, name])

    def cell(self, name):
        """The cell of this name, in view."""
        index = self._index(name)
        self.book.lab_page.ask(SCROLL, [NOTEBOOK, index])
        return self.book.page.locator(f".jp-NotebookPanel [data-windowed-list-index='{index}']")

    def run(self, name):
        """Run the cell of this name; Lost: it raised."""
        return self.book.run(self._index(name))

    def write(self, name, text):
        """Replace what is in a cell by the keyboard, and run it."""
        self.cell(name).locator(".cm-content").click()
        self.book.page.keyboard.press("Control+A")
        self.book.page.keyboard.insert_text(text)
        self.run(name)


@pytest.mark.timeout(420)
def test_a_lab_is_solved_by_a_student_and_graded_by_an_instructor(handed_out, new_page):
    new_page.page.route(f"{MATHJAX}**", lambda route: route.abort())
    shell = Terminal(new_page, STUDENT, STUDENT, **variables())
    shell.run(f"nbgrader fetch_assignment {LAB}")
    book = Notebook(new_page, NOTEBOOK).open()
    student = Student(book)
    book.quiet()
    new_page.shot("labs-1-released")
    student.run("read_header")
    with pytest.raises(Lost, match="read_header raised NotImplementedError"):
        student.run("test_header")
    error = student.cell("test_header").locator(".jp-OutputArea-output")
    expect(error).to_contain_text("NotImplementedError")
    expect(error).not_to_contain_text("find_bytes.py")  # no frames of the test
    error.scroll_into_view_if_needed()
    new_page.shot("labs-2-a-test-fails")
    for name, text in written().items():
        student.write(name, text)
        student.run(f"test_{name.removeprefix('read_')}")
    new_page.shot("labs-3-solved")
    book.save()
    told = shell.run(f"dgkit teach check {LAB}/{source(LAB).name}")
    assert "4 of 4 tests are right" in told
    shell.run(f"nbgrader submit {LAB}")
    new_page.shot("labs-4-submitted")

    desk = Terminal(new_page, COURSE, "instructor", **variables())
    for step in ("collect", "autograde", "generate_feedback"):
        desk.run(f"nbgrader {step} {LAB}")
    new_page.shot("labs-5-graded")
    (page,) = (new_page.lab.root / COURSE).glob(f"feedback/*/{LAB}/*.html")
    new_page.ask(SHOW, str(page.relative_to(new_page.lab.root)))
    feedback = new_page.page.frame_locator(".jp-HTMLViewer iframe")
    wrong = feedback.locator("pre", has_text="12.5 of 15 points")
    expect(wrong).to_contain_text("WRONG  a list that ends too early")
    wrong.scroll_into_view_if_needed()
    new_page.shot("labs-6-feedback")
    new_page.asked = [url for url in new_page.asked if not url.startswith(MATHJAX)]


@pytest.mark.timeout(420)
def test_a_submission_runs_nothing_in_the_browser_of_who_reads_it(handed_out, new_page):
    course = new_page.lab.root / COURSE
    submitted = course / "submitted/eve" / LAB
    shutil.copytree(course / "release" / LAB, submitted)
    attack(submitted / source(LAB).name)
    handed_out("nbgrader", "autograde", "--create", LAB)
    handed_out("nbgrader", "generate_feedback", LAB)
    feedback = course / f"feedback/eve/{LAB}/{source(LAB).stem}.html"
    with formgrader(course) as url:
        for address in (feedback.as_uri(), url):
            assert_harmless(new_page.page.context.new_page(), address)


def attack(path):
    """Put what tries to run in a reader's browser into each place of a notebook."""
    notebook = nbformat.read(path, as_version=4)
    new = nbformat.v4.new_markdown_cell, nbformat.v4.new_raw_cell
    notebook.cells[:0] = [make(ATTACK) for make in new]
    notebook.cells[1].metadata["raw_mimetype"] = "text/html"
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and "nbgrader" in cell.metadata:
            cell.source = ATTACK
            cell.attachments = {"x.svg": {"image/svg+xml": "<svg onload=\"fetch('/attacked')\"/>"}}
        if cell.cell_type == "code":
            cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": ATTACK})]
    notebook.metadata["title"] = f"</title>{ATTACK}"
    nbformat.write(notebook, path)


@contextlib.contextmanager
def formgrader(course):
    """The address of the page on which an instructor grades the submission, with all rights."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = f"http://127.0.0.1:{port}/formgrader"
    server = subprocess.Popen(
        [f"{HOME}/bin/python", "-m", "jupyter_server", f"--port={port}", "--allow-root",
         "--ServerApp.open_browser=False", "--IdentityProvider.token=",
         "--ServerApp.jpserver_extensions=nbgrader.server_extensions.formgrader=True"],
        cwd=course, env=os.environ | variables(), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        ask = f"{root}/api/submitted_notebooks/{LAB}/{source(LAB).stem}"
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(ask) as reply:
                    (submission,) = json.load(reply)
                break
            except urllib.error.URLError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        yield f"{root}/submissions/{submission['id']}/?index=0"
    finally:
        server.terminate()
        server.wait()


def assert_harmless(page, address):
    """Check that a page shows what the student wrote and runs none of it."""
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.route(f"{MATHJAX}**", lambda route: route.abort())
    page.goto(address)
    expect(page.locator("code", has_text="onerror=").first).to_be_visible()
    assert page.locator("img[onerror], a[href^='javascript:']").count() == 0
    page.wait_for_load_state("networkidle")
    assert "attacked" not in page.title()
    assert not [url for url in asked if "attacked" in url]
    page.close()


if not HOME:
    pytestmark = pytest.mark.skip("nbgrader is not installed (tests/run installs it)")
