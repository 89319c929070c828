# SPDX-License-Identifier: Apache-2.0
"""Snapshot files: their content, and the errors of invalid files."""

import datetime
import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doctor.snapshots import NAMES, snapshot_file
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import machine

import dgkit
from dgkit.doctor import Goal, diagnose
from dgkit.doctor.collect.live import QUERIES
from dgkit.doctor.collect.reader import Fault, Reading
from dgkit.doctor.collect.snapshot import RecordedReader, Snapshot, load
from dgkit.doctor.facts.nvidia_proc import read_modules
from dgkit.doctor.facts.nvidia_smi import read_smi
from dgkit.doctor.machine import Machine
from dgkit.doctor.record import filter_reading, record
from dgkit.doctor.runner import live_machine

TELLING = ["text /proc/cmdline", "text /proc/cpuinfo", "text /proc/1/cgroup", "names /dev"]
TELLING += ["text /proc/self/status"]


@pytest.fixture(scope="module")
def live() -> Machine:
    with live_machine() as machine:
        machine.read.together(TELLING)
        record(machine)  # all is read once, before the time is over
        yield machine


PLAIN = {"format": "dgkit snapshot", "version": 1, "source": "synthetic: a test", "readings": {}}


def filtered(readings: dict[str, Reading]) -> dict[str, Reading]:
    """Return the readings as a recording keeps them."""
    kept = {key: filter_reading(key, reading) for key, reading in readings.items()}
    return {key: reading for key, reading in kept.items() if reading is not None}


def _written(folder: Path, what: object) -> Path:
    path = folder / "machine.snap"
    path.write_bytes(what if isinstance(what, bytes) else json.dumps(what).encode())
    return path


def test_a_recording_says_when_and_by_what_it_was_made(live: Machine) -> None:
    made = record(live)
    assert made.source == "recorded"
    assert made.dgkit == dgkit.__version__
    assert datetime.date.fromisoformat(made.taken) <= datetime.date.today()
    assert {f"ask {what}" for what in QUERIES} <= set(made.readings)


@pytest.mark.parametrize("goal", Goal)
def test_judged_from_the_file_is_as_judged_live(live: Machine, goal: Goal, tmp_path: Path) -> None:
    path = tmp_path / "this.snap"
    record(live).save(path)
    again = Machine(RecordedReader(load(path)), live.name)
    here_and_now, from_file = (diagnose([one], goal=goal) for one in (live, again))
    assert from_file.findings == here_and_now.findings
    assert from_file.data_paths == here_and_now.data_paths
    assert not [one for one in from_file.findings if "did not look" in one.why]


def test_only_a_live_machine_can_be_recorded() -> None:
    with pytest.raises(ValueError, match="a test machine cannot be recorded"):
        record(machine({}, name="a test machine"))


def test_what_tells_much_and_is_never_looked_at_is_not_recorded(live: Machine) -> None:
    made = record(live).readings
    words = made["text /proc/cmdline"].text.split()
    assert not [word for word in words if re.match(r"root=|BOOT_IMAGE|ip=", word)]
    assert made["text /proc/cpuinfo"].text.count("processor") <= 1
    assert not re.search(r"[0-9]", made["text /proc/1/cgroup"].text)
    status = made["text /proc/self/status"].text.splitlines()
    assert {line[:3] for line in status} == {"Cap"}
    assert not {"sda", "vda", "tty", "stdin", "shm"} & set(made["names /dev"].names)


def test_a_recording_knows_what_it_did_not_look_at() -> None:
    real = RecordedReader(Snapshot(source="recorded", dgkit="0.1.0", readings={}))
    assert real.text("/etc/x") == Reading(
        fault="unrecorded", why="dgkit 0.1.0 did not record /etc/x"
    )
    made = RecordedReader(Snapshot(source="synthetic: a test", otherwise="absent", readings={}))
    assert made.text("/etc/x").absent


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
readings = st.builds(
    Reading,
    text=st.text(),
    said=st.text(),
    code=st.integers(-64, 255),
    names=st.lists(st.text()).map(tuple),
    raw=st.binary(),
    data=plain,
    fault=st.sampled_from(Fault.__args__),  # type: ignore[attr-defined]
    why=st.text(),
)


@given(st.dictionaries(st.text().map(lambda what: f"text {what}"), readings, max_size=3))
def test_what_is_saved_is_loaded(tmp_path_factory: Any, found: dict[str, Reading]) -> None:
    path = tmp_path_factory.getbasetemp() / "round.snap"
    made = Snapshot(source="synthetic: a test", readings=found)
    made.save(path)
    assert load(path) == made


