# SPDX-License-Identifier: Apache-2.0
"""Sizes and lists on the command line, the file that demo takes, hex lines, tables, sparklines."""

import contextlib
import hashlib
import os
import re
from types import SimpleNamespace

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dgkit.cli import demo_run, options, sweep_command, tables
from dgkit.cli.demo_command import show_moved
from dgkit.cli.demo_run import Moved, Step
from dgkit.html_cards import hex_lines
from dgkit.memory.meminfo import available_bytes
from dgkit.report import BandwidthReport, Histogram, LatencyReport, Machine
from dgkit.session import session_reports
from dgkit.sizes import RATE_BYTES, rate_span
from dgkit.units import size_text

MACHINE = Machine("cpu", 2, "x86_64", "6.1", 4096, True)
GPU = {"provider": "cuda", "machine": Machine("cpu", 2, "x86_64", "6.1", 4096, True, "GPU 0")}


def test_the_memory_of_a_rate_does_not_depend_on_the_other_rows_of_a_bench():
    case, large = (
        sweep_command.Case("write", "inline", 64, 256),
        sweep_command.Case("write", "inline", 1 << 20, 32),
    )
    assert sweep_command.region_size([case]) == rate_span(64, 256) == 64 * 256
    assert sweep_command.region_size([case, large]) == rate_span(1 << 20, 32) == RATE_BYTES
    assert rate_span(64 << 20, 32) == 64 << 20


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("512M", 512 << 20), ("4G", 4 << 30), ("1.5k", 1536), ("64KiB", 65536),
     ("2kb", 2048), (" 1 TiB ", 1 << 40), ("0.5K", 512), (77, 77)],
)  # fmt: skip
def test_a_size_is_bytes_with_a_binary_unit(text, size):
    assert options.size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "K", "1e6", "four", "1P", "0.1K", "1 2"])
def test_what_is_no_size_is_a_usage_error_that_says_how_to_write_one(text):
    with pytest.raises(click.BadParameter, match=r"not a (size|whole number of bytes)"):
        options.size(text)


@given(st.integers(1, 2**50))
def test_sizes_that_are_shown_short_and_exact_can_be_typed_back(size):
    text = size_text(size)
    if "." not in text:
        assert options.size(text) == size


def test_a_list_keeps_its_order_and_takes_each_item_once():
    assert options.comma_separated(options.size)("4K,8, 4096,1M") == (4096, 8, 1 << 20)


@pytest.mark.parametrize("text", ["0", "7", "x", "", "-1", "1.0"])
def test_a_number_out_of_its_bounds_is_a_usage_error(text):
    with pytest.raises(click.BadParameter, match="from 1 to 6"):
        options.comma_separated(options.integer(1, 6))(f"2,{text}")


def test_a_word_that_is_none_of_the_choices_is_a_usage_error():
    assert options.choice("a", "b")("b") == "b"
    with pytest.raises(click.BadParameter, match="not one of: a, b"):
        options.choice("a", "b")("c")


def nothing(done, total):
    assert 0 <= done <= total


def test_a_file_is_read_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(os.urandom(5 << 20))
    found = demo_run.Source(path)
    target = bytearray(found.size)
    seen = []
    found.read_into(memoryview(target), lambda done, total: seen.append((done, total)))
    assert target == path.read_bytes()
    assert seen[-1] == (5 << 20, 5 << 20)


class Array:
    """An array on a GPU, as far as demo uses it."""

    device = contextlib.nullcontext()

    def __init__(self, data):
        self.data = data

    def set(self, piece):
        self.data[:] = piece

    def get(self):
        return self.data.copy()


@pytest.mark.parametrize("size", [1, (4 << 20) - 1, 4 << 20, (9 << 20) + 3])
def test_a_gpu_s_array_is_filled_and_read(tmp_path, size):
    np = pytest.importorskip("numpy")
    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    array = Array(np.zeros(size, "u1"))
    region = SimpleNamespace(array=array, place="cuda:0")
    demo_run._fill(region, demo_run.Source(path), nothing)
    assert array.data.tobytes() == path.read_bytes()
    digest = demo_run._sha256(demo_run._content(region), nothing)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_without_a_file_the_bytes_are_made_up_and_the_same_each_time():
    first, second = (bytearray(demo_run.Source(None).size) for _ in range(2))
    demo_run.Source(None).read_into(memoryview(first), nothing)
    demo_run.Source(None).read_into(memoryview(second), nothing)
    assert len(first) == 16 << 20
    assert first == second
    assert first.startswith(b"dgkit demo")
    assert len(set(first[1000:2000])) > 200


