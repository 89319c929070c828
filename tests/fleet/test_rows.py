# SPDX-License-Identifier: Apache-2.0
"""Rows, files, stragglers and differences of sweeps, names of pairs; without a cluster."""

import contextlib
import json
import os
import re

import numpy as np
import pandas as pd
import pytest

from dgkit.errors import PeerRefused
from dgkit.fleet import diff
from dgkit.fleet.cluster_checks import check_encryption, exposed
from dgkit.fleet.pair_description import named_pairs
from dgkit.fleet.part_files import PartFiles, read_folder
from dgkit.fleet.row_table import KEY, RowTable, as_table
from dgkit.fleet.stragglers import slowness
from dgkit.fleet.sweep import Plan, SweepOptions

PLAN = Plan.of(SweepOptions([64], ["write"], count=100, seconds=0.1)).as_dict()


def row(pair="a/0", *, op="write", size=64, p50=100, rate=10.0, moved=False, **more):
    fixed = {"path": "inline", "provider": "soft", "label": "software DPU", "region": "host"}
    fixed |= {"host": "a", "dgkit": "1", "requested_path": "auto", "samples": 100}
    fixed |= {"p99_ns": 2 * p50, "max_ns": 3 * p50, "failed": 0, "floor_ns": 20.0}
    fixed |= {"floor_gb_per_s": 12.0, "started": 1.0, "took_s": 0.1}
    figures = {"p50_ns": p50, "gb_per_s": rate, "floor_moved": moved}
    return fixed | {"pair": pair, "op": op, "size": size} | figures | more


def frame(*rows):
    table = RowTable()
    table.append(as_table(rows))
    return table.frame()


def test_rows_are_sorted_and_keep_their_values():
    found = frame(row("b/1", size=4096), row("a/0", floor_ns=None))
    assert list(found["pair"]) == ["a/0", "b/1"]
    assert list(found["size"]) == [64, 4096]
    assert pd.isna(found["floor_ns"][0])
    assert not found.duplicated(list(KEY)).any()


def test_a_table_stays_as_it_is_while_rows_are_added():
    rows = RowTable()
    kept = []
    for n in reversed(range(300)):  # more names than small codes can tell apart
        rows.append(as_table([row(f"a/{n:03}", p50=100 + n), row(f"a/{n:03}", size=9, p50=n)]))
        if n in (250, 20):
            kept.append(rows.frame())
    assert [len(each) for each in (*kept, rows.frame())] == [100, 560, 600]
    for each in (*kept, rows.frame()):
        expected = each["pair"].astype(str).str[2:].astype(int) + 100 * (each["size"] == 64)
        assert (each["p50_ns"] == expected).all()
        assert list(each["pair"]) == sorted(each["pair"])
    changed = rows.frame()
    changed["p50_ns"] = 0
    assert rows.frame()["p50_ns"].any()


def test_a_row_without_a_figure_is_refused_and_one_without_a_text_is_kept():
    rows = RowTable()
    with pytest.raises(ValueError, match="a row has no p50_ns"):
        rows.append(as_table([row(p50=100) | {"p50_ns": None}]))
    rows.append(as_table([row(), row(host=None, size=65)]))
    assert list(rows.frame()["host"].isna()) == [False, True]


def test_a_million_rows_take_a_hundred_bytes_each():
    rows = RowTable()
    for n in range(100):
        rows.append(as_table([row(f"a/{n}", size=size) for size in range(1, 101)]))
    taken = sum(column.memory_usage(index=False) for _, column in rows.frame().items())
    assert taken < 110 * 10_000


def test_a_slow_pair_is_a_straggler_and_moves_no_other():
    p50s = [100, 101, 99, 102, 98, 100, 180]
    found = frame(*(row(f"a/{n}", p50=p50) for n, p50 in enumerate(p50s)))
    assert list(found["pair"][found["straggler"]]) == ["a/6"]
    assert found["slow_latency"][6] > 10
    assert found["slow_rate"].abs().max() == 0


