# SPDX-License-Identifier: Apache-2.0
"""Remedies: a shell parses each, and each fits the machine that it is printed for."""

from __future__ import annotations

import pytest
from support.doctor.bluefield import AT, BF3, asked, cards, settings
from support.doctor.machines import UNAME, judge, machine

from dgkit.doctor import finding
from dgkit.doctor.facts import bluefield
from dgkit.doctor.facts.distribution import install_driver
from dgkit.doctor.goals import Goal
from dgkit.doctor.remedies import OFF_AND_ON, fit, restart_once, with_devices

NIC = (1, 1, 1, 1, 1)


def mode(answers: dict[str, object]) -> tuple[str, ...]:
    (found,) = judge("bluefield-mode", machine({**cards((AT, BF3)), **answers}), goal=Goal.ARM_DMA)
    return found.remedy


def test_where_only_mstconfig_is_its_commands_are_printed() -> None:
    mst = {key.replace("mlxconfig", "mstconfig"): text for key, text in settings(NIC).items()}
    remedy = mode(mst)
    assert remedy[0].startswith(f"sudo mstconfig -d {AT} --yes set ")
    assert not any("mlxconfig" in line or "mlxfwreset" in line for line in remedy)
    assert mode(settings(NIC))[0].startswith(f"sudo mlxconfig -d {AT} --yes set ")


def test_where_there_is_neither_mstflint_is_installed_first() -> None:
    made = machine({**cards((AT, BF3)), "text /etc/os-release": "ID=rocky\nVERSION_ID=9.4\n"})
    assert made.know(bluefield.settings_tool) == ""
    lines = fit(made, ["sudo mlxconfig -d X q", "sudo mlxfwmanager -d X --online -u"])
    assert lines[:2] == ("sudo dnf install mstflint", "sudo mstconfig -d X q")
    assert lines[2].startswith("#")


@pytest.mark.parametrize(
    ("release", "program"),
    [
        ('ID="centos"\nVERSION_ID="7"', "yum"),
        ("ID=amzn\nVERSION_ID=2", "yum"),
        ("ID=amzn\nVERSION_ID=2023", "dnf"),
        ("ID=rocky\nVERSION_ID=9.4", "dnf"),
        ("ID=fedora\nVERSION_ID=42", "dnf"),
    ],
)
def test_where_yum_is_not_dnf_yet_its_commands_are_printed(release: str, program: str) -> None:
    made = machine({"text /etc/os-release": f"{release}\n"})
    assert fit(made, ["sudo dnf install rshim"]) == (f"sudo {program} install rshim",)


@pytest.mark.parametrize(
    ("release", "has"),
    [("ID=ubuntu", True), ("ID=linuxmint\nUBUNTU_CODENAME=noble", True), ("ID=debian", False)],
)
def test_a_package_of_ubuntu_is_named_on_ubuntu_alone(release: str, has: bool) -> None:
    lines = install_driver(machine({"text /etc/os-release": f"{release}\n"}))
    assert ("Ubuntu's own" in " ".join(lines)) is has


@pytest.mark.parametrize(
    ("release", "command", "said"),
    [
        ("ID=sl-micro", "sudo mlxconfig -d X q", "mstconfig -d X q"),
        ("ID=flatcar", "sudo apt install rshim", "rshim"),
        ("ID=fedora\nVARIANT_ID=coreos", "sudo dnf install rshim", "rshim"),
        ("ID=bottlerocket", "sudo update-initramfs -u", "update-initramfs -u"),
        ("ID=talos", "echo 1 | sudo tee /proc/x", "echo 1"),
        ("ID=talos", "# Then reinstall NVIDIA's driver: it builds it.", "then reinstall NVIDIA's"),
        ("ID=bottlerocket", "# It was built otherwise. Install MLNX_OFED", "otherwise. Install M"),
    ],
)
def test_a_program_that_an_image_lacks_is_asked_of_who_keeps_it(
    release: str, command: str, said: str
) -> None:
    made = machine({**cards((AT, BF3)), "text /etc/os-release": f"{release}\n"})
    lines = fit(made, [command])
    assert all(line.startswith("# ") for line in lines)
    assert said in lines[-1]
    assert "ask" in " ".join(lines).lower()
    assert not any("sudo" in line for line in lines)


def test_a_command_that_an_image_has_stays() -> None:
    made = machine({"text /etc/os-release": "ID=flatcar\n"})
    for line in ("sudo modprobe mlx5_ib", "# install a NIC with RDMA"):
        assert fit(made, [line]) == (line,)


def test_a_query_that_was_not_recorded_leaves_the_commands_as_they_are() -> None:
    made = machine({**cards((AT, BF3)), **asked(bluefield.QUERIED, "")})
    assert fit(made, ["sudo mlxconfig -d X q"]) == ("sudo mlxconfig -d X q",)


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ({"text /.dockerenv": ""}, "# --gpus all"),
        ({"text /run/.containerenv": ""}, "# --device=nvidia.com/gpu=all"),
        ({"text /proc/1/cgroup": "0::/kubepods/x"}, "nvidia.com/gpu: N"),
        ({"text /proc/1/cgroup": "0::/lxc/x"}, "by the means of LXC"),
        # those given by --gpus are lost at the next daemon-reload
        (
            {"text /.dockerenv": "", "ask device-files": {"/dev/nvidia-uvm": "EPERM"}},
            "# --device=nvidia.com/gpu=all",
        ),
    ],
)
def test_each_engine_gives_gpus_in_its_own_way(readings: dict[str, object], words: str) -> None:
    assert words in "\n".join(with_devices(machine(readings), gpu=True))


RESTARTS = ("# Then restart the machine: sudo reboot", "# Restart the machine: sudo reboot")


@pytest.mark.parametrize("restart", RESTARTS)
def test_a_power_cycle_takes_the_place_of_restarts(restart: str) -> None:
    asking = finding.attribute(
        finding.fail("DPU mode", remedy=[f"# then {OFF_AND_ON}"]),
        check="bluefield-mode", title="", side="host",
    )  # fmt: skip
    driver = finding.warn("570", remedy=["sudo apt install -y nvidia-open", restart])
    first, second = restart_once([asking, driver])
    assert first == asking
    assert second.remedy[0] == driver.remedy[0]
    assert second.remedy[1] == "# The power cycle of bluefield-mode restarts the machine, too."
    assert restart_once([driver]) == [driver]
    well = finding.n_a("set", remedy=[f"# then {OFF_AND_ON}"])
    assert restart_once([well, driver]) == [well, driver]


@pytest.mark.parametrize(
    ("kernel", "host"),
    [
        ("6.1.112-122.189.amzn2023.x86_64", "Amazon Linux"),
        ("5.14.0-427.el9.x86_64", "Red Hat"),
        ("6.8.0-45-generic", ""),  # Ubuntu's, like the container
        ("6.6.0-custom", ""),
    ],
)
def test_a_container_on_another_system_gets_no_commands_of_its_own_for_the_host(
    kernel: str, host: str
) -> None:
    made = machine(
        {
            "ask uname": {**UNAME, "release": kernel},
            "text /etc/os-release": "ID=ubuntu\nVERSION_ID=24.04\n",
            "text /.dockerenv": "",
        }
    )
    lines = fit(
        made, ["sudo apt install -y nvidia-open && sudo reboot", "sudo update-initramfs -u"]
    )
    said = " ".join(lines)
    assert ("apt" in said, "update-initramfs" in said) == (not host, not host)
    assert "nvidia-open" in said
    assert not host or said.count(f"means of {host}") == 2
