# SPDX-License-Identifier: Apache-2.0
"""Cards and figures where no live view can be: exported pages, notebooks that are not trusted."""

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


def saved(path):
    """The cards and the figures in the outputs of a saved notebook."""
    cells = nbformat.read(path, as_version=4).cells
    data = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    pages = [each.get("text/html", "") for each in data]
    cards = [page for page in pages if "dgkit-saved" in page]
    return cards, [each["image/png"] for each in data if "image/png" in each]


def shown(notebook, what=".dgkit-saved"):
    """The cards of the notebook in front, or what else is given."""
    return notebook.page.locator(f".jp-NotebookPanel:not(.lm-mod-hidden) :is({what})")


def text(notebook):
    """The text of its outputs."""
    return notebook.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)").inner_text()


IMAGE = ".jp-RenderedImage img"


# What the page of a notebook with its widgets' state does; returns the height of the view's output.
WITHOUT_KERNEL = """async ([esm, css]) => {
  const output = document.createElement("div"), style = document.createElement("style");
  const none = () => {};
  output.className = "jp-OutputArea-child";
  style.textContent = css;
  document.querySelector(".dgkit-saved").closest(".jp-OutputArea-child").before(output);
  document.head.append(style);
  const module = await import(URL.createObjectURL(new Blob([esm], {type: "text/javascript"})));
  await module.default.render({model: {get: none, on: none, off: none, send: none}, el: output});
  if (!output.textContent.includes("Waiting")) throw new Error(output.outerHTML);
  return output.getBoundingClientRect().height;
}"""


def test_cards_are_hidden_beside_the_live_view_renewed_and_shown_without_it(notebook, browser):
    notebook.cell(SETUP)
    notebook.cell(FIGURE)
    notebook.ready("hexview")
    expect(shown(notebook)).to_have_count(2)
    for nth in range(2):
        expect(shown(notebook).nth(nth)).to_be_hidden()
    (first, _), _ = saved(notebook.save())
    notebook.cell("s.write(region, b'written later'); view.goto(0x200)")
    path = until(
        lambda: saved(notebook.save())[0][0] != first and notebook.save(), "the card is renewed"
    )
    _, (figure,) = saved(path)
    assert Image.open(io.BytesIO(base64.b64decode(figure))).width == 720
    expect(shown(notebook, IMAGE)).to_be_hidden()

    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        cell.source += "\n# from somebody else"
    nbformat.write(book, path.with_name("distrusted.ipynb"))
    strange = Notebook(notebook.lab_page, "distrusted.ipynb").open()
    expect(shown(strange, IMAGE)).to_be_visible()
    expect(shown(strange, "pre").filter(has_text="00000200").first).to_be_visible()
    assert "display: none" not in text(strange)
    notebook.lab_page.shot("static-not-trusted")

    page, _ = HTMLExporter().from_filename(str(path))
    exported = path.with_suffix(".html")
    exported.write_text(page, encoding="utf-8")
    context = browser.new_context(offline=True)
    try:
        tab = context.new_page()
        tab.goto(exported.as_uri())
        expect(tab.locator(IMAGE)).to_be_visible()
        for nth in range(2):
            expect(tab.locator(".dgkit-saved").nth(nth)).to_be_visible()
        tab.screenshot(path=path.with_suffix(".png"), full_page=True)
        assert tab.evaluate(WITHOUT_KERNEL, notebook.value("[view._esm, view._css]")) == 0
    finally:
        context.close()


CONTAINERS = """
import ipywidgets as W
plot = dgkit.LatencyPlot(s, region)
display(W.HBox([dgkit.HexView(s, region)]))
display(W.Tab([plot]))
W.interact(lambda number: dgkit.TransferPanel(s), number=(0, 3));
"""
TEXTS = ("Loading widget", "Error displaying widget", "model not found")


def test_cards_of_containers_are_hidden_beside_them_and_shown_where_the_notebook_is_reopened(
    notebook,
):
    notebook.cell(SETUP)
    notebook.cell(CONTAINERS)
    for name in ("hexview", "latency", "transfer"):
        notebook.ready(name)
    expect(shown(notebook)).to_have_count(5)  # the one within interact's Output, too
    for nth in range(5):
        expect(shown(notebook).nth(nth)).to_be_hidden()
    path = notebook.save()
    assert len(saved(path)[0]) == 4
    path.with_name("again.ipynb").write_bytes(path.read_bytes())
    again = Notebook(notebook.lab_page, "again.ipynb").open()
    expect(shown(again)).to_have_count(4)
    for nth in range(4):
        expect(shown(again).nth(nth)).to_be_visible()
    again.quiet()
    expect(again.page.get_by_text("model not found").first).to_be_hidden()
    assert [said for said in TEXTS if said in text(again)] == []
    notebook.lab_page.shot("static-reopened")


