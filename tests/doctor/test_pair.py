# SPDX-License-Identifier: Apache-2.0
"""A host and its DPU, judged together."""

from collections.abc import Iterator, Mapping

import pytest
from support.doctor import pci
from support.doctor.bluefield import asked, table
from support.doctor.machines import UNAME, judge, machine

from dgkit.doctor import Verdict, finding, registry
from dgkit.doctor.checks import pair
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import bluefield
from dgkit.doctor.finding import Finding
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Case, Machine

HOST = [pci.gpu("pci0000:16/0000:17:00.0"), pci.dpu("pci0000:b0/0000:b3:00.0")]
ARM = {"ask uname": {**UNAME, "machine": "aarch64"}, "text /etc/mlnx-release": "bf-bundle-3.0.0\n"}
NET = "/sys/class/net"
SEES = {f"names {NET}": ["p0", "pf0hpf"], f"text {NET}/pf0hpf/phys_port_name": "c1pf0\n"}


def host(*devices: pci.Dev, **more: object) -> Machine:
    return machine({**pci.sysfs(devices or HOST), **more}, name="host.snap")


def dpu(more: Mapping[str, object] = SEES, ids: str = "15B3:A2DC") -> Machine:
    own = pci.sysfs([pci.dpu("pci0000:00/0000:03:00.0", ids=ids)])
    return machine({**ARM, **own, **more}, name="dpu.snap")


def one(check: str, *machines: Machine) -> Finding:
    (found,) = judge(check, *machines)
    assert found.side == "pair"
    return found


@pytest.mark.parametrize("check", ["pair-bluefield", "pair-versions", "pair-memory"])
def test_one_side_alone_is_told_how_to_judge_both(check: str) -> None:
    for alone in (host(), dpu()):
        found = one(check, alone)
        assert found.verdict is Verdict.NOT_APPLICABLE
        assert "--from host.snap --from dpu.snap" in found.why


def test_the_order_of_the_two_does_not_matter() -> None:
    assert judge("pair-bluefield", host(), dpu()) == judge("pair-bluefield", dpu(), host())


def test_a_host_and_the_dpu_in_it_belong_together() -> None:
    found = one("pair-bluefield", host(), dpu())
    assert (found.verdict, found.found) == (Verdict.OK, "BlueField-3: pf0hpf")


def test_a_dpu_of_another_generation_is_in_another_machine() -> None:
    found = one("pair-bluefield", host(), dpu(ids="15B3:A2D6"))
    assert (found.verdict, found.found) == (Verdict.FAIL, "host BlueField-3, DPU BlueField-2")
    assert one("pair-bluefield", host(HOST[0]), dpu()).verdict is Verdict.FAIL


def test_a_dpu_that_does_not_see_the_host_fails() -> None:
    assert one("pair-bluefield", host(), dpu({f"names {NET}": ["p0"]})).verdict is Verdict.FAIL


def modes(address: str, engine: int) -> dict[str, object]:
    values = {"INTERNAL_CPU_MODEL": 1, "INTERNAL_CPU_OFFLOAD_ENGINE": engine}
    return asked(bluefield.QUERIED, table(values), address)


def test_sides_that_tell_different_modes_are_not_one_card_now() -> None:
    for arm in (modes("0000:03:00.0", 0), {}):  # an Arm side with representors is in DPU mode
        same = one("pair-bluefield", host(**modes("0000:b3:00.0", 0)), dpu({**SEES, **arm}))
        assert same.verdict is Verdict.OK
        found = one("pair-bluefield", host(**modes("0000:b3:00.0", 1)), dpu({**SEES, **arm}))
        assert (found.verdict, found.found) == (Verdict.FAIL, "host NIC mode, Arm DPU mode")
        assert "one snapshot is older" in found.why


def test_the_way_to_the_hosts_mode_names_its_card() -> None:
    there = host(**modes("0000:b3:00.0", 0))
    found = one("pair-bluefield", there, dpu({f"names {NET}": ["p0"]}))
    assert found.remedy[1].startswith("sudo mlxconfig -d 0000:b3:00.0 -e q ")


