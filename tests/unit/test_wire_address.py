# SPDX-License-Identifier: Apache-2.0
"""Addresses, and sockets that killed agents left."""

import os
import socket

import pytest

from dgkit.wire import address
from dgkit.wire.host_id import boot_id, process_state

KEY = "ab" * 32


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def test_an_address_reads_back_as_it_is_written():
    far = f"tcp://10.0.0.1:17?key={KEY}"
    for text in ("ipc:///run/x.sock", far, f"tcp://[::1]:17?key={KEY}", f"{far}&heartbeat=2.5"):
        assert str(address.parse(text)) == text
    assert address.parse(f"tcp://host:17?key={KEY}").endpoint == "tcp://host:17"


def test_an_address_has_the_heartbeat_of_its_agent():
    far = f"tcp://10.0.0.1:17?key={KEY}"
    assert address.parse(far).heartbeat == address.HEARTBEAT_S
    assert address.parse(f"{far}&heartbeat=30").heartbeat == 30
    for wrong in ("0.5", "31", "1.2.3", "0"):
        with pytest.raises(ValueError, match=rf"heartbeat={wrong}: it must be 0.6 to 30 seconds"):
            address.parse(f"{far}&heartbeat={wrong}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host:17",
        "ipc://relative",
        "ipc:///" + "x" * 108,
        "ipc:///tmp/two\nlines",
        "tcp://host",
        "tcp://host:65536",
        "tcp://host:17?key=abc",
        f"tcp://host:17?key={KEY}&heartbeat=",
        f"tcp://host:17?key={KEY}&heartbeat=nan",
        "tcp://host:17?heartbeat=5",
        "udp://host:17",
        "tcp://host:17;tcp://other:18",
    ],
)
def test_what_is_no_address_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"address|ipc://|path|hex digits"):
        address.parse(text)


def test_an_address_that_is_no_text_is_a_type_error():
    with pytest.raises(TypeError, match="not int"):
        address.parse(17)


def _socket_of(pid: int, listen: bool) -> socket.socket:
    path = address.fresh().path
    path = path.with_name(path.name.replace(str(os.getpid()), str(pid)))
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    if listen:
        sock.listen()
    return sock


def test_the_socket_of_a_dead_agent_is_swept_and_that_of_a_living_one_stays():
    nobody = 2**22 + 1  # above the largest pid_max of Linux
    with _socket_of(nobody, False), _socket_of(nobody + 1, True), _socket_of(os.getpid(), False):
        swept = address.sweep()
    assert [path.name.split("-")[1] for path in swept] == [str(nobody)]


def test_a_process_is_running_or_gone():
    assert process_state(os.getpid()) == "running"
    assert process_state(2**22 + 1) == "gone"
    assert len(boot_id()) == 36