def test_a_low_rate_is_a_straggler_too():
    rates = [10.0, 10.2, 9.9, 10.1, 4.0]
    found = frame(*(row(f"a/{n}", rate=rate) for n, rate in enumerate(rates)))
    assert list(found["pair"][found["straggler"]]) == ["a/4"]


@pytest.mark.parametrize(
    "rows",
    [
        [row(f"a/{n}", p50=p50) for n, p50 in enumerate([100, 100, 900])],  # too few
        [row(f"a/{n}", p50=p50) for n, p50 in enumerate([100] * 8 + [120])],  # too little
        [row(f"a/{n}", p50=p50, moved=p50 > 100) for n, p50 in enumerate([100] * 8 + [900])],
        [row(f"a/{n}", size=64 << n, p50=100 << n) for n in range(8)],  # other sizes
    ],
)
def test_what_cannot_be_compared_is_no_straggler(rows):
    assert not frame(*rows)["straggler"].any()


def test_a_table_without_rows_has_all_columns():
    found = frame()
    assert not len(found)
    assert {*KEY, "p50_ns", "straggler"} <= set(found.columns)


def test_files_are_read_as_they_were_written(tmp_path):
    files = PartFiles(tmp_path / "new" / "folder", PLAN, resume=False)
    for pair in ("a/0", "a_0", "ü / 9" * 50):
        files.write(files.path(pair, "write", "auto"), as_table([row(pair)]))
    assert len(files.present()) == 3
    assert {path.name for path in files.folder.iterdir() if path.suffix != ".parquet"} == {
        "_sweep.json",
        "_lock",
    }
    assert sorted(read_folder(files.folder).frame()["pair"]) == sorted(["a/0", "a_0", "ü / 9" * 50])
    assert len(pd.read_parquet(files.folder)) == 3  # other readers see a data set


def test_a_file_that_was_not_finished_is_no_row(tmp_path, monkeypatch):
    files = PartFiles(tmp_path, PLAN, resume=False)
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(OSError, match="no space"):
        files.write(files.path("a/0", "write", "auto"), as_table([row()]))
    assert {path.name for path in tmp_path.iterdir()} == {"_sweep.json", "_lock"}
    assert len(files.read()) == 0


def test_a_folder_is_used_by_one_sweep_at_a_time(tmp_path):
    first = PartFiles(tmp_path / "f", PLAN, resume=False)
    words = rf"f is in use by process {os.getpid()} on .*: wait for its sweep, or use another"
    for resume in (False, True):
        with pytest.raises(ValueError, match=words):
            PartFiles(tmp_path / "f", PLAN, resume=resume)
    first.close()
    first.close()
    PartFiles(tmp_path / "f", PLAN, resume=True).close()


def test_what_a_sweep_left_that_ended_before_its_plan_was_written_is_no_other_file(tmp_path):
    for name in ("_lock", "._sweep.json.part"):
        (tmp_path / name).write_text("process 1 on elsewhere and more than that")
    PartFiles(tmp_path, PLAN, resume=False).close()
    assert (tmp_path / "_sweep.json").read_text().startswith("{")


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    files = PartFiles(tmp_path, PLAN, resume=False)
    path = files.path("a/0", "write", "auto")
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(OSError, match="no space") as caught:
        files.write(path, as_table([row()]))
    assert caught.value.filename == str(path)
    files.close()


