# SPDX-License-Identifier: Apache-2.0
"""Base class of all panels: calls, errors, state for a new view, content of a saved notebook."""

import pytest
from support.jupyter.panels import PanelError

from dgkit.errors import BoundsError, PeerLost
from dgkit.widgets.base.panel import Panel, handler


class Sample(Panel):
    name = "figure"  # any panel's
    title = "A sample"

    def state(self):
        return {"count": 3}

    def state_buffers(self):
        return [b"abc"]

    @handler
    def double(self, value, buffers=()):
        return {"value": 2 * value}, [bytes(buffer)[::-1] for buffer in buffers]

    @handler
    def fails(self, how):
        raise how if isinstance(how, Exception) else BoundsError("9 bytes at offset 8")

    @handler
    def none(self):
        buffers = b"a local variable, and no parameter"
        return {"size": len(buffers)}

    def secret(self):
        raise AssertionError("no view may call this")

    @property
    def costly(self):
        raise AssertionError("no view may run this")


@pytest.fixture
def sample(view):
    return view(Sample())


def test_a_new_view_gets_the_whole_state(sample):
    assert sample.ask("hello") == {"title": "A sample", "count": 3, "buffers": [b"abc"]}


def test_a_call_returns_fields_and_buffers(sample):
    assert sample.ask("double", value=4, buffers=[b"xyz"]) == {"value": 8, "buffers": [b"zyx"]}


@pytest.mark.parametrize("name", ["secret", "costly", "close", "_call", "nothing", 7, None])
def test_a_view_can_call_handlers_and_nothing_else(sample, name):
    with pytest.raises(PanelError, match="no handler") as caught:
        sample.ask(name)
    assert caught.value.kind == "ValueError"


def test_only_a_parameter_of_that_name_gets_the_buffers(sample):
    assert sample.ask("none", buffers=[b"xyz"])["size"] == 34


@pytest.mark.parametrize("fields", [[1], "text", 7])
def test_fields_that_are_no_fields_are_an_error(sample, fields):
    sample.panel._handle_custom_msg({"id": 1, "call": "hello", "fields": fields}, [])
    assert "invalid message" in sample.of("reply")[-1]["error"]["text"]


@pytest.mark.parametrize("content", [None, [], "text", 7])
def test_what_is_no_message_is_logged_and_no_more(sample, content, caplog):
    sample.panel._handle_custom_msg(content, [])
    assert "invalid message" in caplog.text
    assert sample.ask("hello")


def test_an_error_reaches_the_view_in_words_with_the_way_out(sample):
    with pytest.raises(PanelError, match="9 bytes at offset 8") as caught:
        sample.ask("fails", how=1)
    assert caught.value.kind == "BoundsError"
    assert caught.value.hint


def test_fields_that_a_handler_does_not_know_are_an_error(sample):
    with pytest.raises(PanelError, match="invalid message"):
        sample.ask("double", size=1)


def test_an_error_of_the_panel_itself_is_sent_to_all_views(sample):
    sample.panel.fail(PeerLost("the process is gone"))
    (message,) = sample.of("failed")
    assert message["error"]["text"] == "the process is gone"
    assert "again" in message["error"]["hint"]


def test_an_unforeseen_error_is_shown_and_logged(sample, caplog):
    with pytest.raises(PanelError, match="division"):
        sample.ask("fails", how=ZeroDivisionError("division by zero"))
    assert "ZeroDivisionError" in caplog.text


def test_nothing_but_module_and_style_is_a_trait(sample):
    kept = {key for key in sample.panel.get_state() if not key.startswith("_")}
    assert kept <= {"comm", "layout", "tooltip", "tabbable"}


def test_a_reader_without_a_kernel_sees_something(sample):
    data = sample.panel._repr_mimebundle_()
    bundle = data[0] if isinstance(data, tuple) else data
    assert "A sample" in bundle["text/html"]
    assert bundle["text/plain"] == "<dgkit.Sample>"
    assert "application/vnd.jupyter.widget-view+json" in bundle


def test_a_closed_panel_answers_no_more_and_may_be_closed_again(sample):
    sample.panel.close()
    sample.panel.close()
    sample.panel.broadcast("anything")
    with pytest.raises(StopIteration):
        sample.ask("hello")


def test_the_number_of_a_state_is_no_newer_than_the_state(sample):
    """A change while the state is taken sends one with a higher number."""

    def snapshot():
        sample.panel.broadcast_state("part", lambda: {"value": "after the change"})
        return {"value": "before it"}

    sample.panel.broadcast_state("part", snapshot)
    newest = max(sample.of("part"), key=lambda message: message["snapshot"])
    assert newest["value"] == "after the change"
    assert sample.of("part")[-1]["value"] == "before it"
