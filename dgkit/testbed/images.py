"""Images of the guests: a kernel, an initramfs and the folder that is a guest's root.

They are in the user's cache. What is not yet there is made of downloaded packages in a folder
beside it, which is renamed when it is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import TestbedError
from . import apt, initramfs, kernel, qemu

__all__ = ["Image", "Progress", "cache", "clean", "in_use", "prepare", "site_name", "size"]
__all__ += ["ssh_server", "sweep"]

Progress = Callable[[str], None]

_DPU = (
    *("libc6", "libibverbs1", "librdmacm1", "ibverbs-providers", "iproute2", "busybox-static"),
    *("python3", "libstdc++6"),  # libstdc++ for NumPy
)
_DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
_FOLDERS = ("etc", "proc", "sys", "dev", "tmp", "run", "root")
_NEEDED = 1 << 30  # bytes while an image is made; an image itself has about 150 MB


@dataclass(frozen=True, slots=True)
class Image:
    """Parts of a guest.

    Attributes:
        machine: Its architecture, as platform.machine() names it.
        folder: Folder with the kernel and the initramfs.
        files: Folder that is its root.
        kvm: Whether KVM runs it, not emulation.
    """

    machine: str
    folder: Path
    files: Path
    kvm: bool

    @classmethod
    def parsed(cls, fields: dict[str, Any]) -> Image:
        """Return the image whose asdict() crossed a socket as JSON."""
        paths = {name: Path(fields[name]) for name in ("folder", "files")}
        return cls(**{**fields, **paths})

    @property
    def kernel(self) -> Path:
        """The kernel."""
        return self.folder / "vmlinuz"

    @property
    def initramfs(self) -> Path:
        """The initramfs."""
        return self.folder / "initramfs"


def cache() -> Path:
    """Return the folder of the images, $XDG_CACHE_HOME/dgkit/testbed."""
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(home or Path.home() / ".cache") / "dgkit/testbed"


@contextlib.contextmanager
def _lock(how: int) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    fd = os.open(cache() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)


def in_use() -> contextlib.AbstractContextManager[None]:
    """Keep the images from being removed."""
    return _lock(fcntl.LOCK_SH)


def clean() -> int:
    """Remove the images and return the bytes that this freed.

    Raises:
        TestbedError: A testbed of this user runs, or is starting.
    """
    try:
        with _lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
            freed = size()
            for path in cache().iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
    except BlockingIOError:
        raise TestbedError(
            f"a testbed uses the images in {cache()}: end it first (`dgkit testbed down`)"
        ) from None
    return freed


def size() -> int:
    """Return the bytes of the images on disk."""
    paths = cache().rglob("*")
    return sum(path.lstat().st_blocks * 512 for path in paths if not path.is_dir())


def prepare(progress: Progress) -> tuple[Image, Image]:
    """Return the images of the host and of the DPU; make those that are missing.

    Call it with in_use().

    Raises:
        TestbedError: Packages are not available, or the disk has too little space.
    """
    host = _image("host", _make_host, progress)
    dpu = _image("dpu", _make_dpu, progress)
    kvm = _kvm(host, progress)
    machine = platform.machine()
    return Image(machine, host, Path("/"), kvm), Image("aarch64", dpu, dpu / "root", kvm=False)


def ssh_server(machine: str, progress: Progress) -> Path:
    """Return the folder of Dropbear, an SSH server, and its libraries; make it if it is missing.

    Call it with in_use().

    Args:
        machine: Architecture, as platform.machine() names it.
        progress: Called with what is being done.

    Raises:
        TestbedError: Packages are not available, or the disk has too little space.
    """
    return _image(f"ssh-{machine}", partial(_make_ssh, _DEBIAN[machine]), progress)


def _make_ssh(architecture: str, scratch: Path, progress: Progress) -> None:
    """Collect its programs and libraries, without the guest's C library, in one folder."""
    progress(f"downloading Dropbear for {architecture}")
    environment = apt.root(scratch / "apt", architecture)
    packages = apt.download(scratch / "apt", "dropbear-bin", environment=environment)
    files = scratch / "files"
    apt.unpack([path for path in packages if not path.name.startswith("libc6_")], files)
    for path in [*files.rglob("dropbear"), *files.rglob("dropbearkey"), *files.rglob("*.so.*")]:
        if path.is_file():
            shutil.copy(path, scratch / "image")