def test_a_folder_is_resumed_by_the_same_sweep_only(tmp_path):
    files = PartFiles(tmp_path, PLAN, resume=False)
    files.close()
    files = PartFiles(tmp_path, PLAN, resume=False)  # nothing is there yet
    files.write(files.path("a/0", "write", "auto"), as_table([row()]))
    files.close()
    again = PartFiles(tmp_path, PLAN, resume=True)
    assert len(again.read()) == 1
    again.close()
    with pytest.raises(ValueError, match=r"has files of this sweep: continue it with resume=True"):
        PartFiles(tmp_path, PLAN, resume=False)
    with pytest.raises(ValueError, match=r"count is 100 there, 5 here"):
        PartFiles(tmp_path, PLAN | {"count": 5}, resume=True)


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not empty and has no sweep"):
        PartFiles(tmp_path, PLAN, resume=False)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    with pytest.raises(ValueError, match="has no sweep"):
        read_folder(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "x"', json.dumps({"version": 9})])
def test_a_damaged_plan_is_refused(tmp_path, text):
    (tmp_path / "_sweep.json").write_text(text)
    with pytest.raises(ValueError, match=r"_sweep\.json|another sweep"):
        PartFiles(tmp_path, PLAN, resume=True)


def test_a_damaged_file_is_named(tmp_path):
    files = PartFiles(tmp_path, PLAN, resume=False)
    files.path("a/0", "write", "auto").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match=r"part-a_0-.* is not a file of a sweep"):
        read_folder(tmp_path)


def test_diff_names_what_got_slower_first():
    old = frame(row("a/0"), row("a/1"), row("a/2"), row("a/3"), row("a/4"),
                row("a/6") | {"floor_ns": 80.0}, row("a/7") | {"floor_gb_per_s": 10.0})  # fmt: skip
    new = frame(
        row("a/0", p50=110),
        row("a/1", p50=300),
        row("a/2", rate=5.0),
        row("a/3", p50=900, moved=True),
        row("a/5"),
        row("a/6", p50=300) | {"floor_ns": 240.0},
        row("a/7", rate=5.0) | {"floor_gb_per_s": 5.0},
    )
    found = diff(old, new)
    assert list(found["pair"][found["slower"]]) == ["a/1", "a/2"]
    assert found.set_index("pair")["latency_ratio"]["a/1"] == 3
    assert found.set_index("pair")["rate_ratio"]["a/2"] == 2
    assert dict(zip(found["pair"], found["only"], strict=True))["a/4"] == "old"
    assert dict(zip(found["pair"], found["only"], strict=True))["a/5"] == "new"
    assert not diff(old, old)["slower"].any()


def test_diff_reads_folders(tmp_path):
    for name, p50 in (("old", 100), ("new", 200)):
        files = PartFiles(tmp_path / name, PLAN, resume=False)
        files.write(files.path("a/0", "write", "auto"), as_table([row(p50=p50)]))
    assert list(diff(tmp_path / "old", tmp_path / "new")["latency_ratio"]) == [2]


def test_each_cell_is_a_pair_against_the_median():
    rows = [row(f"a/{n}", p50=p50, rate=1e3 / p50) for n, p50 in enumerate([100, 100, 300])]
    found = frame(*rows, row("b/0", size=4096))
    for figure in ("p50_ns", "gb_per_s"):
        cells = slowness(found, figure)
        assert list(cells["write", "auto", 64].dropna().round(6)) == [1, 1, 3]
        assert cells.isna().sum().sum() == 4
    with pytest.raises(ValueError, match="figure is 'took_s'"):
        slowness(found, "took_s")


@pytest.mark.parametrize(
    ("old", "threshold", "error"),
    [(7, 1.25, TypeError), (pd.DataFrame({"pair": []}), 1.25, ValueError), (None, 0.5, ValueError)],
)
def test_diff_refuses_what_is_no_sweep(old, threshold, error):
    with pytest.raises(error):
        diff(old, old, threshold=threshold)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sizes": []}, "sizes"),
        ({"sizes": "64"}, "sizes"),
        ({"sizes": [0]}, "size is 0"),
        ({"sizes": ["0x"]}, "not a size"),
        ({"sizes": ["2T"]}, "size is 2T; the limit is 1 TiB"),
        ({"sizes": 64}, "sizes is 64; it must be a list"),
        ({"sizes": iter(())}, "sizes is .*; it must be a list"),
        ({"ops": ["erase"]}, "'erase'"),
        ({"paths": ["fast"]}, "'fast'"),
        ({"count": 0}, "count is 0"),
        ({"count": 10**7}, "count is 10000000"),
        ({"seconds": 0}, "seconds is 0"),
        ({"seconds": float("nan")}, "seconds is nan"),
    ],
)
def test_a_wrong_argument_is_named(change, words):
    with pytest.raises(ValueError, match=words):
        Plan.of(SweepOptions(**change))


