"""Tab completion of %dma and %%dma, with and without jedi."""

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import dgkit
from dgkit.jupyter.completer import complete


@pytest.fixture(scope="module")
def session():
    with dgkit.connect() as session:
        yield session


@pytest.fixture(params=[True, False], ids=["jedi", "no jedi"])
def ip(request, session):
    config = Config(HistoryManager={"enabled": False}, Completer={"use_jedi": request.param})
    shell = InteractiveShell.instance(config=config)
    shell.run_line_magic("load_ext", "dgkit")
    shell.push({"count": 7, "blob": b"x", "session": session})
    with session.empty(64, name="grid") as grid, session.empty(64, name="my grid") as other:
        shell.push({"region": grid})
        yield shell
        shell.push({"region": None})
        assert other.name == "my grid"
    shell.run_line_magic("unload_ext", "dgkit")
    InteractiveShell.clear_instance()


def offered(ip, text):
    """The completions that a front end gets, each as the whole line."""
    with provisionalcompleter():
        found = list(ip.Completer.completions(text, len(text)))
    return [text[: each.start] + each.text for each in found]


LINES = [
    ("%dma ", ["%dma read", "%dma write", "%dma latency", "%dma info", "%dma help"]),
    ("%dma re", ["%dma read"]),
    ("x = %dma re", ["x = %dma read"]),
    ("%dma help wr", ["%dma help write"]),
    ("%dma read r", ["%dma read region"]),
    ("%dma read g", ["%dma read grid"]),
    ("%dma read m", ['%dma read "my grid"']),
    ("%dma read 'my g", ["%dma read 'my grid'"]),
    ("%dma read region --", [f"%dma read region --{name}" for name in ("out", "offset", "size")]),
    (
        "%dma read region --size 4 --",
        [f"%dma read region --size 4 --{n}" for n in ("out", "offset")],
    ),
    ("%dma write region --h", ["%dma write region --hex"]),
    ("%dma latency region --op ", [f"%dma latency region --op {op}" for op in ("read", "write")]),
    ("%dma latency region --op=w", ["%dma latency region --op=write"]),
    ("%dma latency region --path wo", ["%dma latency region --path worker"]),
    ("%dma read region --size co", ["%dma read region --size count"]),
    ("%dma read region -o bl", ["%dma read region -o blob"]),
    ("%%dma\nread g", ["%%dma\nread grid"]),
    ("%%dma\nread r\nlatency grid --op r", ["%%dma\nread r\nlatency grid --op read"]),
    ("a = 1\n%dma read g", ["a = 1\n%dma read grid"]),
]


@pytest.mark.parametrize(("text", "lines"), LINES)
def test_a_front_end_gets_what_can_follow_and_nothing_else(ip, text, lines):
    assert offered(ip, text) == lines


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize(("text", "lines"), [line for line in LINES if "\n" not in line[0]])
def test_ip_complete_offers_the_same(ip, text, lines):
    typed, found = ip.complete("", text, len(text))
    assert [text[: len(text) - len(typed)] + each for each in found] == lines


def test_data_is_completed_as_python(ip):
    assert "%dma write region blob" in offered(ip, "%dma write region bl")
    assert any(line.endswith("blob") for line in offered(ip, "%%dma\nwrite region bl"))


def test_a_region_that_was_closed_is_offered_no_more(ip, session):
    with session.empty(8, name="gone"):
        assert "%dma read gone" in offered(ip, "%dma read go")
    assert "%dma read gone" not in offered(ip, "%dma read go")


@pytest.mark.parametrize(
    "text", ["dmax re", "x.dma re", "'%dma re", "# %dma re", "%%dmax\nre", "re"]
)
def test_other_lines_are_left_alone(text):
    assert complete(text, {}) == ("", [], False)


def test_behind_a_comment_nothing_is_offered():
    assert complete("%dma read r # --", {})[1] == []
    assert complete("%%dma\n# re", {})[1] == []


def test_the_cursor_may_stand_within_the_text(ip):
    text = "%dma re\n%dma info"
    with provisionalcompleter():
        found = list(ip.Completer.completions(text, 7))
    assert [each.text for each in found] == ["read"]
