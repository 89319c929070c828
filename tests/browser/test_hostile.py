# SPDX-License-Identifier: Apache-2.0
"""What a stranger sends to a page: a notebook, names and a snapshot, under a strict policy."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import anywidget
import nbformat
import pytest
from nbformat.sign import NotebookNotary
from playwright.sync_api import Browser, Route, expect
from support.doca.captures import HEAD, PING, packet
from support.doctor.hostile import planted_snapshot
from support.hostile import HOSTILE_TEXTS, MARK
from support.jupyter.lab import lab
from support.jupyter.notebooks import WIDGET, notebook
from support.jupyter.page import PANELS, LabPage, Notebook

# The least under which JupyterLab and dgkit work: SECURITY-DETAILS.md has the same lines.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' ws:; "
    "worker-src 'self' blob:; manifest-src 'self'; base-uri 'none'; form-action 'self'"
)
DEMO_POLICY = "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:"
SITE = Path(__file__).parents[2] / ".github/site"
RECORD = """window.violations = [];
document.addEventListener("securitypolicyviolation", (one) =>
  violations.push(`${one.effectiveDirective} ${one.blockedURI} ${one.sourceFile}`));"""
OWNED = f"() => Object.keys(window).filter((name) => name.startsWith('{MARK}'))"
SESSION = f"""import dgkit
TEXTS = {list(HOSTILE_TEXTS.values())!r}
session = dgkit.connect()
for text in TEXTS:
    name = "".join(one for one in text if ord(one) > 31 and not 127 <= ord(one) < 160)[:128]
    session.empty(64, name=name)
dgkit.dashboard(session)"""
FIGURES = """from bokeh.plotting import figure
from dgkit.widgets import show
drawn = figure(title=" ".join(TEXTS[:8]), height=120)
drawn.line([1, 2], [1, 2], legend_label=TEXTS[0])
show(drawn)
for region in session.regions:
    display(region)
display(session)"""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabPage]:
    with lab(tmp_path_factory.mktemp("strict"), policy=POLICY) as server:
        strict = LabPage(server, browser)
        strict.page.add_init_script(RECORD)
        yield strict.go()
        strict.close()


def own_violations(page: LabPage) -> list[str]:
    """Return the violations except that of an inline script in JupyterLab's own page."""
    own = f"script-src-elem inline {page.lab.url}lab"
    return [text for text in page.page.evaluate("violations") if text != own]


def strangers_notebook(path: Path) -> None:
    """Write a notebook whose saved widget has code for the page, as its outputs do."""
    code = f"window.{MARK}Saved = 1; export default {{ render() {{}} }}"
    state = anywidget.AnyWidget().get_state() | {"_anywidget_id": "x", "_esm": code, "_css": ""}
    del state["layout"]
    names = ("model_module", "model_module_version", "model_name")
    model = {name: state[f"_{name}"] for name in names}
    version = {"version_major": 2, "version_minor": 0}
    widget = {**model, "state": state}
    book = notebook("")
    saved = {**version, "state": dict.fromkeys(("saved", "undefined"), widget)}
    book.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": saved}
    view = {WIDGET: {**version, "model_id": "saved"}, "text/html": HOSTILE_TEXTS["element"]}
    book.cells[0].outputs = [nbformat.v4.new_output("display_data", data=view)]
    nbformat.write(book, path)


