"""Virtual machines with Soft-RoCE that run a command.

QEMU emulates them: whatever is measured inside is no figure. A guest's files come over 9p, read
only. Those of a guest of this machine's architecture are this machine's: what is built and
installed here runs there, with another kernel and a device that this machine does not have.
"""

from __future__ import annotations

import functools
import lzma
import platform
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

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
[ -e /sys/class/net/eth0 ] && port=eth0 || port=dgkit0
[ $port = eth0 ] || ip link add $port type dummy || exit 90
ip addr add ADDRESS/24 dev $port && ip link set $port up || exit 91
rdma link add rxe0 type rxe netdev $port || exit 92
ulimit -l unlimited
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a guest is made of.

    Attributes:
        kind: Its architecture, as platform.machine() names it.
        files: Folder that is its root.
        kernel: Folder of kernel.unpacked().
        busybox: Static program for its init.
    """

    kind: str
    files: Path
    kernel: Path
    busybox: Path


@dataclass(frozen=True, slots=True)
class Wire:
    """One end of a network cable: two Unix sockets, so no port is taken and no order needed."""

    own: Path
    other: Path
    mac: str


def this_machine(cache: Path) -> Machine:
    """Return a guest with this machine's architecture and files.

    Raises:
        kernel.NotAvailable: There is no kernel for it.
    """
    command = ["dpkg", "--print-architecture"]
    name = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    busybox = Path(shutil.which("busybox") or "busybox")
    root = kernel.unpacked(cache / f"kernel-{name}", name)
    return Machine(platform.machine(), Path("/"), root, busybox)


def _module(path: Path) -> tuple[str, bytes]:
    """Return the name and the bytes of a module, which a distribution may have compressed."""
    if path.suffix == ".xz":
        return path.stem, lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        command = ["zstd", "-dcq", path]
        return path.stem, subprocess.run(command, capture_output=True, check=True).stdout
    return path.name, path.read_bytes()


def _initramfs(machine: Machine, script: str, folder: Path) -> Path:
    """Return an initramfs with the modules, a static busybox and what the guest runs."""
    tree, out = folder / "tree", folder / "initramfs"
    (tree / "modules").mkdir(parents=True)
    loaded = []
    for path in kernel.modules(machine.kernel):
        name, content = _module(path)
        (tree / "modules" / name).write_bytes(content)
        loaded.append(name)
    (tree / "modules/order").write_text("\n".join(loaded))
    shutil.copy(machine.busybox, tree / "busybox")
    (tree / "command").write_text(script)
    (tree / "init").write_text(_INIT)
    (tree / "init").chmod(0o755)
    files = "\n".join(str(path.relative_to(tree)) for path in tree.rglob("*"))
    with out.open("wb") as archive:
        command = ["cpio", "--quiet", "-o", "-H", "newc"]
        subprocess.run(command, cwd=tree, input=files.encode(), stdout=archive, check=True)
    return out


def _network(wire: Wire | None) -> list[str]:
    if not wire:
        return ["-nic", "none"]
    ends = f"local.type=unix,local.path={wire.own},remote.type=unix,remote.path={wire.other}"
    card = f"virtio-net-pci,netdev=wire,mac={wire.mac},romfile="
    return ["-netdev", f"dgram,id=wire,{ends}", "-device", card]


def _command(machine: Machine, initramfs: Path, memory_mb: int, wire: Wire | None) -> list[str]:
    arguments = f"console={_CONSOLES[machine.kind]} quiet panic=-1 mitigations=off"
    files = f"local,id=files,path={machine.files},security_model=none,readonly=on,multidevs=remap"
    return [
        *_MACHINES[machine.kind], "-accel", "tcg,thread=multi", "-smp", "2", "-m", str(memory_mb),
        "-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot", *_network(wire),
        "-kernel", str(kernel.image(machine.kernel)), "-initrd", str(initramfs),
        "-append", arguments,
        "-fsdev", files, "-device", "virtio-9p-pci,fsdev=files,mount_tag=files",
    ]  # fmt: skip


class Guest:
    """Running guest; killed at the end of its `with` statement.

    Args:
        machine: What it is made of.
        script: Shell commands that it runs as root, with an RDMA device rxe0.
        seconds: It is killed after this time.
        memory_mb: Its memory.
        address: IPv4 address of its RDMA device.
        wire: Network to another guest; None: only with itself.
    """

    def __init__(
        self,
        machine: Machine,
        script: str,
        *,
        seconds: float,
        memory_mb: int = 3072,
        address: str = "10.9.0.1",
        wire: Wire | None = None,
    ) -> None:
        self._name = machine.kind
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._status: int | None = None
        self._folder = tempfile.TemporaryDirectory()
        text = _SETUP.replace("ADDRESS", address) + script
        initramfs = _initramfs(machine, text, Path(self._folder.name))
        self._process = subprocess.Popen(
            _command(machine, initramfs, memory_mb, wire),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )  # fmt: skip
        self._console = threading.Thread(target=self._follow)
        self._console.start()

    def __enter__(self) -> Guest:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._console.join()
        self._folder.cleanup()

    def _follow(self) -> None:
        """Print the console until its end; keep the result that it names."""
        assert self._process.stdout
        for line in self._process.stdout:
            before, found, after = line.partition(_RESULT)
            if found:
                self._status = int(after)
            print(f"{self._name} | {before.rstrip()}", flush=True)

    def wait(self) -> int:
        """Wait until it has ended; return the exit status of its script.

        Raises:
            TimeoutError: It did not end in time.
            RuntimeError: It ended without a result: its kernel or its init failed.
        """
        try:
            self._process.wait(max(0.0, self._end - time.monotonic()))
        except subprocess.TimeoutExpired:
            text = f"the {self._name} guest did not end within {self._seconds:g} s"
            raise TimeoutError(text) from None
        self._console.join()
        if self._status is None:
            raise RuntimeError(f"the {self._name} guest ended without a result: see its console")
        return self._status


def run(machine: Machine, command: Sequence[str | Path], *, seconds: float) -> int:
    """Run a command as root in a guest, print what it prints; return its exit status."""
    script = f"exec {shlex.join(map(str, command))}\n"
    with Guest(machine, script, seconds=seconds) as guest:
        return guest.wait()


def run_pair(
    first: tuple[Machine, str], second: tuple[Machine, str], *, seconds: float
) -> tuple[int, int]:
    """Run two guests on one network, 10.9.0.1 and 10.9.0.2; return what their scripts exit with."""
    with tempfile.TemporaryDirectory() as folder:
        ends = Path(folder, "1"), Path(folder, "2")
        wires = Wire(*ends, "52:54:00:00:00:01"), Wire(*reversed(ends), "52:54:00:00:00:02")
        start = functools.partial(Guest, seconds=seconds, memory_mb=1024)
        with (
            start(*first, address="10.9.0.1", wire=wires[0]) as one,
            start(*second, address="10.9.0.2", wire=wires[1]) as other,
        ):
            return one.wait(), other.wait()
