# SPDX-License-Identifier: Apache-2.0
"""What ibv_devinfo prints, of several versions of rdma-core."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import machine

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import rdma

# After rdma-core's libibverbs/examples/devinfo.c; GUIDs are invented.
SHORT = """hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t24.33.1048
\tnode_guid:\t\t\t0000:5e00:5300:0001
\tsys_image_guid:\t\t\t0000:5e00:5300:0001
\tvendor_id:\t\t\t0x02c9
\tvendor_part_id:\t\t\t41686
\thw_ver:\t\t\t\t0x1
\tboard_id:\t\t\tMT_0000000540
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\t\tlink_layer:\t\tEthernet

"""
VERBOSE = """hca_id:\tmlx5_1
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t32.47.1088
\tvendor_part_id:\t\t\t41692
\tboard_id:\t\t\tMT_0000000965
\tphys_port_cnt:\t\t\t1
\tmax_mr_size:\t\t\t0xffffffffffffffff
\tdevice_cap_flags:\t\t0x21361c36
\t\t\t\t\tBAD_PKEY_CNTR
\tatomic_cap:\t\t\tATOMIC_HCA (1)
\tgeneral_odp_caps:
\t\t\t\t\tODP_SUPPORT
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tlink_layer:\t\tInfiniBand
\t\t\tphys_state:\t\tLINK_UP (5)
\t\t\tGID[  0]:\t\tfe80:0000:0000:0000:0000:5e00:5300:0001

hca_id:\trxe0
\ttransport:\t\t\tInfiniBand (0)
\tvendor_part_id:\t\t\t0
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tlink_layer:\t\tEthernet
"""


def test_a_device_is_read_with_its_firmware_board_and_port() -> None:
    (found,) = rdma.parse_devinfo(SHORT)
    assert found == rdma.IbvDevice(
        name="mlx5_0", transport="InfiniBand", firmware="24.33.1048", board="MT_0000000540",
        part=41686, states=("PORT_ACTIVE",), layers=("Ethernet",),
    )  # fmt: skip


def test_the_verbose_output_of_several_devices_is_read() -> None:
    first, second = rdma.parse_devinfo(VERBOSE)
    assert (first.name, first.part, first.states) == ("mlx5_1", 41692, ("PORT_DOWN",))
    assert first.layers == ("InfiniBand",)
    assert (second.name, second.firmware, second.states) == ("rxe0", "", ("PORT_ACTIVE",))


def test_no_devices_are_a_fact_and_a_failure_says_why() -> None:
    none = Reading(said="No IB devices found\n", code=255)
    assert machine({"run ibv_devinfo": none}).know(rdma.devinfo) == rdma.IbvDevices()
    broken = Reading(said="ibv_devinfo: error while loading shared libraries\n", code=127)
    assert "shared libraries" in machine({"run ibv_devinfo": broken}).know(rdma.devinfo).why
    assert machine({}).know(rdma.devinfo).why
    assert machine({"run ibv_devinfo": SHORT}).know(rdma.devinfo).names == {"mlx5_0"}


@given(st.text() | st.lists(st.sampled_from(VERBOSE.split("\t"))).map("\t".join))
def test_no_text_makes_the_parser_raise(text: str) -> None:
    for found in rdma.parse_devinfo(text):
        assert found.part >= 0


fields = st.text("abcXYZ019_.-", min_size=1, max_size=12)


@given(st.lists(st.tuples(fields, fields, st.integers(0, 99999)), max_size=4))
def test_what_ibv_devinfo_would_print_is_read_back(devices: list[tuple[str, str, int]]) -> None:
    text = "".join(
        f"hca_id:\t{name}\n\tfw_ver:\t\t{firmware}\n\tvendor_part_id:\t{part}\n\n"
        for name, firmware, part in devices
    )
    assert [(one.name, one.firmware, one.part) for one in rdma.parse_devinfo(text)] == devices