def test_what_was_not_read_on_one_side_cannot_be_told() -> None:
    late = Reading(fault="late", why="no answer")
    dark = dpu({f"names {NET}": late})
    assert one("pair-bluefield", host(), dark).verdict is Verdict.UNKNOWN
    blind = machine({f"names {pci.FOLDER}": late})
    assert one("pair-bluefield", blind, dpu()).verdict is Verdict.UNKNOWN


VERSION = "text /opt/mellanox/doca/applications/VERSION"


def both(there: Mapping[str, object], here: Mapping[str, object]) -> dict[str, Finding]:
    found = judge("pair-versions", host(**there), dpu(here))
    return {said.subject: said for said in found}


@pytest.mark.parametrize(
    ("there", "here", "verdict"),
    [
        ("3.0.0058\n", "3.0.0058\n", Verdict.OK),
        ("3.0.0058\n", "3.0.1001\n", Verdict.OK),
        ("3.0.0058\n", "2.9.1\n", Verdict.WARN),
        ("3.0.0058\n", "3.1.0\n", Verdict.WARN),
        ("", "3.0.0058\n", Verdict.UNKNOWN),
    ],
)
def test_doca_is_of_one_release_on_both_sides(there: str, here: str, verdict: Verdict) -> None:
    said = both({VERSION: there}, {VERSION: here, "text /etc/mlnx-release": "x"})
    assert said["DOCA"].verdict is verdict


@pytest.mark.parametrize(
    ("there", "here", "verdict"),
    [
        ({"version": "0.1.0", "wire": 4}, {"version": "0.1.0", "wire": 4}, Verdict.OK),
        ({"version": "0.1.0", "wire": 4}, {"version": "0.1.1", "wire": 4}, Verdict.OK),
        ({"version": "0.1.0", "wire": 4}, {"version": "0.2.0", "wire": 5}, Verdict.FAIL),
        ({"version": "0.1.0", "wire": 4}, None, Verdict.UNKNOWN),
        ("odd", {"version": "0.1.0", "wire": 4}, Verdict.UNKNOWN),
        ({}, {}, Verdict.UNKNOWN),
        ({"version": "0.1.0"}, {"version": "0.1.0", "wire": 4}, Verdict.UNKNOWN),
    ],
)
def test_dgkit_speaks_one_wire_on_both_sides(there: object, here: object, verdict: Verdict) -> None:
    assert both({"ask dgkit": there}, {"ask dgkit": here})["dgkit"].verdict is verdict


LEVELS = {
    "ok": finding.ok("fine"),
    "warn": finding.warn("odd"),
    "fail": finding.fail("bad"),
    "dark": finding.unknown("?"),
    "n.a.": finding.n_a("none"),
}


@pytest.mark.parametrize(
    ("dmabuf", "peermem", "libraries", "verdict"),
    [
        ("ok", "n.a.", "ok", Verdict.OK),
        ("fail", "ok", "ok", Verdict.OK),
        ("ok", "dark", "warn", Verdict.OK),
        ("fail", "fail", "ok", Verdict.FAIL),
        ("warn", "warn", "ok", Verdict.FAIL),
        ("ok", "ok", "fail", Verdict.FAIL),
        ("dark", "fail", "ok", Verdict.UNKNOWN),
    ],
)
def test_gpu_memory_wants_a_host_that_lends_and_a_dpu_that_imports(
    dmabuf: str, peermem: str, libraries: str, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What those checks make of a machine is for their own tests."""
    says = {"dmabuf-gpu": dmabuf, "peermem": peermem, "doca-libraries": libraries}
    asked = set()

    def named(words: list[str]) -> Iterator[registry.Check]:
        (name,) = words

        def judged(case: Case) -> Iterator[Finding]:
            asked.add((name, case.machine.name))
            yield LEVELS[says[name]]

        yield registry.Check(name, "", "", judged, "", frozenset(Goal), ())

    monkeypatch.setattr(pair, "named", named)
    assert one("pair-memory", host(), dpu()).verdict is verdict
    where = {"dmabuf-gpu": "host.snap", "peermem": "host.snap", "doca-libraries": "dpu.snap"}
    assert asked == set(where.items())
