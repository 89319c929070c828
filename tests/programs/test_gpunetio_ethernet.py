"""The samples of GPUNetIO Ethernet on the emulated GPU, whose packets are those of a TAP device."""

import shlex
import subprocess

import pytest
from support.doca.ethernet import has_network, run
from support.doca.gpunetio_samples import build, environment
from support.processes import cli

COUNT = 1000


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpunetio_ethernet")
    nvcc = folder / "nvcc"
    command = cli.command("softdoca", "nvcc")
    nvcc.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    nvcc.chmod(0o700)
    return build(folder / "samples", str(nvcc), target="gpunetio_eth")


def test_a_gpu_answers_every_ping_and_a_capture_shows_it(samples):
    if not has_network():
        check_refusal(samples / "gpunetio_ping")
        return
    seen = run(COUNT, samples / "gpunetio_ping", env=environment())
    assert seen["right"] == COUNT, seen["said"]
    assert sorted(seen["requests"]) == sorted(seen["replies"]) == list(range(COUNT))
    assert not seen["wrong"]
    assert seen["arps"] >= 2  # a request and its reply
    assert f"and {COUNT} echo requests, ignored 0 frames" in seen["said"]
    assert seen["code"] == 0


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


def test_without_an_interface_the_sample_says_what_to_set(samples):
    said = fails(samples / "gpunetio_ping", "")
    assert "set SOFTDOCA_NET to tap:NAME, or to the name of an interface" in said