def test_a_notebook_that_is_reopened_without_a_kernel_shows_its_cards(new_page):
    notebook = new_page.notebook("kernel")
    notebook.cell(SETUP)
    notebook.ready("hexview")
    path = notebook.save()
    path.with_name("no_kernel.ipynb").write_bytes(path.read_bytes())
    # ipywidgets' manager itself fails where a notebook has no kernel, at some later time
    new_page.forgiven = "jupyterlab-manager/static"
    opening = {"path": "no_kernel.ipynb", "factory": "Notebook"}
    alone = {
        "kernelPreference": {"shouldStart": False, "canStart": False, "autoStartDefault": False}
    }
    new_page.ask(
        "async (args) => { const made = await app.commands.execute('docmanager:open', args);"
        " await made.context.ready; app.shell.activateById(made.id); }",
        opening | alone,
    )
    expect(shown(notebook)).to_be_visible()
    assert [said for said in TEXTS if said in text(notebook)] == []


def test_a_plot_is_saved_as_it_is_while_it_runs(notebook):
    notebook.cell(SETUP)
    notebook.cell("plot = dgkit.LatencyPlot(s, region)\nplot.start()\nplot")
    notebook.ready("latency")
    until(lambda: saved(notebook.save())[1], "it has a figure", 20)
    _, before = saved(notebook.save())
    until(lambda: saved(notebook.save())[1] != before, "the saved figure is renewed", 20)
    notebook.cell("plot.stop()")


def test_without_a_widget_manager_the_file_has_a_card_and_no_text_of_widgets(notebook):
    notebook.cell(SETUP)
    notebook.cell("import ipywidgets as W\nW.VBox([dgkit.AllocatePanel(s)])")
    notebook.ready("allocate")
    path = notebook.save()
    assert len(saved(path)[0]) == 2
    page, _ = HTMLExporter().from_filename(str(path))
    assert [said for said in TEXTS if said in page] == []


# A save that begins while the kernel still answers a panel.
SAVE_BUSY = """async (path) => {
  const panel = find(path), kernel = panel.sessionContext.session.kernel;
  let status = "busy";
  Object.defineProperty(kernel, "status", { get: () => status, configurable: true });
  const saved = panel.context.save();
  await new Promise((resolve) => requestAnimationFrame(resolve));
  status = "idle";
  kernel.statusChanged.emit(status);
  await saved;
  delete kernel.status;
}"""


def test_saving_while_the_kernel_answers_a_panel_renews_the_cards(notebook):
    notebook.cell("from dgkit.widgets.base import static_output\nstatic_output._WAIT_S = 1e9")
    notebook.cell(SETUP)
    notebook.ready("hexview")
    path = notebook.save()
    (first, *_), _ = saved(path)
    notebook.cell("view.goto(0x200)")
    notebook.lab_page.ask(SAVE_BUSY, notebook.path)
    (second, *_), _ = saved(path)
    assert second != first


def test_saving_renews_the_cards_also_in_a_page_that_was_reloaded(notebook):
    notebook.cell("from dgkit.widgets.base import static_output\nstatic_output._WAIT_S = 1e9")
    notebook.cell(SETUP)
    notebook.ready("hexview")
    (first, *_), _ = saved(notebook.save())
    notebook.cell("view.goto(0x200)")
    (second, *_), _ = saved(notebook.save())
    assert second != first

    notebook.lab_page.reload()
    notebook.open()
    notebook.ready("hexview")
    notebook.cell("view.goto(0x400)")
    (third, *_), _ = saved(notebook.save())
    assert third not in (first, second)
    notebook.cell("import threading\nended = threading.Event()")
    notebook.cell("ended.wait(60)", wait=False)
    until(notebook.busy, "the kernel is busy")
    notebook.save()  # at once
    assert notebook.busy()
    notebook.interrupt()