@pytest.mark.parametrize("seconds", [None, "1", b"1", [1]])
def test_a_time_that_is_no_number_is_named(seconds):
    with pytest.raises(TypeError, match=r"seconds is .*; it must be a number"):
        Plan.of(SweepOptions(seconds=seconds))


def test_sizes_are_any_numbers_that_can_be_listed():
    plan = Plan.of(SweepOptions(np.array([64, 4096]), ("read",)))
    assert plan.sizes == (64, 4096)


def test_sizes_that_are_given_twice_are_measured_once():
    plan = Plan.of(SweepOptions([64, "64", "4K"]))
    assert plan.sizes == (64, 4096)


@pytest.mark.parametrize(
    ("address", "is_exposed"),
    [
        ("tcp://127.0.0.1:8786", False),
        ("tcp://[::1]:8786", False),
        ("tcp://localhost:8786", False),
        ("inproc://10.0.0.1/1/2", False),
        ("tls://10.0.0.1:8786", False),
        ("tcp://10.0.0.1:8786", True),
        ("tcp://[2001:db8::1]:8786", True),
        ("tcp://head:8786", True),
        ("ws://head:8786", True),
        ("ucx://10.0.0.1:8786", True),
    ],
)
def test_beyond_loopback_a_cluster_needs_tls(address, is_exposed):
    assert exposed(address) == is_exposed
    if is_exposed:
        with pytest.raises(PeerRefused, match="without TLS"):
            check_encryption(["tcp://127.0.0.1:1", address])
    else:
        check_encryption([address])


def worker(name, host="a", *, machine="", role="host", other="", owned=True, address="ipc:///1"):
    from dgkit import __version__

    here = {"pid": 1, "machine": host, "provider": "soft", "engine": ""}
    there = here | {"machine": other or host, "pid": 2}
    sides = {"host": here, "dpu": there} if role == "host" else {"host": there, "dpu": here}
    info = {**sides, "role": role, "owned": owned, "address": address}
    return {
        "worker": name, "address": f"tcp://{host}:{name.rpartition(':')[2]}", "host": host,
        "machine": machine or f"id-{host}", "arch": "x86_64", "dgkit": __version__,
        "info": info, "error": "", "agent": "" if owned else address,
    }  # fmt: skip


def pairs_of(*workers):
    return {pair.name: pair for pair in named_pairs({each["address"]: each for each in workers})}


def test_names_are_those_of_the_workers_in_natural_order():
    found = pairs_of(*(worker(str(n)) for n in (10, 9, 1)))
    assert list(found) == ["a/1", "a/9", "a/10"]


def test_a_worker_without_a_name_gets_a_number_which_no_port_changes():
    before = pairs_of(worker("tcp://a:4001"), worker("tcp://a:4002"), worker("tcp://b:77", "b"))
    after = pairs_of(worker("tcp://a:5003"), worker("tcp://a:5009"), worker("tcp://b:88", "b"))
    assert list(before) == list(after) == ["a/#0", "a/#1", "b/#0"]


def test_a_measurement_keeps_both_machines_of_a_pair_busy():
    found = pairs_of(
        worker("1", "host1", other="dpu1", owned=False, address="tcp://dpu1:7"),
        worker("2", "dpu1"),
        worker("3", "host3", other="elsewhere", owned=False, address="tcp://elsewhere:7"),
    )
    assert found["host1/1"].machines == {"id-host1", "id-dpu1"}
    assert found["host3/3"].machines == {"id-host3", "elsewhere"}


