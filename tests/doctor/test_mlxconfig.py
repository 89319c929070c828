# SPDX-License-Identifier: Apache-2.0
"""What mlxconfig and mstconfig print, of several versions."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import machine

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import mlxconfig
from dgkit.doctor.facts.mlxconfig import Setting

# Written after public outputs (k8snetworkplumbingwg/sriov-network-operator, Mellanox/mstflint and
# NVIDIA's own pages); what names a single card is invented.
OLD = """
Device #1:
----------

Device type:    BlueField2
Name:           MBF2H332A-AENO_Ax_Bx
Description:    BlueField-2 P-Series DPU 25GbE Dual-Port SFP56
Device:         /dev/mst/mt41686_pciconf0

Configurations:                              Default         Current         Next Boot
*        INTERNAL_CPU_OFFLOAD_ENGINE         ENABLED(0)      ENABLED(0)      DISABLED(1)
         ESWITCH_HAIRPIN_DESCRIPTORS         Array[0..7]     Array[0..7]     Array[0..7]
*        MEMIC_SIZE_LIMIT                    _256KB(1)       DISABLED(0)     DISABLED(0)
         NUM_OF_VFS                          0               16              16
The '*' shows parameters with next value different from default/current value.
"""
NEW = """
Device #1:
----------

Device type:        BlueField3          
Name:               900-9D3B6-00CV-A_Ax 
Description:        NVIDIA BlueField-3 B3220 P-Series FHHL DPU; 200GbE (default mode)
Device:             0000:9f:00.0        

Configurations:                                          Default              Current              Next Boot
        LINK_TYPE_P1                                ETH(2)               ETH(2)               ETH(2)              
RO      MEMIC_BAR_SIZE                              0                    0                    0                   
        INTERNAL_CPU_MODEL                          EMBEDDED_CPU(1)      EMBEDDED_CPU(1)      EMBEDDED_CPU(1)     

