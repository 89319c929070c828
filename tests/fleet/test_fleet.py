# SPDX-License-Identifier: Apache-2.0
"""Fleets over a cluster in this process: what is there, sweeps, functions, end and resumption."""

import contextlib
import copy
import sys
import threading
import time
from dataclasses import replace
from importlib.metadata import version
from itertools import pairwise

import pytest
from distributed import Client, Semaphore

import dgkit
from dgkit.errors import ClosedError, DgkitError, PeerLost, PeerRefused
from dgkit.fleet import Fleet, diff
from dgkit.fleet.machine_leases import MachineLeases
from dgkit.fleet.pair_plugin import PairPlugin
from dgkit.fleet.row_table import KEY

QUICK = {"count": 50, "seconds": 0.01}


def test_each_worker_is_a_software_pair_of_its_own(fleet):
    assert [pair.label for pair in fleet.usable] == ["software DPU"] * 3
    assert len({pair.dpu for pair in fleet.pairs}) == 3
    assert len({frozenset(pair.machines) for pair in fleet.pairs}) == 1
    assert list(fleet.table["name"]) == [pair.name for pair in fleet.pairs]
    assert repr(fleet) == "<Fleet of 3 pairs: 3 software DPU>"
    assert fleet.differences == ()
    html = fleet._repr_html_()
    assert all(pair.name in html for pair in fleet.pairs)


def test_a_sweep_has_a_row_for_each_pair_op_path_and_size(fleet, tmp_path):
    seen = []
    done = fleet.sweep(
        [64, "4K"], ["write", "read"], ["auto", "inline"], folder=tmp_path / "sweep",
        progress=lambda rows, total: seen.append((rows, total)), **QUICK,
    )  # fmt: skip
    table = done.table
    assert (done.rows, done.total, done.failures) == (24, 24, ())
    assert not table.duplicated(list(KEY)).any()
    assert set(table["requested_path"]) == {"auto", "inline"}
    assert (table["p50_ns"] > 0).all()
    assert (table["gb_per_s"] > 0).all()
    assert (table["floor_ns"].notna()).all()
    assert seen[-1] == (24, 24)
    assert sorted(seen) == seen
    assert len(list((tmp_path / "sweep").glob("part-*.parquet"))) == 12
    assert not diff(done, tmp_path / "sweep")["slower"].any()
    html = done._repr_html_()
    assert "24 of 24 rows, ended" in html
    assert "software DPU" in html
    assert fleet.pairs[2].name in done.cells("gb_per_s").index
    assert len(done.summary) == 8
    rows = done.as_dict()["rows"]
    assert len(rows) == 24
    assert all(row["slow_rate"] == round(row["slow_rate"], 2) for row in rows)


def test_a_sweep_that_was_stopped_goes_on_from_its_folder(fleet, tmp_path):
    running = fleet.start_sweep([64, 4096], ["write", "read"], folder=tmp_path, **QUICK)
    with pytest.raises(ValueError, match="resume needs the folder"):
        fleet.start_sweep([64], resume=True)
    while not running.rows and not running.done:
        time.sleep(0.01)
    running.stop()
    assert running.done
    before = {path: path.read_bytes() for path in tmp_path.glob("part-*.parquet")}
    assert 1 <= len(before) <= 6
    done = fleet.sweep([64, 4096], ["write", "read"], folder=tmp_path, resume=True, **QUICK)
    assert done.rows == done.total == 12
    assert not done.table.duplicated(list(KEY)).any()
    assert {path: path.read_bytes() for path in before} == before  # not measured again


def test_a_sweep_whose_folder_cannot_be_closed_ends_with_the_reason(fleet, tmp_path, monkeypatch):
    def fail(_):
        raise OSError(5, "I/O error")

    with monkeypatch.context() as patched:
        patched.setattr("dgkit.fleet.part_files.PartFiles.close", fail)
        running = fleet.start_sweep([64], ["write"], folder=tmp_path, **QUICK)
        with pytest.raises(OSError, match="I/O error"):
            running.wait(30)


def test_pairs_of_one_machine_are_never_measured_at_a_time(fleet):
    def interval(session, seconds):
        start = time.monotonic()
        time.sleep(seconds)
        return start, time.monotonic(), session.info["dpu"]["pid"]

    found = fleet.map(interval, 0.05)
    assert list(found) == [pair.name for pair in fleet.pairs]
    times = sorted(found.values())
    assert all(first[1] <= second[0] for first, second in pairwise(times))
    assert len({pid for _, _, pid in times}) == 3


def test_pairs_run_at_a_time_where_a_function_allows_it(fleet):
    barrier = threading.Barrier(3)  # the workers are threads of this process
    _MEETING.append(barrier)
    found = fleet.map(_meet, alone=False)
    assert sorted(found.values()) == [0, 1, 2]


_MEETING: list[threading.Barrier] = []


