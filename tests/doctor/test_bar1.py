# SPDX-License-Identifier: Apache-2.0
"""BAR1: its size against the memory that is exported at once, and whether it can be enlarged."""

from __future__ import annotations

import pytest
from support.doctor.gpus import ADDRESS, h200, smi, with_gpu
from support.doctor.machines import judge, machine

from dgkit.doctor import Goal, Verdict
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.finding import Finding
from dgkit.doctor.machine import Machine

SMI = "run nvidia-smi -q"
CONFIG = f"raw /sys/bus/pci/devices/{ADDRESS}/config"
RESOURCE = f"text /sys/bus/pci/devices/{ADDRESS}/resource"
SMALL = {SMI: smi("NVIDIA RTX A4000", bar1=("256 MiB", "250 MiB"), memory="16376 MiB")}
A100 = {SMI: smi("NVIDIA A100 80GB PCIe", bar1=("131072 MiB", "131071 MiB"), memory="81920 MiB")}
NONE = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"


def one(check: str, on: Machine, size: int = 64 << 20) -> Finding:
    (found,) = judge(check, on, size=size)
    return found


@pytest.mark.parametrize(
    ("readings", "size", "verdict", "found"),
    [
        ({}, 64 << 20, Verdict.OK, "262144 MiB, 262143 MiB free"),
        (A100, 64 << 30, Verdict.OK, "131072 MiB, 131071 MiB free"),
        (A100, 131072 << 20, Verdict.FAIL, "131072 MiB, 131071 MiB free"),
        (SMALL, 64 << 20, Verdict.OK, "256 MiB, 250 MiB free"),
        (SMALL, 214 << 20, Verdict.OK, "256 MiB, 250 MiB free"),
        (SMALL, (214 << 20) + 1, Verdict.FAIL, "256 MiB, 250 MiB free"),
        (SMALL, 1 << 30, Verdict.FAIL, "256 MiB, 250 MiB free"),
    ],
)
def test_size_and_free_space_are_held_against_what_is_lent(
    readings: dict[str, object], size: int, verdict: Verdict, found: str
) -> None:
    said = one("bar1-size", h200(readings), size)
    assert (said.verdict, said.found) == (verdict, found)
    assert said.subject == f"GPU 0 ({ADDRESS})"


def test_a_small_bar1_that_could_be_larger_is_a_warning_though_it_is_enough() -> None:
    grows = h200({**SMALL, CONFIG: config(8, 14, now=8)})
    assert one("bar1-size", grows).verdict is Verdict.WARN
    assert one("bar1-size", h200({**SMALL, CONFIG: bytes(4096)})).verdict is Verdict.OK


def test_a_bar1_that_is_too_small_leads_to_the_bios_and_a_full_one_to_its_users() -> None:
    small = one("bar1-size", h200(SMALL), 1 << 30)
    assert "BIOS" in small.remedy[0]
    full = h200({SMI: smi(bar1=("65536 MiB", "12 MiB"))})
    assert one("bar1-size", full).remedy[0] == "nvidia-smi"


def test_without_nvidia_smi_the_pci_device_tells_the_size() -> None:
    region = f"0x{1 << 40:016x} 0x{(1 << 40) + (256 << 20) - 1:016x} 0x14220c\n"
    first = "0x00000000a6000000 0x00000000a6ffffff 0x0000000000040200\n"
    found = one("bar1-size", with_gpu({RESOURCE: first + region + NONE * 5}))
    assert (found.verdict, found.found) == (Verdict.OK, "256 MiB, free not known")


def test_a_size_that_nothing_tells_is_left_open_in_the_readers_words() -> None:
    late = Reading(fault="late", why="nvidia-smi gave no answer within 5.0 s")
    for check in ("bar1-size", "bar1-resizable"):
        assert one(check, h200({SMI: late})).verdict is Verdict.UNKNOWN
    assert late.why in one("bar1-size", h200({SMI: late})).why


