# SPDX-License-Identifier: Apache-2.0
"""A cell that is run again: which panels of its last run are closed, and when."""

import weakref
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell
from support.processes.waiting import children, until

import dgkit
from dgkit import cell_lifetime
from dgkit.widgets.base.panel import Panel
from dgkit.widgets.dashboard import dashboard


class Sample(Panel):
    name = "figure"  # any panel's
    title = "A sample"


class Stubborn(Sample):
    stays = False

    def close(self):
        if self.stays:
            raise ZeroDivisionError
        super().close()


class Shell(SimpleNamespace):
    __hash__ = object.__hash__


class Notebook:
    """`with notebook("cell"):` is one more run of a cell."""

    def __init__(self, monkeypatch):
        self._now, self._runs = ("", ""), 0
        self.variables = {"Out": {}}
        shell = Shell(user_ns=self.variables, events=SimpleNamespace(register=lambda *_: None))
        monkeypatch.setattr(cell_lifetime, "current_shell", lambda: shell)
        monkeypatch.setattr(cell_lifetime, "current_run", lambda: self._now)

    def __call__(self, cell):
        self._runs += 1
        self._now = (cell, f"run {self._runs}")
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        cell_lifetime.close_stale()
        cell_lifetime.close_replaced()
        self._now = ("", "")


@pytest.fixture
def book(monkeypatch):
    return Notebook(monkeypatch)


def test_the_first_new_panel_closes_what_the_last_run_made_and_nothing_else(book, view):
    with book("one"):
        first, other = Sample(), Sample()
    with book("two"):
        elsewhere = view(Sample()).panel
    with book("one"):
        again = view(Sample()).panel
        assert first.closed
        assert other.closed
    assert not elsewhere.closed
    assert not again.closed


def test_a_cell_that_makes_none_any_more_closes_them_when_it_ends(book):
    with book("one"):
        panel = Sample()
    with book("one"):
        assert not panel.closed
    assert panel.closed


def test_a_panel_that_its_cell_shows_again_stays(book, view):
    with book("one"):
        panel = view(Sample()).panel
    with book("one"):
        panel._repr_mimebundle_()
    assert not panel.closed


def test_one_that_cannot_be_closed_is_logged_and_the_cell_continues(book, view, caplog):
    with book("one"):
        bad, good = view(Stubborn()).panel, Sample()
    bad.stays = True
    with book("one"):
        view(Sample())
    bad.stays = False
    assert good.closed
    assert "ZeroDivisionError" in caplog.text


def test_what_is_made_apart_is_of_no_cell(book, view):
    with book("one"), cell_lifetime.detached():
        panel = view(Sample()).panel
    with book("one"):
        pass
    assert not panel.closed


@pytest.mark.parametrize("first", [True, False])
def test_a_dashboard_that_its_cell_asks_for_again_stays_whole(book, session, view, first):
    for _ in range(2):
        with book("one"):
            other = None if first else view(Sample()).panel
            board = view(dashboard(session)).panel
            other = other or view(Sample()).panel
    assert not board.closed
    assert not any(panel.closed for panel in board.panels)
    assert not other.closed
    board.panels.plot.start()


def test_a_dashboard_of_a_session_that_its_cell_no_longer_has_is_closed(book, session):
    with book("one"):
        board = dashboard(session)
        panels = board.panels
    with book("one"):
        pass
    assert board.closed
    assert all(panel.closed for panel in panels)
    assert not session.closed


def test_a_dashboard_that_another_cell_asked_for_too_stays(book, session, view):
    with book("one"):
        board = dashboard(session)
    with book("two"):
        view(dashboard(session))
    with book("one"):
        pass
    assert not board.closed


def test_a_dashboard_that_owns_its_dpu_stays_with_its_regions(book, view):
    with book("one"):
        board = view(dashboard()).panel
    with book("one"):
        pass
    assert not board.closed


def test_a_session_that_its_cell_replaced_is_closed_though_out_has_it(book, software_dpu):
    variables = book.variables
    for run in range(3):
        with book("one"):
            new = variables["session"] = variables["Out"][run] = dgkit.connect(software_dpu)
        old = [variables["Out"][earlier] for earlier in range(run)]
        assert all(session.closed for session in old)
        assert not new.closed
    new.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # that nobody closed them
def test_of_runs_of_cells_without_a_name_the_session_that_a_variable_has_is_left(monkeypatch):
    """In a shell of IPython, whose results also have a region of each session."""
    monkeypatch.setattr(cell_lifetime, "_hooks", weakref.WeakKeyDictionary())
    shell, before = InteractiveShell(), set(children())
    monkeypatch.setattr(cell_lifetime, "current_shell", lambda: shell)
    shell.user_ns["connect"] = dgkit.connect
    shell.run_cell("other = connect()", store_history=True)
    shell.run_cell("r = connect().empty(64)\nr", store_history=True)
    for _ in range(3):
        shell.run_cell("s = connect()\ns", store_history=True)
        shell.run_cell("[s.empty(64)]", store_history=True)
    region = shell.user_ns["r"]
    left = [shell.user_ns[name].owned_pid for name in ("other", "s")] + [region.session.owned_pid]
    until(lambda: set(children()) - before == set(left), "the others have ended")
    assert shell.user_ns["_"][0].session is shell.user_ns["s"]
    assert region in shell.user_ns["Out"].values()  # which a variable has, too
    for session in (shell.user_ns["other"], shell.user_ns["s"], region.session):
        session.close()


def test_a_session_stays_that_has_another_name_or_that_nothing_replaced(book, software_dpu):
    with book("one"):
        first = book.variables["first"] = dgkit.connect(software_dpu)
    with book("two"):
        elsewhere = dgkit.connect(software_dpu)
    with book("one"):
        second = book.variables["second"] = dgkit.connect(software_dpu)
    with book("two"):  # the cell was edited
        pass
    for session in (first, elsewhere, second):
        assert not session.closed
        session.close()


def test_a_session_stays_that_a_container_or_an_object_of_the_user_has(book, software_dpu):
    pair = type("Pair", (), {"__module__": "__main__"})()
    book.variables.update(sessions=[], by_name={}, pair=pair)
    for _ in range(2):
        with book("one"):
            new = [dgkit.connect(software_dpu) for _ in range(3)]
            book.variables["sessions"].append(new[0])
            book.variables["by_name"][len(book.variables["sessions"])] = {"of": (new[1],)}
            pair.session, before = new[2], getattr(pair, "session", None)
    assert before.closed
    kept = [
        *book.variables["sessions"],
        *(each["of"][0] for each in book.variables["by_name"].values()),
    ]
    for session in (*kept, pair.session):
        assert not session.closed
        session.close()


def test_a_session_that_cannot_be_closed_is_logged_and_the_others_are(book, software_dpu, caplog):
    with book("one"):
        bad, good = dgkit.connect(software_dpu), dgkit.connect(software_dpu)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bad.lifetime, "close", lambda: 1 / 0)
        with book("one"), dgkit.connect(software_dpu) as _:
            pass
        assert good.closed
    assert "ZeroDivisionError" in caplog.text
    bad.close()
