# SPDX-License-Identifier: Apache-2.0
"""--explain: the chain from what was read to the verdict; --report: a text that can be pasted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from doctor import snapshots
from support.doctor.gpus import CLOSED, MODULES, h200, smi
from support.doctor.machines import machine, reading

import dgkit.doctor
from dgkit import __version__
from dgkit.cli.doctor_command import doctor
from dgkit.doctor import Goal, diagnose
from dgkit.doctor.collect.reader import note, tracing
from dgkit.doctor.collect.snapshot import RecordedReader, Snapshot
from dgkit.doctor.format.explain import explain
from dgkit.doctor.format.report import report
from dgkit.doctor.machine import Machine


def explained(made: Machine, *names: str, goal: Goal = Goal.RDMA) -> str:
    lines = explain(diagnose([made], goal=goal), names)
    return "\n".join("".join(span.text for span in line) for line in lines)


def test_the_chain_goes_from_the_reading_to_the_exit_code() -> None:
    driver = {"text /proc/driver/nvidia/version": CLOSED, "text /proc/modules": MODULES}
    told = explained(h200(driver), "driver-flavour")
    steps = [
        "asks      Are the open kernel modules installed",
        "text /proc/driver/nvidia/version",
        "driver = Driver(loaded=True, version='535.161.07', flavour='closed'",
        "found     closed, 535.161.07; needed: open",
        "so        warn: GPU memory cannot",
        "source    NVIDIA DOCA GPUNetIO guide",
        "exit code 1",
        "rule      No data path",
    ]
    places = [told.index(step) for step in steps]
    assert places == sorted(places)


def test_a_reading_that_failed_says_how() -> None:
    told = explained(machine({}), "iommu", goal=Goal.ARM_DMA)
    assert "names /sys/bus/pci/devices: there is none" in told


def test_without_names_what_is_wrong_is_explained_and_what_is_well_is_not() -> None:
    made = snapshots.machine("acs-on")
    told = explained(made)
    assert "warn  host acs" in told
    assert "host kernel-version" not in told
    assert "ok  host kernel-version" in explained(made, "kernel-version")


def test_a_consequence_names_its_cause() -> None:
    told = explained(snapshots.machine("driver-broken"), "cuda-driver", goal=Goal.ARM_DMA)
    assert "cause     driver-loaded" in told


def test_a_fact_that_another_check_computed_brings_its_readings_along() -> None:
    known = machine({"text /etc/os-release": "ID=ubuntu\n"})

    def fact(made: Machine) -> str:
        return made.read.text("/etc/os-release").text

    known.know(fact)
    with tracing() as trace:
        known.know(fact)
    assert list(trace.readings) == ["text /etc/os-release"]
    assert trace.facts == {"fact": "ID=ubuntu\n"}


def test_nothing_is_noted_where_nobody_asks() -> None:
    assert note("text /x", reading("text /x", "y")).text == "y"
    with tracing() as outer, tracing() as inner:
        note("text /x", reading("text /x", "y"))
    assert (list(outer.readings), list(inner.readings)) == ([], ["text /x"])


SECRET = {
    "text /etc/hostname": "gpu-of-smith\n",
    "ask hostname": "gpu-of-smith",
    "run nvidia-smi -q": smi().replace("GPU UUID", "Serial Number : 1654922000123\n    GPU UUID"),
    "text /proc/driver/nvidia/version": CLOSED,
    "text /proc/modules": MODULES,
    "names /sys/class/infiniband": ["gpu-of-smith"],
}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    made = h200(SECRET)
    assert isinstance(made.read, RecordedReader)
    path = tmp_path / "secret.snap"
    Snapshot(source="recorded", otherwise="absent", readings=made.read.snapshot.readings).save(path)
    return path


def test_a_report_says_what_each_answer_is_about() -> None:
    text = report(diagnose([snapshots.machine("pix")], goal=Goal.RDMA))
    for words in ("modules: open", "context: created", "dma-buf: yes", "IOMMU: ", "memlock: "):
        assert words in text


def test_a_report_has_pseudonyms(recording: Path) -> None:
    text = dgkit.doctor.report("rdma", snapshots=recording)
    assert "smith" in dgkit.doctor.load(recording).readings["text /etc/hostname"].text
    assert "smith" not in text
    assert "1654922000123" not in text
    assert "closed, 535.161.07" in text
    assert "readings (" in text


def run(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(doctor, arguments, standalone_mode=True)
    return found.exit_code, found.output


def test_the_command_prints_either(recording: Path) -> None:
    code, text = run("--from", str(recording), "--goal", "rdma", "--report")
    assert code == 0
    assert text.startswith(f"dgkit doctor {__version__}: rdma: fail")
    html = recording.with_name("report.html")
    for written in (0, 2):  # a file that exists is not replaced
        arguments = ("--from", str(recording), "--goal", "rdma", "--report", "--html", str(html))
        assert run(*arguments)[0] == written
    assert "closed, 535.161.07" in html.read_text("utf-8")
    told = run("--from", str(recording), "--goal", "rdma", "--explain", "driver")[1]
    assert "host driver-flavour" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--report", "--explain"), "exclude each other"),
        (("--report", "--json"), "exclude each other"),
        (("--explain", "--verbose"), "exclude each other"),
        (("--report", "acs"), "whole machine"),
        (("--html", "page.html"), "--html requires --report"),
        (("--explain", "nothing"), "there is no check 'nothing'"),
    ],
)
def test_forms_of_the_answer_exclude_each_other(arguments: tuple[str, ...], said: str) -> None:
    code, text = run(*arguments)
    assert (code, said in text) == (2, True), text


def test_plain_values_of_a_diagnosis_have_no_trace() -> None:
    found = diagnose([machine({})], goal=Goal.RDMA).as_dict()
    assert "traces" not in found
    json.dumps(found)