The 'RO' shows parameters which are for read only and cannot be changed
"""  # noqa: E501, W291
# As the GPUNetIO guide prints it: the line ends are lost.
RUN_TOGETHER = (
    "LINK_TYPE_P1 ETH(2) LINK_TYPE_P2 ETH(2) INTERNAL_CPU_MODEL EMBEDDED_CPU(1) "
    "INTERNAL_CPU_PAGE_SUPPLIER EXT_HOST_PF(1) INTERNAL_CPU_ESWITCH_MANAGER EXT_HOST_PF(1) "
    "INTERNAL_CPU_IB_VPORT0 EXT_HOST_PF(1) INTERNAL_CPU_OFFLOAD_ENGINE DISABLED(1) "
    "ACCURATE_TX_SCHEDULER True(1) REAL_TIME_CLOCK_ENABLE True(1)"
)
ASK = "run mlxconfig -d 0000:9f:00.0 -e q LINK_TYPE_P1"
ALL = "run mlxconfig -d 0000:9f:00.0 -e q"
REFUSED = Reading(said="-E- Failed to open the device\n", code=3)


def test_an_output_with_three_columns_is_read_with_what_a_power_cycle_will_change() -> None:
    (found,) = mlxconfig.parse(OLD)
    assert (found.type, found.device) == ("BlueField2", "/dev/mst/mt41686_pciconf0")
    engine = found.settings["INTERNAL_CPU_OFFLOAD_ENGINE"]
    expected = ("ENABLED(0)", "ENABLED(0)", "DISABLED(1)")
    assert (engine.default, engine.current, engine.next) == expected
    assert engine.pending
    assert not found.settings["MEMIC_SIZE_LIMIT"].pending
    assert found.settings["ESWITCH_HAIRPIN_DESCRIPTORS"].now == "Array[0..7]"
    assert (found.now("NUM_OF_VFS"), found.next("INTERNAL_CPU_OFFLOAD_ENGINE")) == (16, 1)


def test_settings_that_may_only_be_read_are_read() -> None:
    (found,) = mlxconfig.parse(NEW)
    names = {"LINK_TYPE_P1", "MEMIC_BAR_SIZE", "INTERNAL_CPU_MODEL"}
    assert set(found.settings) == names
    assert found.now("LINK_TYPE_P1") == 2


def test_an_output_without_header_and_line_ends_is_read() -> None:
    (found,) = mlxconfig.parse(RUN_TOGETHER)
    assert len(found.settings) == 9
    assert found.now("INTERNAL_CPU_ESWITCH_MANAGER") == 1
    assert not any(one.pending for one in found.settings.values())


def test_a_query_without_current_values_gives_those_of_the_next_boot() -> None:
    text = "Configurations:   Next Boot\n  LINK_TYPE_P1   IB(1)\n"
    (found,) = mlxconfig.parse(text)
    assert found.settings["LINK_TYPE_P1"] == Setting("LINK_TYPE_P1", next="IB(1)")
    assert found.now("LINK_TYPE_P1") == 1


def test_two_devices_in_one_output_are_kept_apart() -> None:
    first, second = mlxconfig.parse(OLD + NEW.replace("#1", "#2"))
    assert (first.type, second.type) == ("BlueField2", "BlueField3")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("ETH(2)", 2),
        ("True(1)", 1),
        ("63", 63),
        ("0x10", 16),
        ("_256KB(1)", 1),
        ("Array[0..7]", None),
        ("N/A", None),
        ("", None),
    ],
)
def test_the_number_of_a_value(value: str, number: int | None) -> None:
    assert mlxconfig.number(value) == number


words = st.text(string.ascii_uppercase + string.digits, min_size=1, max_size=8)
letters = st.sampled_from(string.ascii_uppercase)
names = st.builds(
    lambda first, more: first + "_".join(more), letters, st.lists(words, min_size=2, max_size=4)
)
values = st.one_of(
    st.integers(0, 2**32).map(str),
    st.builds("{}{}({})".format, letters, words, names),
    st.just("Array[0..7]"),
)
rows = st.dictionaries(names, st.tuples(values, values, values), min_size=1, max_size=12)


@given(rows, st.booleans())
def test_what_mlxconfig_would_print_is_read_back(
    rows: dict[str, tuple[str, str, str]], wide: bool
) -> None:
    gap = " " * (9 if wide else 1)
    lines = [
        f"{'*' if v[2] != v[0] else ' '}{gap}{name}{gap}{gap.join(v)}" for name, v in rows.items()
    ]
    text = "Configurations:  Default  Current  Next Boot\n" + "\n".join(lines)
    (found,) = mlxconfig.parse(text)
    assert found.settings == {name: Setting(name, *v) for name, v in rows.items()}


@given(st.text() | st.lists(st.sampled_from(OLD.split(" ") + NEW.split("\n"))).map(" ".join))
def test_no_text_makes_the_parser_raise(text: str) -> None:
    for found in mlxconfig.parse(text):
        assert found.settings or found.type


def test_without_root_the_query_is_denied() -> None:
    here = machine({ASK: REFUSED, "ask euid": 1000})
    found = mlxconfig.query(here, "0000:9f:00.0", ["LINK_TYPE_P1"])
    assert (found.fault, found.settings) == ("denied", {})
    assert "Failed to open the device" in found.why


def test_with_root_the_same_words_are_a_failure() -> None:
    here = machine({ASK: REFUSED, "ask euid": 0})
    assert mlxconfig.query(here, "0000:9f:00.0", ["LINK_TYPE_P1"]).fault == "failed"


def test_a_card_that_does_not_know_a_setting_is_asked_for_all() -> None:
    unknown = Reading(text="-E- The Device doesn't support LINK_TYPE_P1 parameter\n", code=3)
    here = machine({ASK: unknown, ALL: OLD})
    found = mlxconfig.query(here, "0000:9f:00.0", ["LINK_TYPE_P1"])
    assert found.now("INTERNAL_CPU_OFFLOAD_ENGINE") == 0


def test_mstconfig_stands_in_for_mlxconfig() -> None:
    here = machine({ASK.replace("mlxconfig", "mstconfig"): NEW})
    assert mlxconfig.query(here, "0000:9f:00.0", ["LINK_TYPE_P1"]).now("LINK_TYPE_P1") == 2


def test_without_either_tool_the_query_says_so() -> None:
    found = mlxconfig.query(machine({}), "0000:9f:00.0", ["LINK_TYPE_P1"])
    assert (found.fault, "mstconfig" in found.why) == ("absent", True)


def test_a_query_that_hangs_says_so() -> None:
    late = Reading(fault="late", why="mlxconfig gave no answer within 5 s")
    found = mlxconfig.query(machine({ASK: late}), "0000:9f:00.0", ["LINK_TYPE_P1"])
    assert (found.fault, found.why) == ("late", late.why)
