"""Reports in the output formats of perftest and nvbandwidth, for scripts that parse these.

perftest: the columns of ib_write_lat, and of ib_write_bw in duration mode (linux-rdma/perftest,
src/perftest_parameters.h, RESULT_FMT_LAT and RESULT_FMT). Its MB are 2^20 bytes. nvbandwidth: a
matrix of one row and one column, in 10^9 bytes per second (NVIDIA/nvbandwidth, output.cpp).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .bandwidth import BandwidthReport
from .latency_report import LatencyReport

_RULE = "-" * 87
_LATENCY = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
    "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
)
_RATE = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
_TESTS = {
    "write": ("host_to_device_memcpy_ce", "memcpy CE CPU(row) -> GPU(column)"),
    "read": ("device_to_host_memcpy_ce", "memcpy CE CPU(row) <- GPU(column)"),
}


def perftest(reports: Iterable[LatencyReport] | Iterable[BandwidthReport]) -> str:
    """Return a row per report with the columns of perftest.

    The lines above the table name the operation, provider and machine. The rate has no peak: it is
    0, as in perftest's duration mode.

    Args:
        reports: Latency reports, or bandwidth reports.

    Raises:
        ValueError: There is none, they are of both kinds, or one was stored without its mean.
    """
    listed: list[LatencyReport | BandwidthReport] = [*reports]
    kinds = {isinstance(report, LatencyReport) for report in listed}
    if len(kinds) != 1:
        raise ValueError("perftest's table takes latency reports or bandwidth reports, one or more")
    head = _LATENCY if kinds == {True} else _RATE
    rows = [_latency(r) if isinstance(r, LatencyReport) else _rate(r) for r in listed]
    origins = dict.fromkeys(_origin(report) for report in listed)
    return "\n".join([_RULE, *origins, _RULE, head, *rows, _RULE, ""])


def _origin(report: LatencyReport | BandwidthReport) -> str:
    return f" dgkit {report.op}  : {report.provider} ({report.label}); {report.machine}"


def _latency(report: LatencyReport) -> str:
    known = report.percentiles
    if known.mean_ns is None or known.stdev_ns is None:
        raise ValueError(f"{report!r} was stored without mean and deviation: measure it again")
    figures = (
        known.min_ns, known.max_ns, known.p50_ns, known.mean_ns, known.stdev_ns, known.p99_ns,
        known.p999_ns,
    )  # fmt: skip
    least, most, typical, mean, stdev, p99, p999 = (f"{ns / 1000:<7.2f}" for ns in figures)
    return (
        f" {report.size:<7d} {known.n}          {least}        {most}      {typical}  \t"
        f"       {mean}     \t{stdev}\t\t{p99} \t\t{p999}"
    )


def _rate(report: BandwidthReport) -> str:
    average = report.bytes / 2**20 / (report.elapsed_ns / 1e9)
    return (
        f" {report.size:<7d}    {report.ops:<10d}       {0:<7.2f}            {average:<7.2f}"
        f"\t\t   {report.ops_per_s / 1e6:<7.6f}"
    )


def nvbandwidth(reports: Sequence[BandwidthReport]) -> str:
    """Return bandwidth reports as nvbandwidth prints its tests.

    A write is `host_to_device_memcpy_ce`, a read `device_to_host_memcpy_ce`: the DPU is in the
    place of the CPU, the region in that of the GPU, which the note above each test says.

    Raises:
        ValueError: There is no report, or two of one operation, whose tests have one name.
    """
    ops = [report.op for report in reports]
    if not ops or len(set(ops)) != len(ops):
        raise ValueError("nvbandwidth's output takes one bandwidth report of each operation")
    return "\n".join(["nvbandwidth Version: none, by dgkit", "", *map(_test, reports)])


def _test(report: BandwidthReport) -> str:
    name, matrix = _TESTS[report.op]
    rate = f"{report.gb_per_s:.2f}"
    origin = f"NOTE: {report.op} of the DPU. {report.label}; {report.where}; {report.machine}"
    return (
        f"{origin}\n\nRunning {name}.\n{matrix} bandwidth (GB/s)\n"
        f"           0\n 0 {rate:>9}\n\nSUM {name} {rate}\n"
    )
