"""An aarch64 CPython from Debian's packages, run here by user-mode emulation."""

import shutil
import subprocess
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
CPU = "cortex-a72"  # BlueField-2's; Armv8.0, so an LSE instruction that is not asked for dies


class NotAvailable(Exception):
    """The packages could not be had here."""


def python(folder: Path) -> list[str | Path]:
    """The command that runs it. Unpacked into `folder` at the first call."""
    root = folder / "root"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _unpack(_download(folder / "apt"), root)
        (folder / "complete").touch()
    program = next((root / "usr/bin").glob("python3.[0-9]*"))
    return ["qemu-aarch64-static", "-cpu", CPU, "-L", root, program]


def version(folder: Path) -> str:
    """Its version, as 3.x."""
    return next((folder / "root/usr/bin").glob("python3.[0-9]*")).name.removeprefix("python")


def _sources() -> str:
    """This machine's own sources, asked for arm64."""
    wanted = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    command = ["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    signed = f" signed-by={KEYRING}" if KEYRING.exists() else ""
    return "".join(f"deb [arch=arm64{signed}] {line}\n" for line in sorted(set(lines)))


def _download(state: Path) -> list[Path]:
    """The packages of a minimal Python, checked by apt, whose own state is not touched."""
    for part in ("lists/partial", "archives/partial", "parts"):
        (state / part).mkdir(parents=True)
    (state / "status").touch()
    (state / "sources.list").write_text(_sources())
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
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
    config.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    apt = ["apt-get", "-qq", "-y"]
    environment = {"APT_CONFIG": str(config), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    for step in (["update"], ["install", "--download-only", "python3", "libstdc++6"]):
        done = subprocess.run([*apt, *step], env=environment, check=False)
        if done.returncode:
            raise NotAvailable(f"no arm64 Python from apt's sources: apt-get {step[0]} failed")
    return sorted((state / "archives").glob("*.deb"))


def _unpack(packages: list[Path], root: Path) -> None:
    """Unpacks the files; runs nothing of them."""
    root.mkdir()
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