@pytest.mark.parametrize("name", ["NVIDIA GB10", "NVIDIA GH200 480GB"])
def test_machines_with_one_memory_have_no_bar1(name: str) -> None:
    shared = h200({SMI: smi(name, bar1=("N/A", "N/A"), memory="N/A")})
    for check in ("bar1-size", "bar1-resizable"):
        assert one(check, shared).verdict is Verdict.NOT_APPLICABLE
        assert one(check, machine({})).verdict is Verdict.NOT_APPLICABLE


def test_a_grace_with_a_bar1_is_judged_by_it() -> None:
    """GB200 and GB300 have one that devices reach."""
    shown = h200({SMI: smi("NVIDIA GB200", bar1=("262144 MiB", "262143 MiB"), memory="189471 MiB")})
    for check in ("bar1-size", "bar1-resizable"):
        assert one(check, shown).verdict is Verdict.OK


def test_an_option_of_the_driver_goes_into_the_image_before_the_restart() -> None:
    for release, image in (("", "sudo update-initramfs -u"), ("ID=rhel\n", "sudo dracut -f")):
        known = {**SMALL, CONFIG: config(8, 12, now=8), "text /etc/os-release": release}
        write, made, bios, *_ = one("bar1-resizable", h200(known)).remedy
        assert "modprobe.d" in write
        assert made == image
        assert "then restart" in bios


def test_where_there_is_no_nvidia_smi_none_is_to_be_typed() -> None:
    for check in ("bar1-size", "bar1-resizable", "gpudirect-platform"):
        absent = with_gpu({SMI: Reading(fault="absent", why="there is no nvidia-smi")})
        assert "nvidia-smi" not in " ".join(one(check, absent).remedy)


def config(*sizes: int, now: int, number: int = 1) -> bytes:
    """A configuration space with the resizable BAR capability: sizes as powers of two of MiB."""
    raw = bytearray(4096)
    raw[0x100:0x104] = (0x15 | 1 << 16).to_bytes(4, "little")
    raw[0x104:0x108] = sum(1 << size + 4 for size in sizes).to_bytes(4, "little")
    raw[0x108:0x10C] = (number | 1 << 5 | now << 8).to_bytes(4, "little")
    return bytes(raw)


@pytest.mark.parametrize(
    ("readings", "verdict", "word"),
    [
        ({}, Verdict.OK, ""),
        (A100, Verdict.OK, ""),
        (SMALL, Verdict.OK, "Only root"),
        ({**SMALL, CONFIG: bytes(64)}, Verdict.OK, "Only root"),
        ({**SMALL, CONFIG: config(8, 12, 14, now=8)}, Verdict.WARN, "16 GiB"),
        ({**SMALL, CONFIG: config(8, now=8)}, Verdict.OK, "largest"),
        ({**SMALL, CONFIG: bytes(4096)}, Verdict.OK, "fixed"),
    ],
)
def test_a_bar1_smaller_than_the_memory_is_a_warning_if_it_could_be_larger(
    readings: dict[str, object], verdict: Verdict, word: str
) -> None:
    found = one("bar1-resizable", h200(readings))
    assert found.verdict is verdict
    assert word in found.why
    assert bool(found.remedy) is (verdict is Verdict.WARN)


def test_a_bar_at_its_largest_is_well_also_where_no_driver_tells_sizes() -> None:
    assert one("bar1-resizable", with_gpu({CONFIG: config(8, 14, now=14)})).verdict is Verdict.OK
    smaller = one("bar1-resizable", with_gpu({CONFIG: config(8, 14, now=8)}))
    assert smaller.verdict is Verdict.UNKNOWN


def test_each_gpu_is_judged_by_its_own_bar1() -> None:
    pair = smi(addresses=("00000000:17:00.0", "00000000:CA:00.0"))
    at = pair.rindex("262143 MiB")
    full = f"{pair[:at]}3 MiB{pair[at + len('262143 MiB') :]}"
    found = judge("bar1-size", h200({SMI: full}), goal=Goal.RDMA)
    assert {one.subject: one.verdict for one in found} == {
        "GPU 0 (0000:17:00.0)": Verdict.OK,
        f"GPU 1 ({ADDRESS})": Verdict.FAIL,
    }
