# SPDX-License-Identifier: Apache-2.0
"""softdoca's README: names by release, refused functions, and examples, which work."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.doca.headers import declared, releases
from support.doca.libraries import HOME

README_PATH = Path(__file__).resolve().parents[2] / "native/softdoca/README.md"
README = README_PATH.read_text("utf-8")
INCLUDE = README_PATH.parent / "include"


def check_generated(expected: str, config: pytest.Config) -> None:
    if config.getoption("approve"):
        README_PATH.write_text(expected, "utf-8")
    else:
        assert expected == README, "pytest tests/unit/test_softdoca_readme.py --approve writes it"


def test_the_table_of_releases_is_generated_from_their_header(
    request: pytest.FixtureRequest,
) -> None:
    header = (INCLUDE / "doca_releases.h").read_text("utf-8")
    expected = releases(README_PATH.read_text("utf-8"), header)
    assert "| `doca_flow_pipe_add_entry` | up to 3.2 | doca_flow_pipe_basic_add_entry |" in expected
    check_generated(expected, request.config)


def test_the_page_lists_the_functions_that_their_headers_refuse() -> None:
    (row,) = re.findall(r"^\| (.*) \| NOT_SUPPORTED always", README, re.MULTILINE)
    listed = {name for pattern in re.findall(r"`(\w.*?)`", row) for name in expanded(pattern)}
    refused = [name for name, is_refused in declared(INCLUDE).items() if is_refused]
    assert len(refused) > 10
    assert not [name for name in refused if not name.startswith(tuple(listed))]


def expanded(pattern: str) -> list[str]:
    """Return the beginnings of names that a pattern stands for: doca_{a, b}_c..."""
    parts = re.split(r"\{(.*?)\}", pattern.removesuffix("..."))
    choices = [part.split(", ") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(each) for each in itertools.product(*choices)]


def test_the_installed_readme_is_this_one() -> None:
    assert (HOME / "README.md").read_text("utf-8") == README


# Lists the devices and opens the first. Prints both results and the number of devices.
OPENS = """
import ctypes, sys
doca = ctypes.CDLL(sys.argv[1])
devices, n, dev = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_uint32(), ctypes.c_void_p()
listed = doca.doca_devinfo_create_list(ctypes.byref(devices), ctypes.byref(n))
opened = doca.doca_dev_open(ctypes.c_void_p(devices[0]), ctypes.byref(dev)) if n else None
print(listed, n.value, opened)
"""


def opened(**environment: str) -> str:
    command = [sys.executable, "-c", OPENS, str(HOME / "lib/libdoca_common.so.3")]
    done = subprocess.run(
        command, env=os.environ | {"SOFTDOCA_LOG": "warning"} | environment, check=True,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert not done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("side", "count"), [("host", 1), ("dpu", 2)])
def test_the_example_of_a_file_of_devices_is_one(side: str, count: int, tmp_path: Path) -> None:
    (example,) = re.findall(r"```\n(side=.*?)```", README, re.DOTALL)
    (tmp_path / "devices").write_text(example)
    says = opened(SOFTDOCA_SIDE=side, SOFTDOCA_DEVICES=str(tmp_path / "devices"))
    assert says == f"0 {count} 0"


def test_each_example_of_faults_is_one() -> None:
    examples = re.findall(r"`(error (?:every|skip)=.*?)`", README)
    assert len(examples) == 3
    for example in examples:
        assert opened(SOFTDOCA_SIDE="both", SOFTDOCA_FAULTS=example) == "0 1 0"
