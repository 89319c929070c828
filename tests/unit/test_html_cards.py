# SPDX-License-Identifier: Apache-2.0
"""HTML cards and charts stay inside their box whatever their content, trusted or not."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.jupyter.html import Reader

import dgkit
from dgkit import html_cards
from dgkit.types import provider_label

# Elements and attributes that JupyterLab keeps in the output of an untrusted notebook.
TAGS = {"div", "span", "strong", "table", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"style", "title", "scope"}
nasty = st.text() | st.sampled_from(
    ["</td></table><script>x()</script>", '"><img src=x onerror=x()>', "'\"<&>", "<!--", "]]>"]
)


def shape(page):
    read = Reader(page)
    assert not read.open
    assert not read.other
    return read.tags, [name for name, _ in read.attributes]


@given(nasty, st.lists(st.tuples(nasty, nasty | st.integers() | st.none())), nasty, nasty, nasty)
def test_no_input_adds_or_removes_an_element(title, rows, badge, body, note):
    page = html_cards.card(title, rows, badge=badge, body=body, note=note)
    plain = html_cards.card(
        "a", [("b", "c") for _ in rows], badge="d" * bool(badge), body="e", note="f" * bool(note)
    )
    assert shape(page) == shape(plain)


@given(nasty.filter(lambda text: text.strip() and "\r" not in text and "\0" not in text))
def test_text_is_shown_as_it_is(text):
    assert text in Reader(html_cards.card("title", [("name", text)])).texts


def test_a_card_is_a_plain_str_that_any_host_can_serialize():
    assert type(html_cards.card("title", [])) is str


def test_what_is_html_already_stays_html():
    page = html_cards.card(
        "t", [("state", html_cards.badge("on"))], badge=html_cards.badge("<soft>")
    )
    assert Reader(page).texts[:3] == ["t", " ", "<soft>"]
    assert Reader(page).tags.count("span") == 2


bins = st.lists(st.integers(0, 10**12), min_size=2, max_size=60, unique=True).map(sorted)


@given(bins.flatmap(lambda e: st.tuples(st.just(e), st.lists(
    st.integers(0, 10**6), min_size=len(e) - 1, max_size=len(e) - 1))), nasty)  # fmt: skip
@example(([0, 1], [0]), "p50")
def test_a_chart_is_inside_its_box_whatever_the_samples(histogram, label):
    edges, counts = histogram
    read = Reader(html_cards.chart(edges, counts, [(label, edges[-1])]))
    assert sum(
        value.endswith(" samples") for name, value in read.attributes if name == "title"
    ) == (sum(count > 0 for count in counts))
    for name, value in read.attributes:
        if name == "style":
            for place in value.split(";"):
                key, _, amount = place.partition(":")
                if key in ("left", "bottom", "height", "width") and amount.endswith("%"):
                    assert 0 <= float(amount[:-1]) <= 100.3


@given(nasty)
def test_nothing_that_jupyterlab_would_drop_is_needed(text):
    """No svg, style or script; and each colour is there without the theme's variable, too."""
    page = html_cards.card(
        text, [(text, text)], badge=html_cards.badge(text, warn=True), note=text,
        body=html_cards.chart([100, 200, 400], [3, 1], [("p50", 150)]),
    )  # fmt: skip
    read = Reader(page)
    assert set(read.tags) <= TAGS
    assert {name for name, _ in read.attributes} <= ATTRIBUTES
    for name, value in read.attributes:
        if name == "style":
            themed = {p.partition(":")[0] for p in value.split(";") if "var(" in p}
            plain = {p.partition(":")[0] for p in value.split(";") if "var(" not in p}
            assert all(any(key in (p, f"{p}-color") for p in plain) or "border" in key
                       for key in themed)  # fmt: skip


def test_the_axis_names_its_unit_and_its_scale():
    page = html_cards.chart([100, 200, 400], [3, 1])
    assert "µs, log scale" in page
    assert "samples, log scale" in page


@pytest.mark.parametrize("edges", [[100, 104], [100, 1000], [1, 10**9], [0, 1], [999_999, 10**6]])
def test_an_axis_has_from_two_to_twelve_ticks(edges):
    low, high = html_cards._span(edges[0], edges[-1])
    assert 2 <= len(list(html_cards._round_times(low, high))) <= 12


@pytest.mark.parametrize(
    ("provider", "label"),
    [("soft", "software DPU"), ("fault", "software DPU, injected faults"), ("doca", "hardware"),
     ("cuda", "software DPU, GPU copy engine"), ("verbs", "RDMA"), ("new", "software DPU")],
)  # fmt: skip
def test_only_a_dpu_of_its_own_is_called_hardware(provider, label):
    assert provider_label(provider) == label
    shown = Reader(html_cards.provider_badge(provider))
    assert shown.texts == [label]
    warned = any("#a34a00" in value for name, value in shown.attributes if name == "style")
    assert warned is (label != "hardware")


def test_a_transfer_s_report_is_a_card_with_what_each_dma_took():
    with dgkit.connect() as session:
        report = session.write(session.empty(64), b"abc")
        texts = Reader(report._repr_html_()).texts
    assert {"Transfer", "software DPU", "OK", "3 B, in 1 piece", "DMA reads"} <= set(texts)
    assert f"{report.write_ns / 1000:.2f} µs in all" in texts
    assert any(text.startswith("WRITE, inline, ") for text in texts)
