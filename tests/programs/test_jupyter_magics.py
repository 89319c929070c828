"""%dma and %%dma in an IPython shell: results, output and errors."""

import os
import re
import signal

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

import dgkit
from dgkit.jupyter import display
from dgkit.jupyter.display import BytesRead


@pytest.fixture
def ip():
    shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
    shell.run_line_magic("load_ext", "dgkit")
    yield shell
    shell.run_line_magic("unload_ext", "dgkit")
    InteractiveShell.clear_instance()


@pytest.fixture
def session(ip):
    with dgkit.connect() as session:
        ip.push({"session": session, "r": session.empty(4096, name="grid")})
        yield session


def run(ip, source):
    """Run a cell silently; return its result or raise its error."""
    with capture_output() as said:
        done = ip.run_cell(source)
    run.shown = [output.data for output in said.outputs]
    run.text = said.stdout + said.stderr
    if done.error_in_exec or done.error_before_exec:
        raise done.error_in_exec or done.error_before_exec
    return done.result


def test_what_is_written_is_read_back(ip, session):
    report = run(ip, "%dma write r b'hello from the DPU' --offset 0x10")
    assert isinstance(report, type(session.write(ip.user_ns["r"], b"x", offset=100)))
    assert report.size == 18
    got = run(ip, "%dma read r --offset 16 --size 18")
    assert bytes(got) == got.data == b"hello from the DPU"
    assert len(got) == 18


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("'größe'", "größe".encode()),
        ("np.arange(3, dtype='u2') + 1", b"\x01\0\x02\0\x03\0"),
        ("--hex 'de ad'", b"\xde\xad"),
        ("bytearray(b'{x} $y')", b"{x} $y"),
        ("{'a': b'in a dict'}['a']", b"in a dict"),
    ],
)
def test_data_is_what_the_notebook_s_python_says(ip, session, data, expected):
    run(ip, f"import numpy as np\n%dma write r {data}")
    assert session.read(ip.user_ns["r"], len(expected)) == expected


@pytest.mark.parametrize("region", ["r", "grid", "'grid'", "[r][0]", "session.regions[0]"])
def test_a_region_is_a_variable_a_name_or_an_expression(ip, session, region):
    assert len(run(ip, f"%dma read {region} --size 4")) == 4


def test_a_name_that_two_regions_have_is_refused(ip, session):
    session.empty(8, name="grid")
    with pytest.raises(UsageError, match="2 live regions are named 'grid'"):
        run(ip, "%dma read grid")


def test_sizes_are_also_expressions_and_the_default_is_the_rest(ip, session):
    assert len(run(ip, "n = 100\n%dma read r --offset 2*n --size n+1")) == 101
    assert len(run(ip, "%dma read r --offset 4000")) == 96


def test_o_puts_it_into_a_variable_and_shows_nothing(ip, session):
    source = "%dma write r b'x' -o w\n%dma read r --size 1 -o b\n%dma latency r --count 5 -o t"
    assert run(ip, source) is None
    assert not run.text
    found = ip.user_ns
    assert (found["b"], found["w"].size, found["t"].percentiles.n) == (b"x", 1, 5)


def test_latency_times_what_was_asked_for(ip, session):
    report = run(ip, "%dma latency r --size 1K --op read --count 50 --path worker")
    assert isinstance(report, dgkit.LatencyReport)
    assert (report.size, report.op, report.path) == (1024, "read", "worker")
    assert report.percentiles.n == 50
    report = run(ip, "%dma latency r --size 8 --op read --count 50 --path GPU-initiated")
    assert (report.size, report.op, report.path) == (8, "read", "GPU-initiated")
    assert (report.percentiles.n, report.label) == (50, "software DPU, emulated GPU")
    session.empty(7, name="small")
    assert run(ip, "%dma latency small --count 5").size == 7


def test_a_semicolon_keeps_the_result_to_itself(ip, session):
    assert run(ip, "%dma read r --size 4;") is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("read", "required: REGION"),
        ("read nothing", "`nothing` is not a region. Regions: r, 'grid'"),
        ("read n", "not a region, but an int"),
        ("read grid-2", "not a region"),
        ("read r --size wrong", "name 'wrong' is not defined"),
        ("read r --size [4]", "a list; it must be a whole number"),
        ("read r --offset -1", "it must be 0 or more"),
        ("write r wrong", "name 'wrong' is not defined"),
        ("write r 3", "DATA is an int"),
        ("latency r --count 2_000_000", "1 to 1000000"),
    ],
)
def test_misuse_is_a_usage_error_of_one_line(ip, session, line, words):
    ip.push({"n": 3})
    with pytest.raises(UsageError, match=words):
        run(ip, f"%dma {line}")
    assert run.text.startswith("UsageError: ")
    assert len(run.text.splitlines()) == 1


def test_without_a_region_it_says_how_to_make_one(ip):
    with pytest.raises(UsageError, match=r"dgkit\.connect\(\)\.empty"):
        run(ip, "%dma read r")


