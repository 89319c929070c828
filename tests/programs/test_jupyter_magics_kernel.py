"""%dma in a real kernel: tab completion, progress bar, Ctrl-C."""

import pytest
from support.jupyter.kernel import kernel

SETUP = """
import dgkit
from dgkit.jupyter import display
%load_ext dgkit
session = dgkit.connect()
region = session.empty(1 << 20, name="grid")
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    with kernel(tmp_path_factory.mktemp("kernel")) as running:
        reply, said = running.run(SETUP)
        assert reply["status"] == "ok", said
        yield running
        running.run("session.close()")


def of_kind(said, *kinds):
    return [content for kind, content in said if kind in kinds]


def is_bar(kind, content):
    page = content.get("data", {}).get("text/html", "")
    return kind in ("display_data", "update_display_data") and "progressbar" in page


@pytest.mark.parametrize("jedi", [True, False])
def test_tab_offers_what_can_follow(notebook, jedi):
    notebook.run(f"get_ipython().Completer.use_jedi = {jedi}")
    assert notebook.complete("%dma re") == ["%dma read"]
    assert notebook.complete("%dma read reg") == ["%dma read region"]
    assert notebook.complete("%%dma\nread gr") == ["%%dma\nread grid"]
    assert notebook.complete("%dma latency grid --path ") == [
        f"%dma latency grid --path {path}" for path in ("auto", "inline", "worker", "GPU-initiated")
    ]
    assert "session.empty" in notebook.complete("session.emp")


def test_what_is_quick_shows_no_bar(notebook):
    reply, said = notebook.run("%dma latency region --count 10")
    assert reply["status"] == "ok"
    assert not of_kind(said, "display_data", "update_display_data")
    assert len(of_kind(said, "execute_result")) == 1


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("latency region --size 1M --count 10000", "latency of write, samples"),
        ("read large", "read large, bytes"),
        ("write large bytes(128 << 20)", "write large, bytes"),
    ],
)
def test_what_takes_long_shows_a_bar_that_is_gone_in_the_end(notebook, line, title):
    notebook.run(
        "display._DELAY_S = display._STEP_S = 0.0\nlarge = session.empty(128 << 20, name='large')"
    )
    reply, said = notebook.run(f"%dma {line};")
    notebook.run("display._DELAY_S, display._STEP_S = 0.4, 0.1\nlarge.close()")
    assert reply["status"] == "ok"
    shown = [(kind, content) for kind, content in said if "data" in kind]
    assert [kind for kind, _ in shown[:1]] == ["display_data"]
    assert {kind for kind, _ in shown[1:]} == {"update_display_data"}
    assert len({content["transient"]["display_id"] for _, content in shown}) == 1
    assert all(is_bar(*each) and title in each[1]["data"]["text/html"] for each in shown[:-1])
    assert shown[-1][1]["data"] == {"text/plain": "", "text/html": ""}


def test_ctrl_c_ends_it_takes_the_bar_away_and_leaves_the_session_usable(notebook):
    cell = "%%dma\nread region --size 4;\nlatency region --size 1M --count 1000000\nread region"
    reply, said = notebook.interrupt_once(cell, is_bar)
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
    assert "line 3: latency region" in "\n".join(reply["traceback"])
    shown = of_kind(said, "display_data", "update_display_data")
    assert shown[-1]["data"] == {"text/plain": "", "text/html": ""}
    reply, said = notebook.run("%dma read region --size 4")
    assert reply["status"] == "ok"
    assert len(of_kind(said, "execute_result")) == 1


def test_ctrl_c_in_a_large_write_stops_it(notebook):
    rules = "[dgkit.FaultRule('delay', min_size=4096, delay_us=50_000)]"
    notebook.run(
        f"slow = dgkit.connect(provider='fault', rules={rules})\n"
        "huge = slow.empty(1 << 28, name='huge'); display._DELAY_S = 0.0"
    )
    reply, _ = notebook.interrupt_once("%dma write huge bytes(1 << 28)", is_bar)
    notebook.run("display._DELAY_S = 0.4")
    assert reply["ename"] == "KeyboardInterrupt"
    reply, said = notebook.run(
        "slow.write(huge, b'after'); print(slow.read(huge, 5)); slow.close()"
    )
    assert reply["status"] == "ok"
    assert of_kind(said, "stream")[0]["text"] == "b'after'\n"


def test_misuse_is_one_line_on_stderr_and_fails_the_cell(notebook):
    reply, said = notebook.run("%dma read nothing")
    assert reply["status"] == "error"
    assert reply["ename"] == "UsageError"
    (stream,) = of_kind(said, "stream")
    assert stream["name"] == "stderr"
    assert stream["text"].startswith("UsageError: `nothing` is not a region. Regions: region")