def test_a_strangers_notebook_runs_no_code_until_it_is_trusted(page: LabPage) -> None:
    strangers_notebook(page.lab.root / "stranger.ipynb")
    book = Notebook(page, "stranger.ipynb").open()
    book.cell("import ipywidgets\nipywidgets.IntSlider()")
    expect(page.page.locator(".widget-slider")).to_be_visible()  # the saved ones would be restored
    assert page.page.evaluate(OWNED) == []
    # Jupyter's server signs a notebook as soon as it is saved without a stranger's outputs.
    book.command("notebook:clear-all-cell-outputs")
    book.cell("1 + 1")
    book.save()
    page.go()
    Notebook(page, "stranger.ipynb").open()
    book.cell("import ipywidgets\nipywidgets.IntSlider()")
    expect(page.page.locator(".widget-slider")).to_be_visible()
    assert page.page.evaluate(OWNED) == []
    signed = page.lab.root / "signed.ipynb"
    strangers_notebook(signed)
    data = page.lab.root.parent / "home/data"  # of the server
    NotebookNotary(data_dir=str(data)).sign(nbformat.read(signed, as_version=4))
    Notebook(page, signed.name).open()
    page.page.wait_for_function(f"() => window.{MARK}Saved")
    page.go()  # two models have the code: the second may run later


def test_hostile_names_and_a_hostile_snapshot_under_a_strict_policy(page: LabPage) -> None:
    book = page.notebook("hostile")
    book.cell(SESSION)
    for name in PANELS:
        book.ready(name)
    book.cell(FIGURES)
    book.ready("figure")
    path = page.lab.root / "hostile.snap"
    planted_snapshot("not-root", HOSTILE_TEXTS["element"]).save(path)
    book.cell(f"dgkit.DoctorPanel({os.fspath(path)!r})")
    expect(book.ready("doctor")).to_have_attribute("data-running", "false")
    capture = page.lab.root / "hostile.pcapng"
    capture.write_bytes(
        HEAD + b"".join(packet(PING, rule=text[:1500]) for text in HOSTILE_TEXTS.values())
    )
    book.cell(f"dgkit.PacketPanel({os.fspath(capture)!r})")
    packets = book.ready("packets").get_by_role("region", name="Packets, oldest first")
    expect(packets.locator("tbody tr")).to_have_count(len(HOSTILE_TEXTS))
    page.page.wait_for_function("() => Bokeh.documents.length >= 2")
    assert page.page.evaluate(OWNED) == []
    assert own_violations(page) == []
    page.check()


def planted(value: Any, texts: Iterator[str]) -> Any:
    """Return what a kernel sent, with hostile text behind each text."""
    if isinstance(value, dict):
        kept = ("kind", "call", "id", "bokeh")
        return {k: v if k in kept else planted(v, texts) for k, v in value.items()}
    if isinstance(value, list):
        return [planted(each, texts) for each in value]
    return value + next(texts) if isinstance(value, str) and value[:10] != "IPY_MODEL_" else value


def test_a_hostile_recording_in_the_demo_page_without_inline_scripts_and_eval(
    browser: Browser, tmp_path: Path
) -> None:
    run_path(str(SITE / "demo_page.py"))["write_demo"](tmp_path)
    recording = json.loads(gzip.decompress((SITE / "recording.json.gz").read_bytes()))
    texts = itertools.cycle(text[:2000] for text in HOSTILE_TEXTS.values())
    first = recording["messages"][0][0]
    for message in recording["messages"]:
        message[0] = first + (message[0] - first) / 20  # of the seconds that it took
        if message[2] == "from":
            message[3] = planted(message[3], texts)
    packed = base64.b64encode(gzip.compress(json.dumps(recording).encode())).decode()
    script = tmp_path / "recording.js"
    script.write_text(
        f'window.dgkitRecording = "{packed}";\n{script.read_text().split(chr(10))[1]}'
    )
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        path = tmp_path / asked[-1].rpartition("/")[2]
        route.fulfill(path=path, headers={"content-security-policy": DEMO_POLICY})

    page = browser.new_page()
    page.add_init_script(RECORD)
    page.route("**/*", answer)
    page.goto("http://demo.invalid/demo.html")
    page.get_by_role("button", name="Play again").wait_for()
    assert page.locator(".dgkit-dashboard").get_by_text("<img src=x onerror=").count()
    assert page.evaluate(OWNED) == []
    assert page.evaluate("violations") == []
    assert all(url.startswith("http://demo.invalid/") for url in asked)
    page.close()
