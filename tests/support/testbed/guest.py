"""A virtual machine with Soft-RoCE that has this machine's files, read only, and runs a command.

QEMU emulates it: whatever is measured inside is no figure. The files come over 9p, so what is built
and installed here runs there, with another kernel and a device that this machine does not have.
"""

import lzma
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from . import kernel

_MACHINES = {
    "x86_64": ["qemu-system-x86_64", "-machine", "q35", "-cpu", "max"],
    "aarch64": ["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a72"],
}
_CONSOLES = {"x86_64": "ttyS0", "aarch64": "ttyAMA0"}
_RESULT = "dgkit-guest-result="  # QEMU's own exit code is 0 whatever happened inside
_INIT = """#!/busybox sh
/busybox mkdir -p /proc /sys /dev /root
for name in $(/busybox cat /modules/order); do
    /busybox insmod /modules/$name || echo "cannot load $name"
done
/busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose files /root
for name in proc sysfs devtmpfs; do
    case $name in proc) at=proc;; sysfs) at=sys;; devtmpfs) at=dev;; esac
    /busybox mount -t $name $name /root/$at
done
/busybox mkdir -p /root/dev/shm /root/dev/pts
for at in dev/shm tmp run; do /busybox mount -t tmpfs tmpfs /root/$at; done
/busybox cp /command /root/run/command
/busybox chroot /root /bin/sh /run/command
echo "RESULT$?"
/busybox poweroff -f
""".replace("RESULT", _RESULT)
_SETUP = """export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp XDG_RUNTIME_DIR=/run
ip link set lo up
ip link add dgkit0 type dummy || exit 90
ip addr add 10.9.0.1/24 dev dgkit0 && ip link set dgkit0 up || exit 90
rdma link add rxe0 type rxe netdev dgkit0 || exit 91
ulimit -l unlimited
"""


def _module(path: Path) -> tuple[str, bytes]:
    """Return the name and the bytes of a module, which a distribution may have compressed."""
    if path.suffix == ".xz":
        return path.stem, lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        command = ["zstd", "-dcq", path]
        return path.stem, subprocess.run(command, capture_output=True, check=True).stdout
    return path.name, path.read_bytes()


def _initramfs(root: Path, script: str, out: Path) -> None:
    """Write an initramfs with the modules, a static busybox and what the guest runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "modules").mkdir()
        loaded = []
        for path in kernel.modules(root):
            module, content = _module(path)
            (folder / "modules" / module).write_bytes(content)
            loaded.append(module)
        (folder / "modules/order").write_text("\n".join(loaded))
        shutil.copy(shutil.which("busybox") or "", folder / "busybox")
        (folder / "command").write_text(_SETUP + script)
        (folder / "init").write_text(_INIT)
        (folder / "init").chmod(0o755)
        files = "\n".join(str(path.relative_to(folder)) for path in folder.rglob("*"))
        with out.open("wb") as archive:
            command = ["cpio", "--quiet", "-o", "-H", "newc"]
            subprocess.run(command, cwd=folder, input=files.encode(), stdout=archive, check=True)


def _command(root: Path, initramfs: Path, memory_mb: int) -> list[str]:
    kind = platform.machine()
    arguments = f"console={_CONSOLES[kind]} quiet panic=-1 mitigations=off"
    files = "local,id=files,path=/,security_model=none,readonly=on,multidevs=remap"
    return [
        *_MACHINES[kind], "-accel", "tcg,thread=multi", "-smp", "2", "-m", str(memory_mb),
        "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot", "-nic", "none",
        "-kernel", str(kernel.image(root)), "-initrd", str(initramfs), "-append", arguments,
        "-fsdev", files, "-device", "virtio-9p-pci,fsdev=files,mount_tag=files",
    ]  # fmt: skip


def run(
    command: Sequence[str | Path], *, cache: Path, seconds: float, memory_mb: int = 3072
) -> int:
    """Boot a guest, run a command as root in it, print what it prints; return its exit status.

    Args:
        command: Program and arguments, as on this machine.
        cache: Folder for the kernel.
        seconds: The guest is killed after this time.
        memory_mb: Memory of the guest.

    Raises:
        TimeoutError: The command did not end in time.
        RuntimeError: The guest ended without a result: its kernel or its init failed.
        kernel.NotAvailable: There is no kernel for it.
    """
    root = kernel.unpacked(cache / "kernel")
    with tempfile.TemporaryDirectory() as folder:
        initramfs = Path(folder, "initramfs")
        _initramfs(root, f"exec {shlex.join(map(str, command))}\n", initramfs)
        guest = subprocess.Popen(
            _command(root, initramfs, memory_mb),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )  # fmt: skip
        late = threading.Event()

        def end() -> None:
            late.set()
            guest.send_signal(signal.SIGKILL)

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            status = _follow(guest)
        finally:
            timer.cancel()
            guest.kill()
            guest.wait()
    if late.is_set():
        raise TimeoutError(f"the guest did not end within {seconds:g} s")
    if status is None:
        raise RuntimeError("the guest ended without a result: see its console above")
    return status


def _follow(guest: "subprocess.Popen[str]") -> int | None:
    """Print the guest's console until its end. Return the result that it names, or None."""
    status = None
    assert guest.stdout
    for line in guest.stdout:
        before, found, after = line.partition(_RESULT)
        if found:
            status = int(after)
        sys.stdout.write(before if found else line)
        sys.stdout.flush()
    return status