def _meet(session):
    return _MEETING[-1].wait(30)


def test_a_machine_that_another_client_measures_is_waited_for(fleet, client):
    (machine,) = fleet.pairs[0].machines
    other = Semaphore(
        max_leases=1, name=f"dgkit-machine-{machine}",
        scheduler_rpc=client.scheduler, loop=client.loop,
    )  # fmt: skip
    assert other.acquire(timeout=5)
    started = []
    thread = threading.Thread(
        target=lambda: started.append(fleet.map(_clock)), name="dgkit-test-map"
    )
    thread.start()
    time.sleep(0.7)  # longer than a tick, in which it would have begun
    released = time.monotonic()
    other.release()
    thread.join(60)
    assert min(started[0].values()) >= released


def _clock(session):
    return time.monotonic()


def test_an_error_of_one_pair_is_its_result_and_no_other_pairs(fleet):
    first = fleet.pairs[0].name
    pid = next(iter(fleet.map(lambda session: session.info["dpu"]["pid"], pairs=[first]).values()))

    def fail(session):
        if session.info["dpu"]["pid"] == pid:
            raise ValueError("not this one")
        return "fine"

    found = fleet.map(fail)
    assert isinstance(found.pop(first), ValueError)
    assert set(found.values()) == {"fine"}


def test_a_pair_whose_software_dpu_is_killed_gets_another_one(fleet):
    def kill(session):
        import os
        import signal

        os.kill(session.owned_pid, signal.SIGKILL)
        with contextlib.suppress(DgkitError):
            while True:
                session.stats()
        return session.owned_pid

    name = fleet.pairs[1].name
    killed = fleet.map(kill, pairs=[name])[name]
    again = fleet.map(lambda session: session.info["dpu"]["pid"], pairs=[name])[name]
    assert again != killed
    done = fleet.sweep([64], ["write"], pairs=[name], **QUICK)
    assert (done.rows, done.failures) == (1, ())


def test_a_result_that_never_comes_is_given_up_and_the_others_come(fleet):
    gate = threading.Event()
    _GATES.append(gate)
    stuck = fleet.pairs[0].name
    try:
        found = fleet.map(_hang_in, fleet.pairs[0].dpu, limit=1.0)
    finally:
        gate.set()
    error = found.pop(stuck)
    assert isinstance(error, PeerLost)
    assert f"{stuck} gave no result within 1 s" in str(error)
    assert set(found.values()) == {"fine"}


_GATES: list[threading.Event] = []


def _hang_in(session, dpu):
    if dpu.endswith(f" {session.info['dpu']['pid']}"):
        _GATES[-1].wait(60)
    return "fine"


def test_a_failed_size_is_reported_and_the_rest_is_measured(fleet):
    done = fleet.sweep([64], ["write"], on="gpu", **QUICK)
    if not done.rows:
        assert len(done.failures) == 3
        assert all(failure.why for failure in done.failures)
        assert done.failures[0].pair in done._repr_html_()


def test_wrong_pairs_and_functions_are_named(fleet):
    with pytest.raises(ValueError, match="no pair 'nobody'"):
        fleet.sweep([64], pairs=["nobody"])
    with pytest.raises(ValueError, match="'own' or a list"):
        fleet.map(str, pairs="all")
    with pytest.raises(TypeError, match="callable"):
        fleet.map(7)
    with pytest.raises(ValueError, match=r"pairs is \[\]; it must be 'own' or name a pair"):
        fleet.map(str, pairs=[])
    with pytest.raises(TypeError, match="pairs is 7; it must be 'own' or a list"):
        fleet.map(str, pairs=7)
    with pytest.raises(TypeError, match=r"distributed\.Client"):
        Fleet("tcp://127.0.0.1:8786")


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "1", None])
def test_a_wrong_limit_is_named_before_anything_is_started(fleet, limit):
    with pytest.raises((TypeError, ValueError), match=f"limit is {limit!r}; it must be"):
        fleet.map(_clock, limit=limit)
    if limit is not None:
        with pytest.raises((TypeError, ValueError), match=f"limit is {limit!r}; it must be"):
            fleet.start_sweep([64], limit=limit)
    else:
        with pytest.raises(TypeError, match="rejoin is None; it must be a number"):
            fleet.start_sweep([64], rejoin=limit)


def test_a_function_that_exits_ends_no_worker(fleet):
    found = fleet.map(lambda session: sys.exit(3))
    assert {repr(each) for each in found.values()} == {
        "RuntimeError('the function raised SystemExit(3)')"
    }
    assert set(fleet.map(lambda session: "fine").values()) == {"fine"}


def test_a_function_that_cannot_be_sent_takes_no_machine_with_it(fleet):
    lock = threading.Lock()
    with pytest.raises(TypeError, match=r"cannot be sent to .*lock"):
        fleet.map(lambda session: lock)
    assert set(fleet.map(lambda session: "fine", limit=20).values()) == {"fine"}


