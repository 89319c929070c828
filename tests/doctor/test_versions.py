# SPDX-License-Identifier: Apache-2.0
"""Versions, out of whatever text names them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.doctor.machines import machine

from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.facts import versions
from dgkit.doctor.facts.versions import Version, version


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("24.33.1048", (24, 33, 1048)),
        ("2.9.1008\n", (2, 9, 1008)),
        ("fw 32.41.1000 (MT_0000000884)", (32, 41, 1000)),
        ("44", (44,)),
        ("none", None),
        ("", None),
    ],
)
def test_the_first_number_of_a_text_is_its_version(
    text: str, parts: tuple[int, ...] | None
) -> None:
    found = versions.find(text)
    assert (found.parts if found else None) == parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("MLNX_OFED_LINUX-5.8-1.0.1.1:", (5, 8, 1, 0, 1, 1)),
        ("MLNX_OFED_LINUX-23.10-0.5.5.0:\n", (23, 10, 0, 5, 5, 0)),
        ("OFED-internal-24.10-0.7.0:", (24, 10, 0, 7, 0)),
        ("OFED-internal-23.10-1.1.9.0.1:", (23, 10, 1, 1, 9, 0, 1)),
        ("MLNX_EN", None),
        ("-bash: ofed_info: command not found", None),
    ],
)
def test_ofed_info_of_both_kinds_is_read(text: str, parts: tuple[int, ...] | None) -> None:
    found = versions.ofed(text)
    assert (found.parts if found else None) == parts


@pytest.mark.parametrize(
    ("path", "release"),
    [
        ("/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0", "44"),
        ("/usr/lib64/libibverbs.so.1.12.34.1", "34.1"),
        ("/usr/lib/libibverbs.so.1.15.61.0", "61"),
        ("/usr/lib/libibverbs.so.1", None),
        ("", None),
    ],
)
def test_the_file_name_of_libibverbs_tells_the_release_of_rdma_core(
    path: str, release: str | None
) -> None:
    found = versions.rdma_core(versions.library(path))
    assert found == (versions.find(release) if release else None)


def test_doca_libraries_tell_their_version_by_their_file_names() -> None:
    found = versions.library("/opt/mellanox/doca/lib/x86_64-linux-gnu/libdoca_common.so.2.5.0108")
    assert found == version(2, 5, 108)


numbers = st.lists(st.integers(0, 10**6), min_size=1, max_size=5).map(tuple)


@given(numbers, numbers)
def test_versions_compare_as_their_numbers_do(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    length = max(len(a), len(b))
    left, right = (tuple(x) + (0,) * (length - len(x)) for x in (a, b))
    assert (Version(a) < Version(b)) is (left < right)
    assert (Version(a) <= Version(b)) is (left <= right)
    assert (Version(a) > Version(b)) is (left > right)
    assert (Version(a) >= Version(b)) is (left >= right)
    assert (Version(a) == Version(b)) is (left == right)
    assert hash(Version(a)) == hash(Version((*a, 0)))


@given(numbers)
def test_a_version_is_found_in_what_it_prints(parts: tuple[int, ...]) -> None:
    assert versions.find(str(Version(parts))) == Version(parts)


@given(st.text())
def test_no_text_makes_the_parsers_of_versions_raise(text: str) -> None:
    for parse in (versions.find, versions.ofed, versions.library):
        found = parse(text)
        assert found is None or found.parts


def test_a_library_that_loads_under_any_of_its_names_is_there() -> None:
    said = {
        "libdoca_common.so.3": {"path": "", "why": "cannot open shared object file"},
        "libdoca_common.so.2": {"path": "/opt/doca/libdoca_common.so.2.9.1008", "why": ""},
        "libmlx5.so.1": {"path": "", "why": "not there"},
        "libodd.so": None,
    }
    found = machine({"probe libraries": said}).know(versions.libraries)
    assert found.version("libdoca_common") == version(2, 9, 1008)
    assert found.whys == {"libmlx5": "not there", "libodd": ""}


def test_a_probe_that_fails_says_why_nothing_is_known_of_libraries() -> None:
    late = Reading(fault="late", why="no answer")
    assert machine({"probe libraries": late}).know(versions.libraries).why == "no answer"
    assert machine({"probe libraries": []}).know(versions.libraries).why
