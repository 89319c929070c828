"""Texts for those who may do what the user may not: `dgkit doctor --ask`."""

import pytest
from doctor.snapshots import machine, snapshot_file
from support.doctor.machines import machine as made

from dgkit.cli import main
from dgkit.doctor.collect.snapshot import RecordedReader
from dgkit.doctor.format.pages import letters, letters_page
from dgkit.doctor.goals import Goal
from dgkit.doctor.runner import diagnose


def judged(name, goal, **more):
    """Diagnose a synthetic machine with some other readings."""
    known = machine(name).read
    assert isinstance(known, RecordedReader)
    return diagnose([made({**known.snapshot.readings, **more})], goal=goal)


USER = {"ask euid": 1000}
POD = {
    "text /proc/1/cgroup": "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope\n"
}


@pytest.mark.parametrize(
    ("name", "goal", "more", "to"),
    [
        ("acs-on", Goal.RDMA, {}, ["those who reach its BIOS and power (BMC)"]),
        (
            "acs-on",
            Goal.RDMA,
            USER,
            ["those who reach its BIOS and power (BMC)", "the administrator"],
        ),
        ("closed-driver", Goal.RDMA, USER, ["the administrator"]),
        ("closed-driver", Goal.RDMA, POD, ["the operator of the cluster"]),
        ("pix", Goal.RDMA, {}, []),
    ],
)
def test_each_text_is_for_who_may_do_what_it_asks(name, goal, more, to):
    assert [letter.to for letter in letters(judged(name, goal, **more))] == to


def test_what_an_image_lacks_is_for_those_who_keep_the_image():
    talos = {"text /etc/os-release": "ID=talos\n"}
    found = judged("closed-driver", Goal.RDMA, **talos)
    assert letters(found)[-1].to == "those who keep the image of talos"
    text = " ".join(span.text for line in letters_page(found) for span in line)
    assert "on 'Invalid argument'" in text  # what a comment asks for, too
    assert "Ask who" not in text


def test_a_text_names_machine_goal_findings_and_commands_and_that_it_restarts(capsys):
    found = judged("iommu-on", Goal.RDMA, **USER)
    lines = ["".join(span.text for span in line) for line in letters_page(found)]
    text = " ".join(lines)
    assert lines[0] == "To the administrator:"
    assert "On host-1, I need this: " in text
    assert any(line.startswith("       echo 'GRUB_CMDLINE_LINUX=") for line in lines)
    assert "This restarts the machine." in lines
    assert main(["doctor", "--ask", "--goal", "rdma", "--from", str(snapshot_file("pix"))]) == 0
    assert "Nothing is for somebody else" in capsys.readouterr().out
    assert main(["doctor", "--ask", "memlock"]) == 2
    assert main(["doctor", "--ask", "--report"]) == 2
    assert "exclude each other" in capsys.readouterr().err
