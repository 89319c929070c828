# SPDX-License-Identifier: Apache-2.0
"""Images of the guests: a kernel, an initramfs and a folder, which is the guest's root.

They are in the user's cache. A missing image is made from downloaded packages in a temporary
folder, which is renamed when it is complete.
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
from ..files import make_user_folder, replace_file, user_folder
from . import apt, guest_kernel, initramfs, qemu

Progress = Callable[[str], None]

_DPU = (
    *("libc6", "libibverbs1", "librdmacm1", "ibverbs-providers", "iproute2", "busybox-static"),
    *("python3", "libstdc++6"),  # libstdc++ for NumPy
)
_DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
_FOLDERS = ("etc", "proc", "sys", "dev", "tmp", "run", "root")
_NEEDED = 1 << 30  # bytes needed while an image is built; an image itself takes about 150 MB


@dataclass(frozen=True, slots=True)
class Image:
    """Parts of a guest.

    Attributes:
        machine: Its architecture, as platform.machine() names it.
        folder: Folder with the kernel and the initramfs.
        files: Folder that is the guest's root.
        kvm: Whether KVM runs it instead of emulation.
    """

    machine: str
    folder: Path
    files: Path
    kvm: bool

    @classmethod
    def parsed(cls, fields: dict[str, Any]) -> Image:
        """Return an image from its asdict(), parsed from JSON."""
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
    return user_folder("CACHE", "testbed")


@contextlib.contextmanager
def _lock_images(how: int) -> Iterator[None]:
    fd = os.open(
        make_user_folder("CACHE", "testbed") / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(fd, how)
        yield
    finally:
        os.close(fd)


def in_use() -> contextlib.AbstractContextManager[None]:
    """Lock the images so that they are not removed during a `with` block."""
    return _lock_images(fcntl.LOCK_SH)


def clean() -> int:
    """Remove the images and return the number of bytes freed.

    Raises:
        TestbedError: A testbed of this user is running or starting.
    """
    try:
        with _lock_images(fcntl.LOCK_EX | fcntl.LOCK_NB):
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
    """Return the size of the images on disk in bytes."""
    paths = cache().rglob("*")
    return sum(path.lstat().st_blocks * 512 for path in paths if not path.is_dir())


def prepare(progress: Progress) -> tuple[Image, Image]:
    """Return the images of the host and of the DPU; build images that are missing.

    Call it within in_use().

    Raises:
        TestbedError: Packages are not available, or the disk has too little space.
    """
    host = _made_image("host", _make_host, progress)
    dpu = _made_image("dpu", _make_dpu, progress)
    kvm = _kvm(host, progress)
    machine = platform.machine()
    return Image(machine, host, Path("/"), kvm), Image("aarch64", dpu, dpu / "root", kvm=False)


def ssh_server(machine: str, progress: Progress) -> Path:
    """Return the folder of Dropbear, an SSH server, and its libraries; make it if it is missing.

    Call it within in_use().

    Args:
        machine: Architecture, as platform.machine() names it.
        progress: Called with a text about the current step.

    Raises:
        TestbedError: Packages are not available, or the disk has too little space.
    """
    return _made_image(f"ssh-{machine}", partial(_make_ssh, _DEBIAN[machine]), progress)


def _make_ssh(architecture: str, scratch: Path, progress: Progress) -> None:
    """Collect Dropbear's programs and libraries, except the C library, in one folder."""
    progress(f"downloading Dropbear for {architecture}")
    environment = apt.root(scratch / "apt", architecture)
    packages = apt.download(scratch / "apt", "dropbear-bin", environment=environment)
    files = scratch / "files"
    apt.unpack([path for path in packages if not path.name.startswith("libc6_")], files)
    for path in [*files.rglob("dropbear"), *files.rglob("dropbearkey"), *files.rglob("*.so.*")]:
        if path.is_file():
            shutil.copy(path, scratch / "image")


def _kvm(host: Path, progress: Progress) -> bool:
    """Return whether KVM can run the host guest; the first call that may use /dev/kvm tries it."""
    answer = host / "kvm"
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    if not answer.exists():
        progress("trying KVM")
        boots = qemu.kvm_boots(platform.machine(), host / "vmlinuz")
        replace_file(answer, str(int(boots)).encode())
    return answer.read_text() == "1"


def sweep() -> None:
    """Remove leftovers of interrupted calls and older versions, unless a testbed is running."""
    with contextlib.suppress(BlockingIOError), _lock_images(fcntl.LOCK_EX | fcntl.LOCK_NB):
        folders = [path for path in cache().iterdir() if path.is_dir()]
        sites = [path for path in folders if path.name.startswith("site-")]
        newest = max(sites, key=lambda path: path.stat().st_mtime_ns, default=None)
        for path in folders:
            if not path.name.endswith(_version()) or (path in sites and path != newest):
                shutil.rmtree(path, ignore_errors=True)


def site_name(digest: str) -> str:
    """Return the name of the folder in cache() for modules of wheels with this digest."""
    return f"site-{digest}-{_version()}"


def _version() -> str:
    """Return a name that changes whenever an input of the images changes."""
    text = repr((initramfs.INIT, initramfs.SETUP, _DPU, platform.machine()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _made_image(name: str, make: Callable[[Path, Progress], None], progress: Progress) -> Path:
    folder = cache() / f"{name}-{_version()}"
    if folder.exists():
        return folder
    if (free := shutil.disk_usage(cache()).free) < _NEEDED:
        raise TestbedError(f"{cache()} needs {_NEEDED >> 20} MiB of free space, not {free >> 20}")
    with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=cache()) as scratch:
        image = Path(scratch, "image")
        image.mkdir()
        try:
            make(Path(scratch), progress)
        except (OSError, subprocess.CalledProcessError) as exc:
            raise TestbedError(f"the {name}'s image cannot be made in {cache()}: {exc}") from exc
        try:
            image.rename(folder)
        except OSError:  # another process may have built the image in the meantime
            if not folder.exists():
                raise
    return folder


def _make_host(scratch: Path, progress: Progress) -> None:
    """Make the image of a guest that has this machine's architecture and files."""
    progress("downloading the host's kernel")
    names = guest_kernel.packages(apt.native())
    packages = apt.download(scratch / "packages", *names, "busybox-static", alone=True)
    progress("unpacking the host's kernel")
    apt.unpack(packages, scratch / "files")
    _finish(scratch, scratch / "files")


def _make_dpu(scratch: Path, progress: Progress) -> None:
    """Make the image of a guest with Arm cores, from arm64 packages."""
    progress("downloading the lists of arm64 packages")
    environment = apt.root(scratch / "apt", "arm64")
    progress("downloading the DPU's packages")
    packages = apt.download(scratch / "apt", *_DPU, environment=environment)
    names = guest_kernel.packages("arm64", environment)
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
    """Write the kernel and the initramfs to the image; `files` contains busybox."""
    kernel_files = scratch / "files"
    busybox = next(files.glob("**/bin/busybox"))
    modules = map(guest_kernel.read_module, guest_kernel.modules(kernel_files))
    initramfs.write(scratch / "image/initramfs", busybox, modules)
    shutil.copyfile(guest_kernel.image(kernel_files), scratch / "image/vmlinuz")
