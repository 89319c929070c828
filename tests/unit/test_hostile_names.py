# SPDX-License-Identifier: Apache-2.0
"""Names of a peer, or of a file: plain text in cards, tables of a terminal and code for a cell."""

import ast
import io

import pytest
from rich.console import Console
from support.hostile import HOSTILE_TEXTS, MARK
from support.jupyter.html import Reader

from dgkit.cli.tables import plain_table
from dgkit.html_cards import badge, card, chart, table
from dgkit.widgets.base import as_python


@pytest.fixture(params=HOSTILE_TEXTS)
def text(request):
    return HOSTILE_TEXTS[request.param]


def test_a_card_has_no_element_and_no_attribute_of_a_name(text):
    body = table(text, [text], [[text, badge(text)]])
    page = Reader(card(text, [(text, text)], badge=text, note=text, body=body))
    page.feed(chart([1, 10], [1], [(text, 5)]))
    assert set(page.tags) <= {
        *("div", "span", "strong", "table", "tbody", "thead", "tr", "th", "td", "caption"),
    }
    assert {name for name, _ in page.attributes} <= {"style", "scope", "title"}
    assert MARK not in "".join(value for _, value in page.attributes)
    assert not page.other


def test_a_table_of_a_terminal_shows_a_name_as_it_is_without_its_escapes(text):
    out = io.StringIO()
    Console(file=out, width=400, force_terminal=True, highlight=False).print(
        plain_table("Pairs", ("pair", "state"), [("[/red] [link=x]y[/]", text[:200])])
    )
    shown = out.getvalue()
    assert "[/red] [link=x]y[/]" in shown
    assert shown.count("\x1b") <= 8  # of the title alone
    assert not {"\x07", "\x9b", "\u202e", "\u2066"} & {*shown}


class Session:
    def __init__(self, name):
        self.regions = [type("Region", (), {"name": name, "session": self, "id": 7})()]


def test_code_for_a_cell_has_a_name_as_a_literal(text):
    region = Session(text).regions[0]
    (line,) = as_python.region_lines(region)
    (assigned,) = ast.parse(line).body
    literals = [one.value for one in ast.walk(assigned) if isinstance(one, ast.Constant)]
    assert literals == [text]
    assert line.isprintable()
    assert isinstance(assigned, ast.Assign)