def test_a_pair_that_both_of_its_sides_report_is_measured_once():
    found = pairs_of(
        worker("1", "host1", other="dpu1", owned=False, address="tcp://dpu1:7"),
        worker("2", "dpu1", other="host1", role="dpu", owned=False, address="tcp://host1:7"),
    )
    assert [pair.usable for pair in found.values()] == [True, False]
    assert "the same pair as dpu1/2" in found["host1/1"].state


def test_two_agents_of_one_machine_are_two_pairs():
    one, two = (worker(n, owned=False, address=f"ipc:///{n}") for n in "12")
    assert all(pair.usable for pair in pairs_of(one, two).values())


def test_a_worker_with_another_dgkit_or_without_a_session_says_so():
    other = worker("1") | {"dgkit": "0.0.0"}
    closed = worker("2") | {"info": {}, "error": "DeviceUnavailable: no device"}
    found = pairs_of(other, closed)
    assert "dgkit 0.0.0; this is" in found["a/1"].state
    assert found["a/2"].state == "DeviceUnavailable: no device"
    (mute,) = named_pairs({"tcp://a:1": "no answer"})
    assert (mute.usable, mute.state) == (False, "no answer")


def _swap(path, kind, victim):
    """Put a symbolic link, a further name or a FIFO at the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "symlink":
        path.symlink_to(victim)
    elif kind == "hard link":
        path.hardlink_to(victim)
    else:
        os.mkfifo(path)


@pytest.mark.parametrize("kind", ["symlink", "hard link", "fifo"])
@pytest.mark.parametrize(
    "name", ["_lock", "_sweep.json", "._sweep.json.part", "part-a.parquet", ".part-a.parquet.part"]
)
def test_a_prepared_folder_overwrites_and_reads_no_file_outside(tmp_path, name, kind):
    victim, folder = tmp_path / "victim", tmp_path / "sweep"
    victim.write_text(json.dumps({"format": "mine"}))
    folder.mkdir()
    _swap(folder / name, kind, victim)
    refused = contextlib.nullcontext()
    if name in ("_lock", "_sweep.json"):
        refused = pytest.raises(OSError, match=re.escape(name))
    elif name == "part-a.parquet":
        refused = pytest.raises(ValueError, match="is not empty and has no sweep")
    with refused:
        files = PartFiles(folder, PLAN, resume=True)
        files.write(folder / "part-a.parquet", as_table([row()]))
        assert len(files.read()) == 1
        files.close()
    assert victim.read_text() == '{"format": "mine"}'


@pytest.mark.parametrize("kind", ["symlink", "hard link", "fifo"])
def test_a_part_file_that_is_a_link_or_a_fifo_is_named_and_not_read(tmp_path, kind):
    files = PartFiles(tmp_path / "sweep", PLAN, resume=False)
    path = files.path("a/0", "write", "auto")
    files.write(path, as_table([row()]))
    path.rename(victim := tmp_path / "victim")
    _swap(path, kind, victim)
    with pytest.raises(ValueError, match=path.name):
        read_folder(files.folder)


def test_a_file_that_changed_on_disk_is_named(tmp_path):
    files = PartFiles(tmp_path, PLAN, resume=False)
    path = files.path("a/0", "write", "auto")
    files.write(path, as_table([row(), row("a/1", p50=345)]))
    good, right = path.read_bytes(), read_folder(tmp_path).frame()
    named = 0
    for at in range(0, len(good), 149):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        try:
            found = read_folder(tmp_path).frame()
        except ValueError as error:
            named += str(path) in str(error)
        else:
            assert found.equals(right), at
    assert named > 25


def test_a_plan_that_is_nested_deeply_is_refused(tmp_path):
    for depth in (900, 100_000):
        (tmp_path / "_sweep.json").write_text('{"count": ' + "[" * depth + "]" * depth + "}")
        with pytest.raises(ValueError, match=r"_sweep\.json.* levels deep"):
            PartFiles(tmp_path, PLAN, resume=True)
