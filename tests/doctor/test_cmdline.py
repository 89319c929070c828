# SPDX-License-Identifier: Apache-2.0
"""The kernel's command line."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import machine

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts.cmdline import (
    PATH,
    RECORDED,
    add_parameter,
    cmdline,
    filter_parameters,
    parse,
)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("ro quiet", ""),
        ("iommu=pt", "passthrough"),
        ("intel_iommu=on iommu=pt", "passthrough"),
        ("intel_iommu=on", "on"),
        ("intel_iommu=on,sm_on", "on"),
        ("iommu=off intel_iommu=off", "off"),
        ("amd_iommu=off", "off"),
        ("iommu=nopt", "on"),
        ("iommu=pt iommu=nopt", "on"),
        ("iommu.passthrough=1", "passthrough"),
        ("iommu.passthrough=0", "on"),
        ("iommu.passthrough=1 iommu=nopt", "on"),
        ("iommu=soft,pt", "passthrough"),
        ("iommu", ""),
        ("BOOT_IMAGE=/boot/iommu=off ro", ""),
        ('dyndbg="file iommu.c +p iommu=off" quiet', ""),
        ("ro -- iommu=off", ""),
        ("", ""),
    ],
)
def test_the_iommu_is_what_the_last_word_about_it_says(text: str, asked: str) -> None:
    assert parse(text).iommu == asked


def test_a_recording_has_only_the_parameters_that_checks_look_at() -> None:
    text = (
        "BOOT_IMAGE=/vmlinuz root=UUID=1234 intel_iommu=on ro iommu=pt addr=10.0.0.1 pci=nommconf"
    )
    assert filter_parameters(text) == "intel_iommu=on iommu=pt pci=nommconf\n"
    assert parse(filter_parameters(text)).about_iommu == "intel_iommu=on iommu=pt"


@given(st.text())
def test_any_text_is_read_and_what_is_kept_says_the_same_of_the_iommu(text: str) -> None:
    read = parse(text)
    assert parse(filter_parameters(text)).iommu == read.iommu
    assert {name for name, _ in parse(filter_parameters(text)).words} <= RECORDED


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z][a-z_.]{0,12}", fullmatch=True),
            st.from_regex(r"[a-z0-9,:/]{1,12}", fullmatch=True),
        )
    )
)
def test_what_is_written_is_read(words: list[tuple[str, str]]) -> None:
    text = " ".join(f"{name}={value}" for name, value in words)
    assert list(parse(text).words) == words


def test_one_that_is_not_readable_says_why() -> None:
    found = machine({f"text {PATH}": Reading(fault="denied", why="no")}).know(cmdline)
    assert (found.words, found.reading.why) == ((), "no")


@pytest.mark.parametrize("word", ["iommu=pt", 'pci=disable_acs_redir="0000:b2:00.0;0000:b2:01.0"'])
def test_a_word_that_is_added_is_what_grub_gets_of_its_file(word: str) -> None:
    """The file is read by a shell, after others that may have set the line."""
    echo, _, rest = add_parameter(machine({}), word, "name").partition(" | ")
    file = "/etc/default/grub.d/99-name.cfg"
    assert rest == f"sudo tee {file} && sudo update-grub && sudo reboot"
    made = subprocess.run(["sh", "-c", echo], capture_output=True, text=True, check=True).stdout
    read = f'GRUB_CMDLINE_LINUX=before\n{made}printf %s "$GRUB_CMDLINE_LINUX"'
    got = subprocess.run(["sh", "-c", read], capture_output=True, text=True, check=True).stdout
    assert got == f"before {word}"


def test_where_grubby_sets_words_the_value_keeps_its_quotes() -> None:
    line = add_parameter(machine({"text /etc/os-release": "ID=fedora\n"}), 'a="b;c"', "name")
    assert line == "sudo grubby --update-kernel=ALL --args='a=\"b;c\"' && sudo reboot"
