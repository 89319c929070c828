# SPDX-License-Identifier: Apache-2.0
"""What the doctor says of dgkit itself."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import UNAME, judge, machine

from dgkit.doctor import Finding, Goal, Verdict
from dgkit.doctor.checks.dgkit import LAB
from dgkit.doctor.collect.reader import Reading

PACKAGE = {"dgkit": "0.1.0", "python": "3.12.3", "libraries": {}}
NAMES = ("soft", "cuda", "doca", "softdoca", "fault")
PLACE = "/sys/bus/pci/devices"
BLUEFIELD, GPU = ("15B3:A2DC", "20000"), ("10DE:2330", "30200")
ALL_LAB = {name: ".".join(map(str, least)) for name, least in LAB.items()}


def _info(*usable: str, loaded: bool = True) -> dict[str, Any]:
    listed = [{"name": one, "usable": one in usable, "why": f"because of {one}"} for one in NAMES]
    core = {"loaded": loaded, "why": "" if loaded else "no libffi.so.8"}
    return {"package": PACKAGE, "core": core, "providers": listed if loaded else []}


def _device(number: int, device: tuple[str, str]) -> dict[str, object]:
    folder = f"{PLACE}/0000:0{number}:00.0"
    return {
        f"link {folder}": f"/sys/devices/pci0000:00/0000:0{number}:00.0",
        f"text {folder}/uevent": f"PCI_CLASS={device[1]}\nPCI_ID={device[0]}\n",
        f"text {folder}/numa_node": "0\n",
    }


def _found(check: str, goal: Goal, *devices: tuple[str, str], **readings: Any) -> list[Finding]:
    made: dict[str, object] = {f"names {PLACE}": [f"0000:0{n}:00.0" for n in range(len(devices))]}
    for number, device in enumerate(devices):
        made |= _device(number, device)
    made |= {"probe info": readings["info"]} if "info" in readings else {}
    made |= {"ask packages": readings["packages"]} if "packages" in readings else {}
    return list(judge(check, machine(made), goal=goal))


def _of(name: str, found: list[Finding]) -> Finding:
    return next(one for one in found if one.subject == name)


def test_a_core_that_loads_is_fine() -> None:
    (found,) = _found("dgkit-core", Goal.LAPTOP, info=_info("soft"))
    assert (found.verdict, found.found) == (Verdict.OK, "dgkit 0.1.0, Python 3.12.3")


def test_a_core_that_does_not_load_is_the_end_and_says_why() -> None:
    (found,) = _found("dgkit-core", Goal.LAPTOP, info=_info(loaded=False))
    assert found.verdict is Verdict.FAIL
    assert "no libffi.so.8" in found.why
    (other,) = _found("dgkit-providers", Goal.LAPTOP, info=_info(loaded=False))
    assert other.verdict is Verdict.NOT_APPLICABLE


def test_the_core_is_known_where_the_rest_is_late() -> None:
    own = {"dgkit": "0.1.0", "python": "3.12.3", "loaded": True, "why": ""}
    late = Reading(fault="late", why="no answer within 2 s")
    (found,) = judge("dgkit-core", machine({"probe core": own, "probe info": late}))
    assert (found.verdict, found.found) == (Verdict.OK, "dgkit 0.1.0, Python 3.12.3")
    broken = {**own, "loaded": False, "why": "no libffi.so.8"}
    (found,) = judge("dgkit-core", machine({"probe core": broken, "probe info": late}))
    assert found.verdict is Verdict.FAIL
    assert "no libffi.so.8" in found.why


@pytest.mark.parametrize("check", ["dgkit-core", "dgkit-providers"])
@pytest.mark.parametrize("fault", ["late", "failed", "unrecorded"])
def test_what_dgkit_info_does_not_answer_cannot_be_told(check: str, fault: Any) -> None:
    late = Reading(fault=fault, why="no answer within 5 s")
    (found,) = _found(check, Goal.ARM_DMA, info=late)
    assert (found.verdict, found.why) == (Verdict.UNKNOWN, "No answer within 5 s.")
    assert found.remedy


def test_each_provider_is_a_finding_but_the_one_for_tests() -> None:
    found = _found("dgkit-providers", Goal.LAPTOP, info=_info(*NAMES))
    assert [one.subject for one in found] == ["soft", "cuda", "doca", "softdoca"]
    assert {one.verdict for one in found} == {Verdict.OK}


def test_a_laptop_needs_the_software_dpu() -> None:
    found = _found("dgkit-providers", Goal.LAPTOP, info=_info())
    assert _of("soft", found).verdict is Verdict.FAIL
    assert _of("softdoca", found).verdict is Verdict.WARN
    assert _of("doca", found).verdict is Verdict.NOT_APPLICABLE
    assert _of("cuda", found).verdict is Verdict.NOT_APPLICABLE
    assert _of("doca", found).why == "Because of doca."


def test_a_machine_with_a_bluefield_needs_doca() -> None:
    found = _of("doca", _found("dgkit-providers", Goal.ARM_DMA, BLUEFIELD, info=_info("soft")))
    assert found.verdict is Verdict.FAIL
    assert found.why.endswith("Because of doca.")
    assert not _of("doca", _found("dgkit-providers", Goal.RDMA, BLUEFIELD, info=_info())).remedy


def test_the_arm_side_needs_doca_and_no_cuda() -> None:
    arm = machine(
        {
            "ask uname": {**UNAME, "machine": "aarch64"},
            "text /etc/mlnx-release": "bf-bundle-3.0.0",
            "probe info": _info("soft"),
        }
    )
    found = list(judge("dgkit-providers", arm, goal=Goal.ARM_DMA))
    assert _of("doca", found).verdict is Verdict.FAIL
    assert _of("cuda", found).verdict is Verdict.NOT_APPLICABLE


def test_a_machine_with_a_gpu_wants_the_provider_cuda() -> None:
    found = _found("dgkit-providers", Goal.ARM_DMA, GPU, info=_info("soft"))
    assert _of("cuda", found).verdict is Verdict.WARN


def test_what_notebooks_need_is_there() -> None:
    (found,) = _found("dgkit-extras", Goal.LAPTOP, packages=ALL_LAB)
    assert found.verdict is Verdict.OK


def test_what_is_missing_or_too_old_for_notebooks_is_named() -> None:
    some = {**ALL_LAB, "bokeh": "", "ipywidgets": "7.8.1"}
    (found,) = _found("dgkit-extras", Goal.ARM_DMA, packages=some)
    assert found.verdict is Verdict.WARN
    assert "Missing: bokeh." in found.why
    assert "ipywidgets 8.1" in found.why
    assert found.remedy[-1] == ".venv/bin/pip install '.[lab]'"


@pytest.mark.parametrize("packages", [dict.fromkeys(LAB, ""), {**ALL_LAB, "bokeh": ""}])
def test_a_machine_without_notebooks_is_well_and_learns_what_they_need(packages: Any) -> None:
    (found,) = _found("dgkit-extras", Goal.LAPTOP, packages=packages)
    assert found.verdict is Verdict.NOT_APPLICABLE
    assert "bokeh" in found.why
    assert found.needed == ".venv/bin/pip install '.[lab]'"


def test_packages_that_are_not_known_cannot_be_told() -> None:
    (found,) = _found("dgkit-extras", Goal.LAPTOP, packages=Reading(fault="unrecorded", why="old"))
    assert found.verdict is Verdict.UNKNOWN


def test_the_extra_lab_is_what_the_package_says() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    # Python 3.10 has no tomllib; what has a condition is not needed everywhere
    (lab,) = re.findall(r"^lab = \[(.*?)^\]$", text, re.MULTILINE | re.DOTALL)
    assert dict(re.findall(r'"([a-z]+)>=([0-9.]+)[^";]*"', lab)) == ALL_LAB


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["core", "package", "providers", "name", "loaded", "soft"]), inner
        )
    ),
)


@given(odd)
def test_odd_answers_are_no_error(answer: Any) -> None:
    for check in ("dgkit-core", "dgkit-providers"):
        for found in _found(check, Goal.LAPTOP, info=Reading(data=answer)):
            assert "failed:" not in found.why
    for found in _found("dgkit-extras", Goal.LAPTOP, packages=Reading(data=answer)):
        assert "failed:" not in found.why
