# SPDX-License-Identifier: Apache-2.0
"""What a guest leaves in the folder that the guests of a testbed share ends or holds up nobody."""

import os
import random
import socket
import stat

import pytest

from dgkit import Device
from dgkit.errors import TestbedError
from dgkit.runtime_folder import runtime_folder
from dgkit.testbed import doorbell, guest_pair
from dgkit.wire.messages import RingAnswer, encode

DEEP = 1200  # folders; shutil.rmtree() recurses, and a path has at most 4096 bytes


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def make_deep(folder: int, chance: random.Random) -> None:
    """Make nested folders, each with a file, by descriptors."""
    for _ in range(DEEP):
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
        os.mkdir("inner", dir_fd=folder)
        inner = os.open("inner", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        if chance.random() < 0.1:
            os.fchmod(folder, 0)
        os.close(folder)
        folder = inner
    os.close(folder)


def litter(folder, outside, chance: random.Random) -> None:
    """Fill a folder as a guest's root can, but for devices where this user may make none."""
    os.mkfifo(folder / "agent.host")
    (folder / "link").symlink_to(outside)
    (folder / "loop").symlink_to("loop")
    (folder / "\n\x1b[2J\udcff").mkdir(0)
    if os.geteuid() == 0:
        os.mknod(folder / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 250))
    for number in range(100):
        (folder / f"{chance.random()}").touch(0o600 if number % 2 else 0)
    make_deep(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), chance)


@pytest.mark.parametrize("seed", range(2))
def test_a_folder_that_a_guest_has_filled_is_removed_and_nothing_beside_it(base, tmp_path, seed):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch(0o640)
    with runtime_folder("testbed-") as folder:
        exchange = folder / "exchange"
        exchange.mkdir()
        litter(exchange, outside, random.Random(seed))
    assert list((base / "dgkit").iterdir()) == []
    assert [path.stat().st_mode & 0o777 for path in outside.iterdir()] == [0o640]


def test_a_folder_of_a_killed_process_is_removed_however_deep_it_is(base):
    with runtime_folder("testbed-"):
        old = base / "dgkit/testbed-old"
        old.mkdir(0o700)
        make_deep(os.open(old, os.O_RDONLY | os.O_DIRECTORY), random.Random(1))
    with runtime_folder("testbed-") as folder:
        assert list((base / "dgkit").iterdir()) == [folder]


NO_FILE = {
    "a FIFO": os.mkfifo,
    "a folder": os.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a loop": lambda path: path.symlink_to(path),
    "a large file": lambda path: path.write_bytes(bytes(1 << 20)),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", NO_FILE)
def test_what_is_no_small_file_of_the_other_guest_is_an_error_at_once(tmp_path, monkeypatch, what):
    monkeypatch.setenv("DGKIT_EXCHANGE", str(tmp_path))
    NO_FILE[what](tmp_path / "agent.host")
    with pytest.raises(TestbedError, match=r"the other guest's agent\.host cannot be read"):
        guest_pair.read("agent", "host", 0.0, "absent")


JUNK = {
    "nothing": b"",
    "no hexadecimal": b"\xff\xfe\n",
    "half a byte": b"8\n",
    "another message": b"80\n",
    "no end": b"00" * (1 << 13),
    "other regions": encode(RingAnswer(ring=b"", remote=1, locals=[1, 2])).hex().encode() + b"\n",
    "no id": encode({"ring": b"", "remote": -1, "locals": [1]}).hex().encode() + b"\n",
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", JUNK)
def test_an_answer_to_an_offered_queue_that_is_none_is_an_error(what):
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("rb") as reader, theirs:
        theirs.sendall(JUNK[what])
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(TestbedError, match="the DPU guest"):
            doorbell._heard(ours, reader, "q", 1)


@pytest.mark.timeout(20)
def test_a_guest_that_never_answers_holds_up_nobody(monkeypatch):
    monkeypatch.setattr(guest_pair, "WAIT_S", 0.1)
    ours, theirs = socket.socketpair()
    says = pytest.raises(TestbedError, match="does not say whether it serves 'q'")
    with ours, ours.makefile("rb") as reader, theirs, says:
        doorbell._heard(ours, reader, "q", 1)


OFFER = {"ring": b"", "locals": [b""], "depth": 64, "trace": False, "doorbell": "",
         "starts": [1, 2], "port": 1}  # fmt: skip
OFFERS = {
    "junk": b"\xc1",
    "no port": encode(OFFER | {"port": 1 << 16}),
    "no depth": encode(OFFER | {"depth": -1}),
    "no regions": encode(OFFER | {"locals": []}),
    "too few addresses": encode(OFFER | {"starts": [1]}),
    "an address": encode(OFFER | {"starts": [1, 1 << 63]}),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", OFFERS)
def test_an_offered_queue_that_is_none_is_an_error(tmp_path, monkeypatch, what):
    monkeypatch.setenv("DGKIT_EXCHANGE", str(tmp_path))
    monkeypatch.setenv("DGKIT_GUEST", "dpu")
    (tmp_path / "queue.q").write_bytes(OFFERS[what])
    says = pytest.raises(TestbedError, match="what is offered as 'q'")
    with Device("soft") as device, device.register(bytearray(64)) as region, says:
        doorbell.serve_gpu_queue("q", device, region, timeout=0.0)
