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
        unpack(_download(folder / "apt"), root)
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


def apt_root(state: Path) -> dict[str, str]:
    """Make an apt of arm64 packages in a folder, so that this machine's own apt is not touched.

    Args:
        state: Folder, which must not exist.

    Returns:
        The environment in which apt-get and apt-cache use it.

    Raises:
        NotAvailable: The lists of packages could not be downloaded.
    """
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
    environment = {"APT_CONFIG": str(config), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    if subprocess.run(["apt-get", "-qq", "update"], env=environment, check=False).returncode:
        raise NotAvailable("apt's sources have no lists of arm64 packages")
    return environment


def download(state: Path, environment: dict[str, str], *names: str) -> list[Path]:
    """Return files of these packages and all that they need, checked by apt.

    Raises:
        NotAvailable: They could not be downloaded.
    """
    command = ["apt-get", "-qq", "-y", "install", "--download-only", *names]
    if subprocess.run(command, env=environment, check=False).returncode:
        raise NotAvailable(f"apt's sources have no arm64 packages of {', '.join(names)}")
    return sorted((state / "archives").glob("*.deb"))


def _download(state: Path) -> list[Path]:
    """Return the packages of a minimal Python."""
    return download(state, apt_root(state), "python3", "libstdc++6")


def unpack(packages: list[Path], root: Path) -> None:
    """Unpack the files; run nothing of them."""
    root.mkdir()
    for package in packages:
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
