# SPDX-License-Identifier: Apache-2.0
"""The options that the kernel was built with."""

from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import UNAME, machine

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts.kconfig import RECORDED, filter_options, kconfig, parse, paths

UBUNTU = """\
#
# Automatically generated file; DO NOT EDIT.
# Linux/x86 6.8.0 Kernel Configuration
#
CONFIG_CC_VERSION_TEXT="x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0) 13.2.0"
CONFIG_PCI_P2PDMA=y
# CONFIG_HMM_MIRROR is not set
CONFIG_INFINIBAND=m
CONFIG_LOG_BUF_SHIFT=18
"""
RELEASE = UNAME["release"]


def test_options_are_on_modules_off_or_values() -> None:
    options = parse(UBUNTU)
    assert options["CONFIG_PCI_P2PDMA"] == "y"
    assert options["CONFIG_HMM_MIRROR"] == "n"
    assert options["CONFIG_INFINIBAND"] == "m"
    assert options["CONFIG_LOG_BUF_SHIFT"] == "18"
    assert len(options) == 5


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert all(name.startswith("CONFIG_") for name in parse(text))
    assert parse(filter_options(text)).keys() <= set(RECORDED)


@given(
    st.dictionaries(
        st.from_regex(r"CONFIG_[A-Z0-9_]{1,20}", fullmatch=True), st.sampled_from("ymn"), min_size=1
    )
)
def test_what_make_writes_is_read(options: dict[str, str]) -> None:
    lines = (
        f"# {name} is not set" if value == "n" else f"{name}={value}"
        for name, value in options.items()
    )
    assert parse("# Linux/arm64 5.15\n" + "\n".join(lines) + "\n") == options


def test_what_is_kept_answers_as_the_whole_does() -> None:
    short = machine({f"text /boot/config-{RELEASE}": filter_options(UBUNTU)}).know(kconfig)
    whole = machine({f"text /boot/config-{RELEASE}": UBUNTU}).know(kconfig)
    assert [short[name] for name in RECORDED] == [whole[name] for name in RECORDED]
    assert "13.2.0" not in filter_options(UBUNTU)


def test_each_place_of_a_distribution_is_looked_at() -> None:
    for path in paths(RELEASE):
        found = machine({f"text {path}": UBUNTU}).know(kconfig)
        assert (found["CONFIG_PCI_P2PDMA"], found.path) == ("y", path)


def test_none_is_found_and_one_that_root_may_read_are_told_apart() -> None:
    nothing = machine({}).know(kconfig)
    assert (nothing.options, nothing.denied) == ({}, False)
    assert f"/boot/config-{RELEASE}" in nothing.why
    locked = Reading(fault="denied", why="by root alone")
    closed = machine({f"text /boot/config-{RELEASE}": locked}).know(kconfig)
    assert (closed.why, closed.denied) == ("by root alone", True)
