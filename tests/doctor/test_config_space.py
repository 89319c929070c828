# SPDX-License-Identifier: Apache-2.0
"""Configuration space: what is read of it, and that no bytes can do harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.pci import config

from dgkit.doctor.facts import config_space
from dgkit.doctor.facts.config_space import Acs, Bar, Link


@pytest.mark.parametrize(("number", "name"), config_space.PORTS.items())
def test_the_kind_of_a_port_stands_in_the_pcie_capability(number: int, name: str) -> None:
    assert config_space.port(config(port=number)) == name


def test_without_root_nothing_is_known_of_a_port_or_of_acs() -> None:
    raw = config(port=4, acs=0x1D, size=64)
    assert config_space.port(raw) == ""
    assert config_space.link(raw) is None
    assert config_space.acs(raw) is None
    assert not config_space.has_extended(raw)


def test_256_bytes_tell_the_port_and_not_acs() -> None:
    raw = config(port=6, acs=0x1D, size=256)
    assert config_space.port(raw) == config_space.DOWNSTREAM
    assert not config_space.has_extended(raw)


def test_acs_bits_have_the_names_that_lspci_gives_them() -> None:
    found = config_space.acs(config(port=6, acs=0x1D, acs_can=0x5F))
    assert found == Acs(
        can=("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "DirectTrans"),
        on=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"),
    )
    assert config_space.acs(config(port=6, acs=0)) == Acs(found.can if found else (), ())


def test_a_bridge_may_have_no_acs() -> None:
    raw = config(port=6)
    assert config_space.has_extended(raw)
    assert config_space.acs(raw) is None


def test_the_link_is_told_at_most_and_now() -> None:
    raw = config(port=0, lanes=(16, 8), generation=(5, 1))
    assert config_space.link(raw) == Link(5, 16, 1, 8)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, (1 << 44) - 1), st.integers(0, 43)),
        max_size=6,
    ),
    st.booleans(),
)
def test_resizable_bars_come_back_as_they_were_written(
    bars: list[tuple[int, int, int]], acs: bool
) -> None:
    raw = config(port=0, bars=bars, acs=0x1D if acs else None)
    wanted = tuple(
        Bar(number, tuple(2 ** (20 + bit) for bit in range(44) if mask >> bit & 1), 2 ** (20 + now))
        for number, mask, now in bars
    )
    assert config_space.resizable_bars(raw) == wanted


@given(st.binary(max_size=4096), st.integers(0, 4096))
def test_no_bytes_raise_or_hang(raw: bytes, cut: int) -> None:
    made = bytearray(config(port=6, acs=0x1D, bars=[(1, 0xFFFF, 8)]))
    made[0x40 : 0x40 + len(raw)] = raw
    for one in (raw, bytes(made[:cut])):
        config_space.port(one)
        config_space.link(one)
        config_space.acs(one)
        config_space.resizable_bars(one)


def test_lists_that_run_in_a_circle_end() -> None:
    made = bytearray(config(port=6, acs=0x1D))
    made[0x61] = 0x40  # PCIe's next is power management again
    made[0x100:0x104] = (0x0B | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert config_space.port(bytes(made)) == config_space.DOWNSTREAM
    assert config_space.acs(bytes(made)) is None


def test_a_device_that_fell_off_the_bus_has_no_capabilities() -> None:
    raw = b"\xff" * 4096
    assert config_space.acs(raw) is None
    assert config_space.port(raw) in ("", *config_space.PORTS.values())