def test_a_file_that_becomes_shorter_is_an_error(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    found = demo_run.Source(path)
    path.write_bytes(b"x" * 50)
    with pytest.raises(OSError, match="became shorter"):
        found.read_into(memoryview(bytearray(100)), nothing)


def test_an_empty_file_says_that_there_is_nothing_to_move(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(click.UsageError, match="is empty"):
        demo_run.Source(tmp_path / "empty")


def test_no_time_and_no_rate_is_written_as_zero(capsys):
    steps = [
        Step("a", 1, 10**6, read_ns=100),
        Step("b", 10**9, 10**8, read_ns=9 * 10**7, write_ns=8 * 10**7),
    ]
    show_moved(Moved("name", 1, steps))
    out = capsys.readouterr().out
    assert " 0.00" not in out
    assert out.count("<0.01") == 2
    assert "10.00" in out
    assert out.count("overlap") == 1


def test_a_pipe_or_a_device_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", demo_run.Path("/dev/zero")):
        with pytest.raises(click.UsageError, match="not a regular file"):
            demo_run.Source(path)


def test_a_file_larger_than_memory_is_refused_with_the_limit(tmp_path):
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(available_bytes() + (1 << 30))
    with pytest.raises(click.UsageError, match=r"the limit is [\d.]+ [GM]iB"):
        demo_run.Source(path)


@given(st.binary(min_size=1, max_size=100), st.integers(0, 2**31))
def test_hex_lines_can_be_read_back(data, offset):
    lines = hex_lines(data, offset=offset)
    assert all(len(line) <= 76 for line in lines)
    back = b"".join(bytes.fromhex(line[10:58]) for line in lines)
    assert back == data
    assert [int(line[:8], 16) for line in lines] == list(range(offset, offset + len(data), 16))


def test_hex_lines_show_what_can_be_printed():
    (line,) = hex_lines(b"A\x00[b]\x7f~\xff ")
    assert line == "00000000  41 00 5b 62 5d 7f 7e ff  20                       A.[b].~. "


def latency(samples=(1000, 2000, 3000), floor_ns=(100, 110), **changes):
    made = {"size": 1 << 20, "op": "write", "provider": "soft", "path": "worker"}
    made |= {"machine": MACHINE}
    return LatencyReport.of(samples, floor_ns=floor_ns, spinning=True, **(made | changes))


def rate(floor_gb_per_s=(10.0, 10.0), **changes):
    made = {"size": 1 << 20, "op": "read", "window": 65536, "provider": "soft", "path": "worker"}
    return BandwidthReport.of(
        12_345_678_901, 100_000_000, 10**9, floor_gb_per_s=floor_gb_per_s, spinning=True,
        **(made | {"machine": MACHINE} | changes),
    )  # fmt: skip


def lines(table, width=80):
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def test_tables_fit_80_columns_and_lose_no_figure():
    slow = latency(
        [3_412_345, *[3_987_654] * 98, 98_765_432], size=64 << 20, floor_ns=(3_400_123, 3_400_123)
    )
    text = lines(tables.latency_table([slow, latency()], "Latency"))
    assert "…" not in "".join(text)
    assert all(figure in text[-2] for figure in ("3,987.65", "98,765.43", "3,400.12", "64 MiB"))
    text = lines(tables.rate_table([rate()], "Rates"))
    assert "…" not in "".join(text)
    assert all(figure in text[-1] for figure in ("65536", "100,000,000", "12.35", "1.23"))


def test_a_table_of_a_copy_engine_names_its_floor_and_shows_hundredths():
    text = lines(tables.rate_table([rate(**GPU)], "Rates"))
    assert "of driver" in text[1]
    assert "memcpy" not in text[1]
    assert " 19.05 " in lines(tables.latency_table([latency(**GPU)], "Latency"))[-1]


@pytest.mark.parametrize("provider", ["doca", "softdoca"])
def test_a_table_of_dma_tasks_names_its_floor(provider):
    header = lines(tables.rate_table([rate(provider=provider)], "Rates"))[1]
    assert "of DOCA" in header
    assert "memcpy" not in header


def test_a_row_whose_floor_moved_has_no_ratio():
    moved, still = latency(floor_ns=(100, 490)), latency()
    text = lines(tables.latency_table([moved, still], "Latency"))
    assert re.search(r"0\.29 +moved ", text[-2])
    assert re.search(r"0\.1[01] +19\.0 ", text[-1])
    assert "moved: the floor changed" in tables.floor_note([still, moved])
    assert not tables.floor_note([still])
    assert (
        lines(tables.rate_table([rate(floor_gb_per_s=(1.0, 9.0))], ""))[-1].split()[-2] == "moved"
    )


def test_a_floor_that_was_not_taken_is_no_number():
    none = latency(floor_ns=())
    assert re.search(r" none +- ", lines(tables.latency_table([none], ""))[-1])
    assert tables.floor_note([latency(), none, none]) == "no floor: not measured"


@given(st.lists(st.integers(0, 10**9), min_size=1), st.integers(1, 20))
def test_a_sparkline_shows_the_fastest_and_the_slowest(samples, width):
    drawn = tables.spark(Histogram.of(sorted(samples)), width)
    assert len(drawn) == width
    assert "█" in drawn
    assert sum(cell != " " for cell in drawn) <= len(set(samples))


@given(st.floats(0, 1), st.integers(1, 40))
def test_a_bar_is_as_long_as_its_share(share, width):
    drawn = tables.bar(share, width)
    assert abs(len(drawn.rstrip("▏▎▍▌▋▊▉")) - share * width) <= 1.01
    assert tables.bar(1.0, width) == "█" * width


@pytest.mark.parametrize(("size", "count"), [(8, 10_000), (1 << 20, 512), (64 << 20, 20)])
def test_large_transfers_are_sampled_less_often(size, count):
    assert session_reports.samples_for(size, 10_000) == count