def test_machines_that_an_interrupted_call_has_taken_are_given_back(fleet, client, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("dgkit.fleet.dispatch.Dispatcher._start", interrupt)
        with pytest.raises(KeyboardInterrupt):
            fleet.map(_clock)
    (machine,) = fleet.pairs[0].machines
    leases = MachineLeases(client)
    assert leases.acquire([fleet.pairs[0].machines]) == [True]
    leases.close()
    assert leases.acquire([fleet.pairs[0].machines]) == [False]  # none after the end
    assert Semaphore(
        max_leases=1, name=f"dgkit-machine-{machine}",
        scheduler_rpc=client.scheduler, loop=client.loop,
    ).get_value() == 0  # fmt: skip


def test_a_folder_is_swept_by_one_client_at_a_time(fleet, tmp_path):
    running = fleet.start_sweep([64], ["write"], folder=tmp_path, **QUICK)
    try:
        if not running.done:
            with pytest.raises(ValueError, match="is in use by process"):
                fleet.start_sweep([64], ["write"], folder=tmp_path, resume=True, **QUICK)
    finally:
        running.wait(60)
    again = fleet.sweep([64], ["write"], folder=tmp_path, resume=True, **QUICK)
    assert again.rows == 3


def test_a_fleet_that_is_closed_says_so_and_leaves_no_session(client):
    with Fleet(client) as fleet:
        name = fleet.plugin_name
        assert all(client.run(lambda dask_worker: name in dask_worker.plugins).values())
    fleet.close()
    assert not any(client.run(lambda dask_worker: name in dask_worker.plugins).values())
    with pytest.raises(ClosedError):
        fleet.sweep([64])


class Older(PairPlugin):
    """Worker that says that it has another dgkit."""

    def description(self):
        return super().description() | {"dgkit": "0.0.0"}


def test_a_worker_with_another_dgkit_is_not_measured(client):
    with Fleet(client, _plugin=Older()) as fleet:
        assert not fleet.usable
        assert "dgkit 0.0.0" in fleet.table["state"][0]
        with pytest.raises(ValueError, match=r"no pair can be used: 3 dgkit 0\.0\.0"):
            fleet.sweep([64])


def test_a_worker_with_another_python_or_dask_is_named(client, monkeypatch):
    found = copy.deepcopy(client.get_versions())
    first, second, third = found["workers"].values()
    major, minor = sys.version_info[:2]
    first["host"]["python"] = "2.7.18.final.0"
    second["host"]["python"] = f"{major}.{minor}.99.final.0"  # the same minor version
    third["packages"]["dask"] = "1.2.3"
    names = list(found["workers"])
    monkeypatch.setattr(client, "get_versions", lambda: found)
    with Fleet(client) as fleet:
        assert fleet.differences == (
            f"{names[0]}: python 2.7, here {major}.{minor}",
            f"{names[2]}: dask 1.2.3, here {version('dask')}",
        )
        assert "python 2.7, here" in fleet._repr_html_()


class Broken(PairPlugin):
    """Worker without a device."""

    def open_session(self):
        raise dgkit.DeviceUnavailable(19, "no device here")


def test_a_worker_without_a_device_says_why(client):
    with Fleet(client, _plugin=Broken()) as fleet:
        assert not fleet.usable
        assert "no device here" in fleet._repr_html_()


class Rack(PairPlugin):
    """Workers that are machines of their own."""

    def machine(self):
        return f"machine {self._worker_name}"


def test_machines_are_measured_side_by_side(client):
    with Fleet(client, _plugin=Rack()) as fleet:
        assert len({pair.machines for pair in fleet.pairs}) == 3
        _MEETING.append(threading.Barrier(3))
        assert sorted(fleet.map(_meet).values()) == [0, 1, 2]


def test_a_pair_that_leaves_takes_its_jobs_with_it(fleet, monkeypatch):
    gone = fleet.pairs[0]
    others = [replace(gone, state="no longer here"), *fleet.pairs[1:]]
    monkeypatch.setattr(fleet._registry, "pairs", tuple(others))
    found = fleet.map(_clock, pairs=[gone.name])
    assert "no longer here" in str(found[gone.name])


def test_a_cluster_without_tls_is_refused_unless_accepted_by_name(client, monkeypatch):
    monkeypatch.setattr("dgkit.fleet.pair_registry.address_of", lambda client: "tcp://head:8786")
    with pytest.raises(PeerRefused, match=r"tcp://head:8786 .*`--insecure`"):
        Fleet(client)
    with Fleet(client, insecure=True) as fleet:
        assert len(fleet.usable) == 3


def test_a_client_that_is_closed_is_a_lost_scheduler(client):
    other = Client(client.cluster)
    other.close()
    with pytest.raises(PeerLost, match="is lost: closed"):
        Fleet(other)
