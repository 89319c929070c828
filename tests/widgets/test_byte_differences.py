# SPDX-License-Identifier: Apache-2.0
"""differences() of regions, files and arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgkit
from dgkit.report import byte_differences as module

few = st.binary(max_size=60).map(lambda data: bytes(byte % 2 for byte in data))


@given(few, few, st.integers(1, 20), st.integers(1, 4))
def test_runs_are_those_of_bytes_compared_one_by_one(first, second, piece, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", piece)
        patch.setattr(module, "MAX_RUNS", most)
        found = dgkit.differences(first, second)
    unequal = [i for i, (a, b) in enumerate(zip(first, second)) if a != b]  # noqa: B905
    starts = [i for i in unequal if i - 1 not in unequal]
    assert (found.bytes, found.count) == (len(unequal), len(starts))
    assert bool(found) == (first != second)
    assert [run.offset for run in found.runs] == starts[:most]
    for run in found.runs:
        stop = run.offset + run.size
        assert set(range(run.offset, stop)) <= set(unequal)
        assert stop not in unequal
        assert run.first == first[run.offset : stop][:16]
        assert run.second == second[run.offset : stop][:16]


def test_a_region_is_read_by_dma_and_compared_with_a_file_and_an_array(session, tmp_path):
    region = session.empty(3 << 20, name="image")
    region.array[:] = np.arange(3 << 20) % 100
    path = tmp_path / "expected.bin"
    path.write_bytes(region.array.tobytes())
    assert not dgkit.differences(region, path)
    assert not dgkit.differences(region, region.array)
    session.write(region, b"\xff" * 20, offset=(1 << 20) - 5)
    found = dgkit.differences(path, region)
    assert (found.names, found.count, found.runs[0].offset) == (
        ("expected.bin", "image"), 1, (1 << 20) - 5
    )  # fmt: skip
    text = str(found)
    assert "20 bytes in 1 place differ" in text
    assert "0x000ffffb" in text
    assert " ..." in text
    assert "0xffffb" in found._repr_html_()


def test_sizes_and_names_are_told():
    found = dgkit.differences(b"abc", b"abcdef")
    assert found
    assert str(found) == (
        "bytes (first) and bytes (second): no byte differs; bytes (second) is 3 bytes longer"
    )
    assert not dgkit.differences(b"", np.zeros(0))
    assert dgkit.differences(np.ones((2, 3))[:, 1], np.ones(2)).count == 0


def test_of_many_places_a_hundred_are_shown():
    found = dgkit.differences(bytes(4000), b"\0\1" * 2000)
    assert (found.count, len(found.runs)) == (2000, 1000)
    assert str(found).endswith("... and 1,900 places more")
    assert "1,900 places more" in found._repr_html_()


def test_what_has_no_bytes_is_refused(tmp_path):
    with pytest.raises(TypeError, match="has no bytes"):
        dgkit.differences(object(), b"")
    with pytest.raises(FileNotFoundError):
        dgkit.differences(tmp_path / "none", b"")
