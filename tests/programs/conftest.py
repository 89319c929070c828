# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several tests of programs share."""

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def pages_64k(tmp_path_factory):
    """A library that, preloaded, gives a process pages of 64 KiB: see support/pages_64k.c."""
    path = tmp_path_factory.mktemp("pages") / "pages_64k.so"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    source = Path(__file__).resolve().parents[1] / "support/pages_64k.c"
    subprocess.run(["cc", *flags, "-o", path, source], check=True)
    return path
