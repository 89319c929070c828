# SPDX-License-Identifier: Apache-2.0
"""What a stranger's snapshot shows: plain text in a card, a page of a terminal and a panel."""

import re

import pytest
from support.doctor.hostile import planted_snapshot
from support.hostile import HOSTILE_TEXTS, MARK
from support.jupyter.html import Reader

from dgkit.doctor.collect.snapshot import RecordedReader
from dgkit.doctor.format.explain import explain
from dgkit.doctor.format.notebook import text
from dgkit.doctor.format.report import report
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine
from dgkit.doctor.runner import diagnose
from dgkit.widgets.doctor.serialize import serialize_diagnosis, serialize_machine
from dgkit.widgets.doctor.topology_model import topology_model

KEPT = {"div", "span", "strong", "table", "tbody", "thead", "tr", "th", "td", "caption", "pre", "a"}
KEPT |= {"details", "summary"}


def texts_of(value):
    """Yield all texts in plain values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.items() if isinstance(value, dict) else value:
            yield from texts_of(item)


@pytest.fixture(scope="module", params=HOSTILE_TEXTS)
def made(request):
    snapshot = planted_snapshot("not-root", HOSTILE_TEXTS[request.param])
    return diagnose([Machine(RecordedReader(snapshot), "stranger\x1b[2J<b>.snap")], goal=Goal.RDMA)


def test_a_card_has_the_text_and_no_element_of_it(made):
    card = Reader(made._repr_html_())
    assert set(card.tags) <= KEPT
    assert not card.other
    assert not [name for name, _ in card.attributes if name.startswith("on")]
    links = [value for name, value in card.attributes if name in ("href", "src")]
    assert all(link.startswith("https://") for link in links)
    assert MARK not in "".join(value or "" for _, value in card.attributes)


def test_a_terminal_gets_no_escape_sequence_and_no_bidirectional_override(made):
    lines = "\n".join("".join(span.text for span in line) for line in explain(made))
    for page in (str(made), text(made, verbose=True), report(made), lines, repr(made)):
        assert page.replace("\n", "").isprintable()


def test_a_panel_gets_printable_text_of_a_bounded_size(made):
    values = [serialize_diagnosis(made), serialize_machine(made.case.host)]
    tree = topology_model(made)
    values += [tree.as_dict(tree.nearest)] if tree is not None else []
    assert all(one.isprintable() and len(one) < 5000 for one in texts_of(values))


def test_a_command_to_type_is_one_line_without_the_text(made):
    lines = [line for one in made.findings for line in one.remedy if not line.startswith("#")]
    quoted = re.compile(r"'[^']*'|\"(?:[^\"\\$`]|\\.)*\"")
    assert all(line.isprintable() and MARK not in quoted.sub("", line) for line in lines)
