# SPDX-License-Identifier: Apache-2.0
"""What lspci prints, in several versions of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import machine
from support.doctor.pci import gpu, sysfs

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import lspci, pci
from dgkit.doctor.facts.config_space import ACS_BITS, Acs, Link

NAMES = """\
0000:b2:00.0 PCI bridge [0604]: Mellanox Technologies MT42822 Family [BlueField-2 SoC PCIe Bridge] \
[15b3:1978] (rev 01) (prog-if 00 [Normal decode])
0000:b3:00.0 Ethernet controller [0200]: Mellanox Technologies MT42822 BlueField-2 integrated \
ConnectX-6 Dx network controller [15b3:a2d6] (rev 01)
0000:b6:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:20b8] (rev a1)
10000:e1:00.0 Non-Volatile memory controller [0108]: Samsung Electronics Co Ltd Device [144d:a80a]
"""

# pciutils 3.7 and later, as root
NEW = """\
0000:b2:00.0 PCI bridge: Mellanox Technologies MT42822 Family [BlueField-2 SoC PCIe Bridge] (rev 01)
	Control: I/O+ Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr- Stepping- SERR- FastB2B-
	Region 0: Memory at 20bffe000000 (64-bit, prefetchable) [size=32M]
	Capabilities: [60] Express (v2) Downstream Port (Slot-), MSI 00
		LnkCap:	Port #1, Speed 16GT/s, Width x16, ASPM not supported
		LnkSta:	Speed 2.5GT/s (downgraded), Width x8 (downgraded)
	Capabilities: [170 v1] Access Control Services
		ACSCap:	SrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
		ACSCtl:	SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

0000:b6:00.0 3D controller: NVIDIA Corporation GA100 [A30X] (rev a1)
	Region 0: Memory at aa000000 (32-bit, non-prefetchable) [size=16M]
	Region 1: Memory at 20a000000000 (64-bit, prefetchable) [size=32G]
	Region 3: Memory at 20a800000000 (64-bit, prefetchable) [virtual] [size=32M]
"""
# pciutils 3.5 says no "(ok)"; without root
OLD = """\
b3:00.0 Ethernet controller: Mellanox Technologies MT27800 Family [ConnectX-5]
	Subsystem: Mellanox Technologies MT27800 Family [ConnectX-5]
	Region 0: Memory at 382ffe000000 (64-bit, prefetchable) [disabled] [size=32M]
	Capabilities: <access denied>
	Kernel driver in use: mlx5_core
b4:00.0 3D controller: NVIDIA Corporation GV100GL
		LnkCap:	Port #0, Speed 8GT/s, Width x16, ASPM L0s L1, Exit Latency L0s <1us, L1 <4us
		LnkSta:	Speed 8GT/s, Width x16, TrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-
"""


def test_names_are_read_with_their_address() -> None:
    assert lspci.parse_names(NAMES) == {
        "0000:b2:00.0": "Mellanox Technologies MT42822 Family [BlueField-2 SoC PCIe Bridge]",
        "0000:b3:00.0": "Mellanox Technologies MT42822 BlueField-2 integrated ConnectX-6 Dx "
        "network controller",
        "0000:b6:00.0": "NVIDIA Corporation Device",
        "10000:e1:00.0": "Samsung Electronics Co Ltd Device",
    }


def test_without_lspci_a_name_is_made_of_the_numbers() -> None:
    readings = sysfs([gpu("pci0000:00/0000:00:01.0/0000:b6:00.0")])
    for known, name in [(True, "NVIDIA Corporation Device"), (False, "NVIDIA 2330")]:
        box = machine({**readings, **({"run lspci -D -nn": NAMES} if known else {})})
        assert lspci.name(box, box.know(pci.tree).gpus[0]) == name


def test_a_lspci_that_fails_gives_no_names() -> None:
    box = machine({"run lspci -D -nn": Reading(said="pcilib: Cannot open /proc/bus/pci", code=1)})
    assert lspci.names(box) == {}


def test_acs_link_and_regions_are_read() -> None:
    found = lspci.details(NEW)
    bridge = found["0000:b2:00.0"]
    assert bridge.acs == Acs(
        ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "DirectTrans"),
        ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"),
    )
    assert bridge.link == Link(4, 16, 1, 8)
    assert found["0000:b6:00.0"].regions == {0: 16 << 20, 1: 32 << 30, 3: 32 << 20}
    assert found["0000:b6:00.0"].acs is None


def test_older_outputs_are_read_and_what_is_denied_is_said() -> None:
    found = lspci.details(OLD)
    assert found["0000:b3:00.0"].denied
    assert found["0000:b3:00.0"].acs is None
    assert found["0000:b3:00.0"].regions == {0: 32 << 20}
    assert found["0000:b4:00.0"].link == Link(3, 16, 3, 16)
    assert not found["0000:b4:00.0"].denied


@pytest.mark.parametrize(
    "line", ["	ACSCtl:	SrcValid- TransBlk-", "		ACSCtl: SrcValid-"]
)
def test_a_control_line_alone_is_enough(line: str) -> None:
    """As in the GPUNetIO guide, which greps for it."""
    found = lspci.details(f"b2:00.0 PCI bridge: Mellanox Technologies Device 1978\n{line}\n")
    assert found["0000:b2:00.0"].acs == Acs((), ())


@given(st.sets(st.sampled_from(sorted(ACS_BITS.values()))), st.integers(0, 5), st.integers(0, 63))
def test_what_was_written_is_read(on: set[str], region: int, size: int) -> None:
    bits = " ".join(f"{bit}{'+' if bit in on else '-'}" for bit in ACS_BITS.values())
    unit = "KMGTP"[size % 5]
    text = (
        f"0000:01:00.0 PCI bridge: x\n\t\tACSCtl:\t{bits}\n"
        f"\tRegion {region}: Memory at 0 (64-bit) [size={size}{unit}]\n"
    )
    found = lspci.details(text)["0000:01:00.0"]
    assert found.acs == Acs((), tuple(bit for bit in ACS_BITS.values() if bit in on))
    assert found.regions == {region: size * 1024 ** ("KMGTP".index(unit) + 1)}


@given(st.text(), st.integers(0, len(NEW)), st.integers(0, len(NEW)))
def test_no_text_raises(text: str, first: int, second: int) -> None:
    for one in (text, NEW[first:], NEW[:second], NEW[:first] + text + NEW[second:]):
        lspci.details(one)
        lspci.parse_names(one)


@pytest.mark.parametrize("text", ["Périphérique inconnu", "Pont PCI : Intel", "pcilib: 无法打开"])
def test_other_languages_are_no_devices(text: str) -> None:
    assert lspci.details(text) == {}
