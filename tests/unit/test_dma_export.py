# SPDX-License-Identifier: Apache-2.0
"""Descriptors: exporting a region, importing it in the same process."""

import pytest
from support.dma import keep

import dgkit
from dgkit import Access, Device
from dgkit.errors import AccessDenied


@pytest.fixture
def device():
    with Device() as opened:
        yield keep(opened)


def test_export_gives_a_short_descriptor_again_and_again(device):
    region = device.register(bytearray(8))
    assert region.export() == region.export()
    assert region.export("r") == region.export(Access.READ) != region.export("rw")
    assert len(region.export()) <= 512


def test_export_narrows_and_never_widens(device):
    region = device.register(bytearray(8), "r")
    for wider in ("w", "rw"):
        with pytest.raises(AccessDenied, match=f"with access '{wider}': this can only narrow"):
            region.export(wider)
    both = device.register(bytearray(8))
    assert device.import_region(both.export("w")).access == Access.WRITE


def test_readonly_export_is_exported_for_reading_only(device):
    region = device.register(dgkit.empty(64, readonly_export=True))
    assert device.import_region(region.export()).access == Access.READ
    for access in ("w", "rw"):
        with pytest.raises(AccessDenied, match="readonly_export=True: export it as 'r'"):
            region.export(access)
    writable = device.register(dgkit.empty(64, readonly_export=True), "w")
    with pytest.raises(AccessDenied, match="readonly_export=True"):
        writable.export()


def test_an_import_says_what_it_is(device):
    region = device.register(bytearray(24), "rw")
    remote = device.import_region(region.export("r"))
    assert (remote.size, remote.access, remote.method) == (24, Access.READ, "map")
    assert (remote.lost, remote.revoked, remote.closed) == (False, False, False)
    assert f"RemoteRegion id {remote.id}, 24 bytes of process" in repr(remote)
    assert region.importers == 1
    remote.close()
    remote.close()
    assert remote.closed
    assert (remote.lost, remote.revoked) == (False, False)
    assert repr(remote).endswith("closed>")
    assert region.importers == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_descriptor_may_be_any_bytes(device, kind):
    region = device.register(bytearray(24))
    assert device.import_region(kind(region.export())).size == 24


def test_a_descriptor_that_is_no_bytes_is_a_type_error(device):
    for token in ("text", None, 5):
        with pytest.raises(TypeError, match="token has type"):
            device.import_region(token)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_negative_timeout_is_a_value_error(device, timeout):
    region = device.register(bytearray(24))
    with pytest.raises(ValueError, match="timeout is"):
        device.import_region(region.export(), timeout)
    with pytest.raises(ValueError, match="timeout is"):
        region.close(timeout)
