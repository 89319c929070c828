# SPDX-License-Identifier: Apache-2.0
"""Inspect softdoca's installed libraries with readelf. Shared by its tests."""

import re
import shutil
import subprocess

import pytest

from dgkit.cli.softdoca_command import _home

HOME = _home()
PARTS = [
    "common",
    "dma",
    "argp",
    "comch",
    "comm_channel",
    "rdma",
    "verbs",
    "gpunetio",
    "eth",
    "flow",
]
NODES = ["DOCA_2", "EXPERIMENTAL", "INTERNAL"]


def tool(name, package):
    """Return the path of a tool; if it is missing, skip the test and name its package."""
    found = shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not here: apt install {package}")
    return found


def readelf(path, *options):
    command = [tool("readelf", "binutils"), "--wide", *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exported(path):
    """Return {function: version node} of a library; None for functions without a node."""
    found = {}
    for line in readelf(path, "--dyn-syms").splitlines():
        match = re.search(r"(?:FUNC|OBJECT) +(?:GLOBAL|WEAK) +\w+ +(\S+) (\S+)", line)
        if match and match[1] not in ("UND", "ABS"):  # ABS: the nodes themselves
            name, _, node = match[2].replace("@@", "@").partition("@")
            found[name] = node or None
    return found


def nodes(path):
    return re.findall(r"Rev: 1 +Flags: (?!BASE).* Name: (\S+)", readelf(path, "--version-info"))


def dynamic(path, tag):
    return re.findall(rf"\({tag}\).*\[(.*)\]", readelf(path, "--dynamic"))


def public(part):
    """Return the functions of a library that programs may call: {function: version node}."""
    found = exported(HOME / f"lib/libdoca_{part}.so.3")
    return {name: node for name, node in found.items() if name.startswith("doca_")}
