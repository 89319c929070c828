# SPDX-License-Identifier: Apache-2.0
"""Descriptors that are random or forged.

native/test_descriptor.c has each truncation and each altered bit, what edited fields gain, and
another version, machine, or a dead process.
"""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.dma import keep

from dgkit import Device
from dgkit.errors import DescriptorError, DgkitError, PeerLost

QUICK = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
PATH = slice(64, 172)


@pytest.fixture(scope="module")
def device():
    with Device() as opened:
        yield keep(opened)


@pytest.fixture(scope="module")
def token(device):
    return device.register(bytearray(64)).export()


def summed(token):
    """With the checksum that fits: FNV-1a over all bytes, its own four as 0."""
    data = bytearray(token)
    data[12:16] = bytes(4)
    found = 2166136261
    for byte in data:
        found = (found ^ byte) * 16777619 & 0xFFFFFFFF
    data[12:16] = struct.pack("<I", found)
    return bytes(data)


def altered(token, at, new):
    data = bytearray(token)
    data[at] = new
    return summed(data)


def refused(device, data, error=DescriptorError, words=""):
    with pytest.raises(error, match=words or None):
        device.import_region(data, timeout=1)


def test_the_checksum_of_this_test_is_the_cores(token):
    assert summed(token) == token


@QUICK
@given(data=st.data())
def test_random_bytes_anywhere_with_a_good_checksum_never_open_anything_else(device, token, data):
    at = data.draw(st.integers(0, len(token) - 1))
    new = data.draw(st.binary(min_size=1, max_size=16))
    changed = bytearray(token)
    changed[at : at + len(new)] = new
    forged = summed(changed[: len(token)])
    try:
        region = Device.import_region(device, forged, timeout=0.2)
    except DgkitError:
        return
    # What is only for display may differ; the exporter's table says what the region is.
    with region:
        assert (region.size, str(region.access)) == (64, "rw")


@pytest.mark.parametrize(
    "path", [b"/nowhere/door.sock", b"/", b"relative", b"", b"/dev/null", b"\xff" * 108]
)
def test_another_socket_is_refused(device, token, path):
    forged = altered(token, PATH, path.ljust(108, b"\0"))
    refused(device, forged, (DescriptorError, PeerLost, OSError))
