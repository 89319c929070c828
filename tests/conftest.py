"""Where nothing may be skipped (CI=true), a skipped test fails. Ctrl-C works in every test."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from support.processes import coverage_lock

settings.register_profile("shared", deadline=None)  # a machine that others use is slow at times
settings.load_profile("shared")

coverage_lock.mend()

# Who starts a run in the background hands down an ignored SIGINT, also to the children of tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # who starts it by nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

IN_CI = os.environ.get("CI") == "true"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--approve", action="store_true", help="write approved texts, for review")


def _fail_a_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, and in CI nothing is: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    report = yield
    _fail_a_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    report = yield
    _fail_a_skip(report)
    return report