@given(st.binary() | plain.map(lambda value: json.dumps(value).encode()))
def test_a_file_that_is_none_is_named(tmp_path_factory: Any, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.snap"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=re.escape(str(path))):
        load(path)


@given(st.data())
def test_a_file_that_was_cut_is_named(tmp_path_factory: Any, data: st.DataObject) -> None:
    whole = json.dumps({**PLAIN, "readings": {"text /a": {"text": "b"}}}).encode()
    path = tmp_path_factory.getbasetemp() / "cut.snap"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ValueError, match=re.escape(str(path))):
        load(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "version 2; this dgkit reads"),
        ({"version": 2, "readings": []}, "version 2; this dgkit reads"),
        ({"format": "something"}, "format 'something'"),
        ({"version": "1"}, "is not a snapshot"),
        ({"readings": []}, "is not a snapshot"),
        ({"readings": {"text /a": "b"}}, "is not a snapshot"),
        ({"readings": {"text /a": {"text": 1}}}, "is not a snapshot"),
        ({"readings": {"text /a": {"fault": "gone"}}}, "is not a snapshot"),
        ({"readings": {"raw /a": {"raw": "no base 64!"}}}, "is not a snapshot"),
        ({"readings": {"ask uname": {"data": "Linux"}}}, "is not a snapshot"),
        ({"readings": {"ask memlock": {"data": {"soft": "much"}}}}, "is not a snapshot"),
        ({"readings": {"ask page-size": {"data": 10**400}}}, "is not a snapshot"),
        ({"readings": {"ask open-files": {"data": {"soft": -1}}}}, "is not a snapshot"),
        ({"otherwise": "fine"}, "is not a snapshot"),
    ],
)
def test_a_file_that_is_not_as_it_should_be_is_told_why(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path = _written(tmp_path, {**PLAIN, **change})
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_folders_packed_deep_and_huge_files_are_told_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(ValueError, match="gunzip it first"):
        load(_written(tmp_path, gzip.compress(json.dumps(PLAIN).encode())))
    with pytest.raises(ValueError, match="is not a snapshot"):
        load(_written(tmp_path, b'{"readings":' + b"[" * 100_000))
    deep = b'{"readings":{"probe x":{"data":%b}}}' % (b"[" * 900 + b"]" * 900)
    deep = json.dumps(PLAIN).encode()[:-1].replace(b'"readings": {}', deep[1:-1]) + b"}"
    with pytest.raises(ValueError, match="levels deep"):
        load(_written(tmp_path, deep))
    with (tmp_path / "huge.snap").open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(ValueError, match="larger than the limit of a snapshot"):
        load(tmp_path / "huge.snap")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.snap")


def test_a_field_of_a_later_dgkit_does_no_harm(tmp_path: Path) -> None:
    found = load(_written(tmp_path, {**PLAIN, "weather": "fine"}))
    assert msgspec.structs.asdict(found)["readings"] == {}


SMI = """\
GPU 00000000:17:00.0
    Product Name                          : NVIDIA H100
    Processes
        Process ID                        : 4321
            Name                          : /data/bobby/secretproj/run --token=hunter2

    Accounted Processes                   : None
GPU 00000000:65:00.0
    Product Name                          : NVIDIA H100
    Processes                             : None
"""
VERBOSE = {
    "run nvidia-smi -q": Reading(text=SMI),
    "text /proc/1/cgroup": Reading(text="0::/kubepods/burstable/pod2cd5e8c2-1111/3f4e\n"),
    "text /proc/driver/nvidia/version": Reading(text="NVRM version: 580.1  (bobby@buildbox)\n"),
    "text /proc/modules": Reading(text="nvidia 99 5 nvidia_uvm, Live 0xffffffffc0400000 (OE)\n"),
    "names /usr/local": Reading(names=("bin", "bobbys", "cuda", "cuda-13.0")),
    "names /sys/class/net": Reading(names=("br-0123456789ab", "p0", "tap-bobby", "tmfifo_net0")),
    "text /sys/class/net/tap-bobby/phys_port_name": Reading(text="x"),
    "run ip -j addr show": Reading(
        text='[{"ifname": "tap-bobby"}, {"ifname": "tmfifo_net0", "addr_info": [], "x": 1}]'
    ),
}


def test_a_recording_keeps_of_a_reading_what_checks_use() -> None:
    made = filtered(VERBOSE)
    text = msgspec.json.encode(made).decode()
    assert not re.search("bobby|secret|hunter2|ffffc04|pod2cd|buildbox|0123456789ab|3f4e", text)
    now, before = (read_smi(one["run nvidia-smi -q"].text) for one in (made, VERBOSE))
    assert [one.value("Product Name") for one in now.gpus] == ["NVIDIA H100"] * 2
    assert [one.address for one in now.gpus] == [one.address for one in before.gpus]
    assert made["text /proc/modules"].text == "nvidia 99 5 nvidia_uvm, Live\n"
    assert read_modules(made["text /proc/modules"].text) == read_modules(
        VERBOSE["text /proc/modules"].text
    )
    assert made["names /usr/local"].names == ("cuda", "cuda-13.0")
    assert made["names /sys/class/net"].names == ("p0", "tmfifo_net0")
    addresses = json.loads(made["run ip -j addr show"].text)
    assert addresses == [{"ifname": "tmfifo_net0", "addr_info": []}]


@given(st.text() | st.text("P Processes:\n\t G", max_size=60))
def test_what_is_kept_of_any_text_is_a_text(text: str) -> None:
    for key in VERBOSE:
        if key != "text /sys/class/net/tap-bobby/phys_port_name":
            assert filter_reading(key, Reading(text=text, names=(text,))) is not None


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_changes_no_verdict(name: str) -> None:
    found = load(snapshot_file(name))
    short = msgspec.structs.replace(found, readings=filtered(found.readings))
    both = [Machine(RecordedReader(one)) for one in (found, short)]
    for goal in Goal:
        whole, less = (diagnose([machine], goal=goal) for machine in both)
        assert less.findings == whole.findings, goal
