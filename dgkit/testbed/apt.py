# SPDX-License-Identifier: Apache-2.0
"""Packages of this machine's distribution, downloaded by apt and unpacked, never installed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ..errors import TestbedError

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def native() -> str:
    """Return this machine's architecture in Debian's terms, such as amd64."""
    command = ["dpkg", "--print-architecture"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _sources(architecture: str) -> str:
    """Return this machine's package sources, changed to another architecture."""
    wanted = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    signed = f" signed-by={_KEYRING}" if _KEYRING.exists() else ""
    options = f"arch={architecture}{signed}"
    return "".join(f"deb [{options}] {line}\n" for line in sorted(set(lines)))


def root(state: Path, architecture: str) -> dict[str, str]:
    """Set up apt for an architecture in a folder, without changing this machine's apt.

    Args:
        state: The folder, which must not exist yet.
        architecture: Debian's name of the architecture, such as arm64.

    Returns:
        Environment variables that make apt-get and apt-cache use this folder.

    Raises:
        TestbedError: The lists of packages could not be downloaded.
    """
    for part in ("lists/partial", "archives/partial", "parts"):
        (state / part).mkdir(parents=True)
    (state / "status").touch()
    (state / "sources.list").write_text(_sources(architecture), encoding="utf-8")
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures::": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        "Debug::NoLocking": "true",
        "Dir::Cache::archives": state / "archives",
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": state / "parts",
        "Dir::Etc::PreferencesParts": state / "parts",
        "Dir::State::lists": state / "lists",
        "Dir::State::status": state / "status",
    }
    config = state / "apt.conf"
    text = "".join(f'{name} "{value}";\n' for name, value in settings.items())
    config.write_text(text, encoding="utf-8")
    environment = {"APT_CONFIG": str(config), "PATH": _PATH}
    failed = f"apt's sources have no lists of {architecture} packages"
    _run(["apt-get", "-qq", "update"], failed, environment)
    return environment


def _run(
    command: list[str], failed: str, environment: Mapping[str, str], folder: Path | None = None
) -> None:
    """Run apt. If it fails, raise TestbedError with the last line that it printed."""
    done = subprocess.run(
        command, env=environment, cwd=folder, check=False, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode:
        last = (done.stdout.strip().splitlines() or ["no message"])[-1]
        raise TestbedError(f"{failed}: {last}. `sudo apt update` renews outdated lists")


def depends(package: str, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the packages that a package depends on; an empty list if apt does not know it."""
    command = ["apt-cache", "depends", "--no-recommends", "--no-suggests", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return re.findall(r"Depends: (\S+)", done.stdout)


def download(
    folder: Path, *names: str, environment: Mapping[str, str] | None = None, alone: bool = False
) -> list[Path]:
    """Download packages; apt checks their signatures.

    Args:
        folder: Destination if `alone`; otherwise the `state` of root().
        names: Names of packages.
        environment: Result of root(); None for this machine's apt.
        alone: Omit their dependencies.

    Raises:
        TestbedError: A package could not be downloaded.
    """
    failed = f"apt could not download {', '.join(names)}"
    if alone:
        folder.mkdir(parents=True, exist_ok=True)
        command = ["apt-get", "-qq", "-o", "APT::Sandbox::User=", "download", *names]
        _run(command, failed, environment or os.environ, folder)
        return sorted(folder.glob("*.deb"))
    command = ["apt-get", "-qq", "-y", "install", "--download-only", *names]
    _run(command, failed, environment or os.environ)
    return sorted((folder / "archives").glob("*.deb"))


def unpack(packages: list[Path], folder: Path) -> None:
    """Unpack the files of packages, without running their scripts."""
    folder.mkdir()
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
    if not (folder / "lib").exists():
        (folder / "lib").symlink_to("usr/lib")
