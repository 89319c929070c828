# SPDX-License-Identifier: Apache-2.0
"""Queue pairs that are connected by hand, as far as they go without an RDMA device.

With one: tests/testbed/queue_pairs.py and tests/native/test_verbs_qp.c.
"""

import dataclasses

import pytest

import dgkit
from dgkit import Access, BoundsError, ClosedError, Device, Unsupported
from dgkit.dma import QueuePair, QueuePairAddress, RdmaMemory

GID = "::ffff:10.9.0.1"
ADDRESS = QueuePairAddress(
    qpn=17, psn=99, gid=bytes(10) + b"\xff\xff\x0a\x09\0\1", gid_index=1, lid=0, port=1, mtu=1024,
    max_reads=16,
)  # fmt: skip


@pytest.fixture
def unopened():
    """Queue pair whose arguments are checked before it would be used."""
    made = QueuePair.__new__(QueuePair)
    made._p = None
    return made


def test_a_provider_without_queue_pairs_names_the_one_that_has_them():
    named = pytest.raises(Unsupported, match=r"provider soft has no queue pairs.*verbs")
    with Device("soft") as device, device.queue() as queue, named:
        queue.queue_pair()
    with pytest.raises(ClosedError, match="is closed"):
        queue.queue_pair()


def test_an_address_shows_its_gid_as_text_and_does_not_change():
    assert ADDRESS.gid_text == GID
    assert repr(ADDRESS) == (
        "QueuePairAddress(qpn=17, psn=99, gid=::ffff:10.9.0.1, gid_index=1, lid=0, port=1, "
        "mtu=1024, max_reads=16)"
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        ADDRESS.qpn = 3  # type: ignore[misc]


def test_memory_is_what_an_import_takes():
    memory = RdmaMemory(address=4096, size=64, rkey=7, access=Access.RW)
    assert dataclasses.asdict(memory) == {
        "address": 4096, "size": 64, "rkey": 7, "access": Access.RW,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (
            {"qpn": 1 << 24},
            BoundsError,
            "qpn is 16777216; it has 24 bits, so the limit is 16777215",
        ),
        ({"qpn": -1}, BoundsError, "qpn is -1; it cannot be negative"),
        ({"qpn": "17"}, TypeError, "qpn is '17'; it must be a whole number"),
        ({"psn": 1 << 70}, BoundsError, "psn is 1180591620717411303424"),
        ({"lid": 1 << 16}, BoundsError, "lid is 65536; it has 16 bits"),
        ({"mtu": 0}, BoundsError, "mtu is 0; it must be 1 or more"),
        ({"mtu": 1 << 32}, BoundsError, "mtu is 4294967296; it has 32 bits"),
        ({"max_reads": 256}, BoundsError, "max_reads is 256; it has 8 bits"),
        ({"gid": b"\0" * 15}, ValueError, r"gid is b'.*; it must be 16 bytes or the text of"),
        ({"gid": "10.9.0.1"}, ValueError, "gid is '10.9.0.1'; it must be .*'::ffff:10.9.0.1'"),
        ({"gid": "fe80::1%eth0"}, ValueError, "gid is 'fe80::1%eth0'"),
        ({"gid": 4}, TypeError, "gid is 4; it must be 16 bytes"),
    ],
)
def test_a_number_of_the_other_side_is_checked_before_it_is_used(unopened, change, kind, text):
    good = {"qpn": 18, "psn": 1, "gid": GID}
    with pytest.raises(kind, match=text):
        unopened.connect(**{**good, **change})


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"rkey": 1 << 32}, BoundsError, "rkey is 4294967296; it has 32 bits"),
        ({"size": 0}, BoundsError, "size is 0; it must be 1 or more"),
        ({"address": 1 << 64}, BoundsError, r"address is 18446744073709551616; the limit is 2\^64"),
        ({"address": None}, TypeError, "address is None"),
        ({"access": "x"}, ValueError, "access is 'x'"),
    ],
)
def test_memory_of_the_other_side_is_checked_before_it_is_used(unopened, change, kind, text):
    good = {"address": 4096, "size": 64, "rkey": 7}
    with pytest.raises(kind, match=text):
        unopened.import_memory(**{**good, **change})


def test_only_a_region_is_granted(unopened):
    with pytest.raises(TypeError, match="region is b'x'; it must be a Region"):
        unopened.grant(b"x")


def test_an_rdma_device_is_named_for_verbs_only():
    with pytest.raises(ValueError, match="rdma='mlx5_0' is for 'verbs', not for 'soft'"):
        dgkit.Device("soft", rdma="mlx5_0")
    with pytest.raises(TypeError, match="rdma is 3; it must be text, as 'mlx5_0', or None"):
        dgkit.Device("verbs", rdma=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="printable characters only"):
        dgkit.Device("verbs", rdma="mlx5\0")
