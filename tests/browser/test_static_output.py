"""Static pictures where no live view can be: exported pages, notebooks that are not trusted."""

import base64
import io

import nbformat
from nbconvert import HTMLExporter
from PIL import Image
from playwright.sync_api import expect
from support.jupyter.page import Notebook
from support.processes.waiting import until

SETUP = """
import dgkit
from bokeh.plotting import figure
from dgkit.widgets import show
s = dgkit.connect()
region = s.empty(4096, name="pictured")
view = dgkit.HexView(s, region)
view
"""
FIGURE = """
fig = figure(title="a line", height=200)
fig.line([1, 2, 3], [3, 1, 2])
show(fig)
"""


def pictures(path):
    """The PNG files in the outputs of a saved notebook."""
    cells = nbformat.read(path, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    return [
        base64.b64decode(output["data"]["image/png"])
        for output in outputs
        if "image/png" in output.get("data", ())
    ]


def test_a_picture_is_hidden_beside_its_live_view_renewed_and_shown_without_it(notebook, browser):
    notebook.cell(SETUP)
    notebook.cell(FIGURE)
    notebook.ready("hexview")
    images = notebook.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-RenderedImage img")
    expect(images).to_have_count(2)
    for nth in range(2):
        expect(images.nth(nth)).to_be_hidden()
    first, _ = pictures(notebook.save())
    notebook.cell("s.write(region, b'written later'); view.goto(0x200)")
    path = until(
        lambda: pictures(notebook.save())[0] != first and notebook.save(), "the picture is renewed"
    )
    assert all(Image.open(io.BytesIO(png)).width == 720 for png in pictures(path))

    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        cell.source += "\n# from somebody else"
    nbformat.write(book, path.with_name("strange.ipynb"))
    strange = Notebook(notebook.lab_page, "strange.ipynb").open()
    shown = strange.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-RenderedImage img")
    for nth in range(2):
        expect(shown.nth(nth)).to_be_visible()
    notebook.lab_page.shot("static-not-trusted")

    page, _ = HTMLExporter().from_filename(str(path))
    exported = path.with_suffix(".html")
    exported.write_text(page, encoding="utf-8")
    context = browser.new_context(offline=True)
    try:
        tab = context.new_page()
        tab.goto(exported.as_uri())
        for nth in range(2):
            expect(tab.locator(".jp-RenderedImage img").nth(nth)).to_be_visible()
        tab.screenshot(path=path.with_suffix(".png"), full_page=True)
    finally:
        context.close()
