# SPDX-License-Identifier: Apache-2.0
"""Figures of an exported page: interactive, offline, with BokehJS once."""

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import expect
from traitlets.config import Config

SOURCE = """
from bokeh.plotting import figure
from dgkit.widgets import show
for name in ("first", "second"):
    fig = figure(title=f"{name}, with </script> in its title", height=200, name=name)
    fig.line([1, 2, 3], [3, 1, 2])
    show(fig)
"""
DRAWN = (
    "() => Bokeh.documents.flatMap((one) => one.roots()).filter((one) => one.inner_width).length"
)
RANGE = "() => Bokeh.documents[0].get_model_by_name('first').x_range.start"


def exported(tmp_path):
    """The page of a notebook that was run with no browser."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SOURCE)])
    NotebookClient(book, timeout=60, kernel_name="python3").execute()
    assert "image/png" in book.cells[0].outputs[2]["data"]
    config = Config()
    config.HTMLExporter.preprocessors = ["dgkit.widgets.figure.inline.InlineFigures"]
    text, _ = HTMLExporter(config=config).from_notebook_node(book)
    path = tmp_path / "exported.html"
    path.write_text(text, encoding="utf-8")
    return path


def test_an_exported_page_has_its_figures_without_a_kernel_or_a_network(browser, tmp_path):
    path = exported(tmp_path)
    context = browser.new_context(offline=True)
    errors = []
    try:
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(error.message))
        page.goto(path.as_uri())
        page.wait_for_function(f"window.Bokeh && ({DRAWN})() === 2")
        plot = page.locator(".bk-Figure").first
        expect(plot).to_be_visible()
        expect(page.locator(".jp-RenderedImage")).to_have_count(0)
        before = page.evaluate(RANGE)
        box = plot.locator(".bk-events").first.bounding_box()
        for _ in range(50):  # a drag before Bokeh listens pans nothing
            page.mouse.move(box["x"] + 200, box["y"] + 100)
            page.mouse.down()
            page.mouse.move(box["x"] + 260, box["y"] + 100, steps=3)  # pans
            page.mouse.up()
            if page.evaluate(RANGE) < before:
                break
            page.wait_for_timeout(200)
        assert page.evaluate(RANGE) < before
    finally:
        context.close()
    assert not [error for error in errors if "Bokeh" in error], errors
