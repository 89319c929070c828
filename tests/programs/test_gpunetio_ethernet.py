# SPDX-License-Identifier: Apache-2.0
"""The samples of GPUNetIO Ethernet on the emulated GPU, whose packets are those of a TAP device."""

import re
import shlex
import subprocess
import sys

import pytest
from support.doca import ethernet
from support.doca.ethernet import has_network, in_namespace, run
from support.doca.gpunetio_samples import build, environment
from support.processes import cli
from support.processes.waiting import gone, until

from dgkit import PacketPanel

COUNT = 1000


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpunetio_ethernet")
    nvcc = folder / "nvcc"
    command = cli.command("softdoca", "nvcc")
    nvcc.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    nvcc.chmod(0o700)
    return build(folder / "samples", str(nvcc), target="gpunetio_eth")


def fails(program, interface):
    """Return what a program says that ends with 1."""
    done = subprocess.run(
        [program], env=environment() | {"SOFTDOCA_NET": interface},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


def check_refusal(program):
    """Check what a machine without privileges, or without TAP devices, is told."""
    said = fails(program, "tap:dg0")
    assert "dg0: not permitted without CAP_NET_ADMIN" in said or "/dev/net/tun is missing" in said


def run_or_refused(kind, count, program, *arguments):
    """Run a sample in a network namespace; where there is none, check its refusal, return None."""
    if has_network():
        return run(kind, count, program, *arguments, env=environment())
    check_refusal(program)
    return None


def test_a_gpu_answers_every_ping_and_captures_show_it(samples, tmp_path, monkeypatch):
    """One capture of the machine's end of the wire, and one of softdoca's."""
    path = tmp_path / "ping.pcapng"
    monkeypatch.setenv("SOFTDOCA_CAPTURE", str(path))
    seen = run_or_refused("ping", COUNT, samples / "gpunetio_ping")
    if seen is None:
        return
    assert seen["right"] == COUNT, seen["said"]
    assert sorted(seen["requests"]) == sorted(seen["replies"]) == list(range(COUNT))
    assert not seen["wrong"]
    assert seen["arps"] >= 2  # a request and its reply
    assert f"and {COUNT} echo requests, ignored 0 frames" in seen["said"]
    echoes = [row for row in PacketPanel(path).rows() if row["protocol"] == "ICMP"]
    requests = [row for row in echoes if row["direction"] == "received"]
    assert len(requests) == COUNT == len(echoes) - len(requests)
    assert {(row["queue"], row["rule"]) for row in requests} == {("0", "ROOT entry 2")}
    assert seen["code"] == 0


def test_a_gpu_answers_ping_after_damaged_frames_of_each_layer(samples):
    """Runts and jumbo frames among them; what the queue cannot hold is counted."""
    seen = run_or_refused("damaged", 5000, samples / "gpunetio_ping")
    if seen is None:
        return
    assert seen["right"] == 1, seen["said"]
    too_long = re.search(r"(\d+) because they were longer than its packets", seen["said"])
    assert int(too_long[1]) > 0
    assert seen["code"] == 0


def test_a_program_ends_with_a_run_that_takes_too_long(tmp_path):
    """So that it takes no time of the next run."""
    program, number = tmp_path / "program", tmp_path / "number"
    program.write_text('#!/bin/sh\necho $$ > "$1"\nexec sleep 60\n')
    program.chmod(0o700)
    command = in_namespace(sys.executable, ethernet.__file__, "ping", 1, program, number)
    if not has_network():
        return
    with subprocess.Popen(command, env=environment()) as process:
        pid = int(until(lambda: number.exists() and number.read_text(), "the program started"))
        process.kill()
    until(lambda: gone(pid), "the program ended")


def test_two_kernels_hand_datagrams_on_by_a_semaphore(samples):
    count = 3000
    seen = run_or_refused("datagrams", count, samples / "gpunetio_receive", "--count", count)
    if seen is None:
        return
    assert f"{count} datagrams, the sum of their bytes is {seen['sum']}" in seen["said"]
    assert seen["code"] == 0


def test_frames_are_sent_in_order_and_not_before_their_times(samples):
    count, size, gap_ns = 512, 200, 100_000
    program = samples / "gpunetio_send"
    seen = run_or_refused("frames", count, program, "--count", count, "--size", size)
    if seen is None:
        return
    for number, frame in enumerate(map(bytes.fromhex, seen["frames"])):
        assert frame[:14] == bytes([255] * 6 + [2, 0, 0, 0, 0, 2, 0x88, 0xB5])
        assert frame[14:] == (number.to_bytes(4, "little") * size)[: size - 14]
    assert seen["times"][-1] > 0.9 * (count - 1) * gap_ns
    assert f"{count} had a time, and were sent" in seen["said"]
    assert seen["code"] == 0


def test_a_capture_that_cannot_be_written_is_said(samples, monkeypatch):
    if not has_network():
        check_refusal(samples / "gpunetio_ping")
        return
    monkeypatch.setenv("SOFTDOCA_CAPTURE", "/no/such/folder/file")
    program = in_namespace(samples / "gpunetio_ping")
    done = subprocess.run(
        program, env=environment() | {"SOFTDOCA_NET": "tap:dg0"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "SOFTDOCA_CAPTURE is '/no/such/folder/file', which cannot be written" in done.stderr


def test_without_an_interface_the_sample_says_what_to_set(samples):
    said = fails(samples / "gpunetio_ping", "")
    assert "set SOFTDOCA_NET to tap:NAME, to the name of an interface, or to fd:NUMBER" in said
