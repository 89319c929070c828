# SPDX-License-Identifier: Apache-2.0
"""Logs of nvidia-bug-report.sh as machines: `dgkit doctor --from nvidia-bug-report.log.gz`."""

import gzip

import pytest
from doctor.snapshots import machine

from dgkit.cli import main
from dgkit.doctor.api import load_machine
from dgkit.doctor.facts import gpus, pci
from dgkit.doctor.goals import Goal
from dgkit.doctor.runner import diagnose

RULE = "_" * 44


def section(head: str, body: str) -> str:
    return f"{RULE}\n\n{head}\n{body}\n"


def log(name: str) -> str:
    """A log of a synthetic machine, in the form that the script writes."""
    known = machine(name).read
    smi, version = (
        known.run("nvidia-smi", "-q").text,
        known.text("/proc/driver/nvidia/version").text,
    )
    devices = machine(name).know(pci.tree).devices.values()
    lspci = "".join(
        f"{one.address.removeprefix('0000:')} Device [{one.kind:04x}]: Maker Thing "
        f"[{one.vendor:04x}:{one.device:04x}] (rev a1)\n"
        for one in devices
    )
    found = "*** ls: -r--r--r-- 1 root root 0 2026-11-01 10:00:00 +0000 "
    return "".join(
        [
            section("Start of NVIDIA bug report log file.  Please include this file, along", ""),
            "uname: Linux box 6.8.0-85-generic #85-Ubuntu SMP x86_64 x86_64 x86_64 GNU/Linux\n",
            section("*** /proc/cmdline", f"{found}/proc/cmdline\nquiet splash"),
            section("*** /proc/driver/nvidia/./version", f"{found}version\n{version}"),
            section("*** /etc/missing does not exist", ""),
            section("/usr/bin/lspci -nn", f"\n{lspci}"),
            section("/usr/bin/nvidia-smi --query", smi),
        ]
    )


@pytest.mark.parametrize("pack", [str.encode, lambda text: gzip.compress(text.encode())])
def test_a_log_gives_the_system_the_driver_and_the_devices(pack, tmp_path):
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_bytes(pack(log("pix")))
    found, same = load_machine(path), machine("pix")
    assert found.read.text("/proc/cmdline").text.strip() == "quiet splash"
    assert found.read.ask("uname").data["release"] == "6.8.0-85-generic"
    assert [gpu.name for gpu in found.know(gpus.gpus)] == [gpu.name for gpu in same.know(gpus.gpus)]
    assert {nic.address for nic in found.know(pci.tree).nics} == {
        nic.address for nic in same.know(pci.tree).nics
    }
    both = (diagnose([one], goal=Goal.RDMA) for one in (found, same))
    driver, wanted = (one.of("driver-version")[0] for one in both)
    assert (driver.verdict, driver.found) == (wanted.verdict, wanted.found)


def test_what_a_log_lacks_is_unknown_and_no_distance_is_made_up(tmp_path):
    path = tmp_path / "x.log"
    path.write_text(log("pix"))
    found = diagnose([load_machine(path)], goal=Goal.RDMA)
    assert all(one.found.startswith("SYS") or one.verdict < 4 for one in found.of("topology"))
    assert found.exit_code == 6


def test_the_page_says_what_the_file_is(tmp_path, capsys):
    path = tmp_path / "nvidia-bug-report.log"
    path.write_text(log("pix"))
    main(["doctor", "--from", str(path), "--goal", "gpu"])
    first = capsys.readouterr().out.splitlines()[0]
    assert "nvidia-bug-report.log" in first
    assert "recorded: by nvidia-bug-report.sh" in first


def test_a_damaged_log_is_refused(tmp_path, capsys):
    path = tmp_path / "nvidia-bug-report.log.gz"
    whole = gzip.compress(log("pix").encode() * 3)
    half = len(whole) // 2
    path.write_bytes(whole[:half] + bytes(50) + whole[half + 50 :])
    assert main(["doctor", "--from", str(path)]) == 2
    assert "cannot be decompressed" in capsys.readouterr().err
    path.write_bytes(b"\x1f\x8b is no gzip file")
    assert main(["doctor", "--from", str(path)]) == 2
    assert "is a damaged gzip file" in capsys.readouterr().err