def _kvm(host: Path, progress: Progress) -> bool:
    """Return whether KVM runs the host; the first call that may use /dev/kvm tries."""
    answer = host / "kvm"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    if not answer.exists():
        progress("trying KVM")
        answer.write_text(str(int(qemu.kvm_boots(platform.machine(), host / "vmlinuz"))))
    return answer.read_text() == "1"


def sweep() -> None:
    """Remove what an interrupted call and older versions left, unless a testbed runs."""
    with contextlib.suppress(BlockingIOError), _lock(fcntl.LOCK_EX | fcntl.LOCK_NB):
        folders = [path for path in cache().iterdir() if path.is_dir()]
        sites = [path for path in folders if path.name.startswith("site-")]
        newest = max(sites, key=lambda path: path.stat().st_mtime_ns, default=None)
        for path in folders:
            if not path.name.endswith(_version()) or (path in sites and path != newest):
                shutil.rmtree(path, ignore_errors=True)


def site_name(digest: str) -> str:
    """Return the name in cache() of the modules of wheels with this digest."""
    return f"site-{digest}-{_version()}"


def _version() -> str:
    """Return a name for what the images are made of."""
    text = repr((initramfs.INIT, initramfs.SETUP, _DPU, platform.machine()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _image(name: str, make: Callable[[Path, Progress], None], progress: Progress) -> Path:
    folder = cache() / f"{name}-{_version()}"
    if folder.exists():
        return folder
    if (free := shutil.disk_usage(cache()).free) < _NEEDED:
        raise TestbedError(f"{cache()} needs {_NEEDED >> 20} MiB of free space, not {free >> 20}")
    with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=cache()) as scratch:
        made = Path(scratch, "image")
        made.mkdir()
        try:
            make(Path(scratch), progress)
        except (OSError, subprocess.CalledProcessError) as exc:
            raise TestbedError(f"the {name}'s image cannot be made in {cache()}: {exc}") from exc
        try:
            made.rename(folder)
        except OSError:  # another process has made it meanwhile
            if not folder.exists():
                raise
    return folder


def _make_host(scratch: Path, progress: Progress) -> None:
    """Make the image of a guest that has this machine's architecture and files."""
    progress("downloading the host's kernel")
    names = kernel.packages(apt.native())
    packages = apt.download(scratch / "packages", *names, "busybox-static", alone=True)
    progress("unpacking the host's kernel")
    apt.unpack(packages, scratch / "files")
    _finish(scratch, scratch / "files")


def _make_dpu(scratch: Path, progress: Progress) -> None:
    """Make the image of a guest with Arm cores, of arm64 packages."""
    progress("downloading the lists of arm64 packages")
    environment = apt.root(scratch / "apt", "arm64")
    progress("downloading the DPU's packages")
    packages = apt.download(scratch / "apt", *_DPU, environment=environment)
    names = kernel.packages("arm64", environment)
    kernels = apt.download(scratch / "packages", *names, environment=environment, alone=True)
    progress("unpacking the DPU's packages")
    root = scratch / "image/root"
    apt.unpack(packages, root)
    for name in _FOLDERS:
        (root / name).mkdir(exist_ok=True)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n", encoding="utf-8")
    apt.unpack(kernels, scratch / "files")
    busybox = next(root.glob("**/bin/busybox"))
    busybox.with_name("sh").symlink_to("busybox")
    _finish(scratch, root)


def _finish(scratch: Path, files: Path) -> None:
    """Write the kernel and the initramfs to the image; `files` has the busybox."""
    kernel_files = scratch / "files"
    busybox = next(files.glob("**/bin/busybox"))
    modules = map(kernel.read_module, kernel.modules(kernel_files))
    initramfs.write(scratch / "image/initramfs", busybox, modules)
    shutil.copyfile(kernel.image(kernel_files), scratch / "image/vmlinuz")
