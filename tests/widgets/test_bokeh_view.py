# SPDX-License-Identifier: Apache-2.0
"""BokehView: figures in both themes, BokehJS from the installed package, text alternatives."""

import subprocess
import sys

import pytest
from bokeh.document import Document
from bokeh.layouts import row
from bokeh.models import DataTable, FactorRange, Slider, TableColumn
from bokeh.plotting import figure
from support.jupyter.panels import PanelError

from dgkit import cell_lifetime, widgets
from dgkit.widgets.figure import bokehjs
from dgkit.widgets.figure import figure as bokeh_view
from dgkit.widgets.figure.figure import BokehView


def picture(title="Bytes over time"):
    made = figure(title=title, height=200)
    made.line([1, 2, 3], [3, 1, 2])
    return made


def test_a_view_gets_its_figure_in_the_theme_of_its_page(view):
    shown = view(BokehView(picture()))
    dark, light = (shown.ask("figures", dark=dark) for dark in (True, False))
    assert "#20262B" in dark["document"]
    assert "#20262B" not in light["document"]
    assert "Bytes over time" in light["document"]
    assert dark["components"] == []


def test_in_the_dark_theme_text_is_light_and_takes_no_more_room():
    made = figure(title="a title", x_range=FactorRange(("a", "b"), ("a", "c")), height=200)
    made.vbar(x=[("a", "b")], top=[1], legend_label="bars")
    document = Document()
    document.add_root(made)
    parts = {
        made.title: ("text",),
        made.yaxis[0]: ("axis_label_text", "major_label_text"),
        made.legend[0]: ("label_text",),
    }

    def of(what):
        names = [(part, f"{name}_{what}") for part, all in parts.items() for name in all]
        return [getattr(part, name) for part, name in names]

    layout = of("font_size") + of("font") + of("font_style") + [made.legend[0].glyph_width]
    document.theme = bokehjs._dark_theme()
    assert of("font_size") + of("font") + of("font_style") + [made.legend[0].glyph_width] == layout
    light = {*of("color"), made.xaxis[0].group_text_color}
    assert len(light) == 1
    assert light <= {"#E0E0E0"}
    assert made.border_fill_alpha == made.background_fill_alpha == 0


def test_bokehjs_is_that_of_the_installed_package_and_comes_as_bytes(view):
    reply = view(BokehView(picture())).ask("bokehjs", names=["bokeh"])
    import bokeh

    (script,) = reply["buffers"]
    assert len(script) > 1_000_000
    assert bokeh.__version__.encode() in script


def test_parts_of_bokehjs_come_where_a_document_needs_them(view):
    table = DataTable(columns=[TableColumn(field="a")])
    fast = picture()
    fast.output_backend = "webgl"
    shown = view(BokehView(row(Slider(start=0, end=1, value=0), table), fast))
    needed = shown.ask("figures", dark=False)["components"]
    assert needed == ["widgets", "tables", "gl"]
    assert len(shown.ask("bokehjs", names=needed)["buffers"]) == 3
    with pytest.raises(PanelError, match="no part 'api'"):
        shown.ask("bokehjs", names=["api"])


def test_a_view_knows_which_roots_are_its_own(view):
    first, second = picture("first"), picture("second")
    both = view(BokehView(first, second))
    one = view(BokehView(second))
    assert both.ask("hello")["roots"] == [first.id, second.id]
    assert both.ask("hello")["bokeh"] == bokehjs.version()
    assert one.ask("hello")["roots"] == [second.id]


def test_without_a_kernel_its_text_alternative_is_shown(view):
    panel = view(BokehView(picture(), alt="A line that falls <and> rises")).panel
    assert "falls &lt;and&gt; rises" in panel.static_html()
    assert "falls" in panel.static_text()
    assert "Bytes over time" in view(BokehView(picture())).panel.static_html()
    assert view(BokehView(picture(title=""))).panel.static_html()


def test_a_saved_notebook_has_none_of_its_data(view):
    shown = view(BokehView(picture())).panel._repr_mimebundle_()
    assert len(str(shown)) < 2000


def test_nothing_to_show_is_an_error():
    with pytest.raises(ValueError, match="no figure"):
        BokehView()


def test_show_displays_it_and_the_next_run_of_the_cell_closes_it(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    for run in ("run 1", "run 2"):
        monkeypatch.setattr(cell_lifetime, "current_run", lambda run=run: ("cell", run))
        assert widgets.show(picture(), alt=run) is None
    first, second = shown
    assert first.closed
    assert second.alt == "run 2"
    second.close()
    assert widgets.show is bokeh_view.show


def test_a_panel_with_figures_is_there_before_bokeh_is():
    code = "import sys; from dgkit import LatencyPlot; print('bokeh' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_version_is_found_without_an_import_of_bokeh():
    import bokeh

    assert bokehjs.version() == bokeh.__version__


def test_outside_a_kernel_no_cell_runs():
    assert cell_lifetime.current_run() == ("", "")