def test_errors_of_a_session_keep_their_type(ip, session):
    with pytest.raises(dgkit.BoundsError, match="which has 4,096 bytes"):
        run(ip, "%dma read r --offset 4000 --size 97")
    assert "start_read" not in run.text  # without dgkit's frames
    with pytest.raises(dgkit.AccessDenied):
        run(ip, "ro = session.register(bytearray(8), access='r')\n%dma write ro b'x'")
    with pytest.raises(ZeroDivisionError):
        run(ip, "%dma write r bytes(1 // 0)")
    ip.user_ns["r"].close()
    with pytest.raises(dgkit.ClosedError, match="grid"):
        run(ip, "%dma read r")


def test_a_killed_dpu_is_said_to_be_lost(ip, session):
    os.kill(session.owned_pid, signal.SIGKILL)
    with pytest.raises(dgkit.PeerLost):
        run(ip, "%dma read r")


def test_a_cell_runs_its_lines_and_shows_what_each_gives(ip, session):
    cell = (
        "%%dma\n# first\nwrite r 'text # no'  # a comment\n\n  %dma read r --size 9\n"
        "read r --size 2;\nread r --size 4 -o v\nlatency r --count 5\ninfo"
    )
    assert run(ip, cell) is None
    plain = [data["text/plain"] for data in run.shown]
    assert [text.split()[0] for text in plain[:2]] == ["<TransferReport", "9"]
    assert "LatencyReport" in plain[2]
    assert len(plain) == 4
    assert ip.user_ns["v"] == b"text"


@pytest.mark.parametrize(
    ("lines", "error", "words"),
    [
        (["write r b'x'", "# why", "read r --sise 4"], UsageError, "line 4: .*; no line was run"),
        (["write r b'x'", "", "read u"], UsageError, "line 4: .*; run before it: line 2"),
        (["read u"], UsageError, "line 2: .*; no line was run before it"),
        (["read r;"] * 2 + ["read r --size 4097"], dgkit.BoundsError, "run before it: lines 2, 3"),
    ],
)
def test_an_error_in_a_cell_names_its_line_and_what_ran(ip, session, lines, error, words):
    with pytest.raises(error) as caught:
        run(ip, "\n".join(["%%dma", *lines]))
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert re.search(words, text)
    written = session.read(ip.user_ns["r"], 1) == b"x"
    assert written == ("write r b'x'" in lines and "no line" not in words)


def test_after_the_cell_magic_nothing_is_accepted(ip, session):
    with pytest.raises(UsageError, match="below %%dma"):
        run(ip, "%%dma read r\nread r")
    run(ip, "%%dma # a comment\nread r")


def test_bytes_are_shown_with_where_they_are_and_who_read_them(ip, session):
    run(ip, "%dma write r '<b>&' --offset 5")
    got = run(ip, "%dma read r --offset 5 --size 4")
    for text in (repr(got), got._repr_html_()):
        assert "4 B at offset 0x5 of grid on host" in text
        assert "3c 62 3e 26" in text
        assert "software DPU" in text
    assert "&lt;b&gt;&amp;" in got._repr_html_()
    assert "font-family:monospace;" in got._repr_html_()  # JupyterLab drops var() if untrusted


def test_many_bytes_are_shown_in_part():
    many = BytesRead(bytes(1 << 20), "r", "host", 0, "soft")
    assert len(repr(many).splitlines()) == 2 + display._MAX_LINES
    assert "1,048,320 more bytes" in repr(many)
    assert len(many._repr_html_()) < 4000


def test_info_lists_sessions_and_live_regions(ip, session):
    overview = run(ip, "%dma info")
    for text in (repr(overview), overview._repr_html_()):
        assert "grid" in text
        assert "4 KiB on host, read and write, in r" in text
        assert "software DPU" in text
        assert str(session.owned_pid) in text
    ip.user_ns["r"].close()
    assert "grid" not in repr(run(ip, "%dma info"))
    assert "session.empty" in repr(run(ip, "%dma info"))
    session.close()
    assert "No session is open" in run(ip, "%dma info")._repr_html_()


def test_help_is_shown_for_all_and_for_one(ip):
    assert "%dma latency REGION" in repr(run(ip, "%dma"))
    assert "--hex DIGITS" in run(ip, "%dma help write")._repr_html_()
    assert "%dma help" in ip.find_line_magic("dma").__doc__


def test_loading_again_and_unloading_leave_nothing_behind(ip):
    def matchers():
        return [m for m in ip.Completer.custom_matchers if "dgkit" in str(m.matcher_identifier)]

    run(ip, "%reload_ext dgkit")
    assert len(matchers()) == 1
    run(ip, "%unload_ext dgkit")
    assert not matchers()
    assert ip.find_line_magic("dma") is ip.find_cell_magic("dma") is None
    assert not hasattr(ip.magics_manager.user_magics, "dma")
    run(ip, "%load_ext dgkit")
    assert ip.find_cell_magic("dma")


def test_on_a_terminal_the_bar_is_a_line_that_goes(ip, capsys, monkeypatch):
    monkeypatch.setattr(display, "_DELAY_S", 0.0)
    monkeypatch.setattr(display, "_STEP_S", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with display.ProgressBar(ip, "read grid, bytes") as bar:
        bar(1, 4)
        bar(4, 4)
    err = capsys.readouterr().err
    assert err.split("\r")[1:3] == ["read grid, bytes: 25 % of 4 ", "read grid, bytes: 100 % of 4 "]
    assert err.endswith("\r\x1b[K")
