# SPDX-License-Identifier: Apache-2.0
"""Options and fixtures of all tests: --approve, no skips if CI=true, Ctrl-C in every test."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings
from support.processes import coverage_lock

QUICK = "DGKIT_TESTS_QUICK" in os.environ  # tests/run --quick
# Other users slow the machine down at times.
settings.register_profile("shared", deadline=None, max_examples=10 if QUICK else 50)
settings.load_profile("shared")

coverage_lock.mend()

# A run in the background inherits an ignored SIGINT, and so do the children of tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # started by nohup
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

IN_CI = os.environ.get("CI") == "true"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--approve", action="store_true", help="write approved texts, for review")


def _fail_a_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"


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


@pytest.fixture
def approved(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file of a name in the folder `approved` beside the test."""

    def compare(name: str, text: str) -> None:
        path = request.path.parent / "approved" / name
        if request.config.getoption("approve"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        way = f"python -m pytest {request.path.name} --approve writes {path.name} again"
        assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), way

    return compare
