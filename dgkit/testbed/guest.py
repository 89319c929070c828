# SPDX-License-Identifier: Apache-2.0
"""One guest: a QEMU process with an image, killed when the thread that started it ends."""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import subprocess
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..wire.essential import essential_thread
from . import bar_device
from .images import Image
from .initramfs import CHANNELS
from .qemu import CONSOLES, qemu, vcpus
from .qmp import Monitor

ADDRESSES = {"host": "10.9.0.1", "dpu": "10.9.0.2"}  # in a network of only these two guests
EXCHANGE = "exchange"  # folder through which programs of the guests find each other (guest_pair.py)
NOTEBOOKS = "notebooks"  # folder of this machine that a guest's JupyterLab writes to
MANAGEMENT = "10.0.2.15"  # of each guest, in a QEMU network reachable only by forwarded ports
_MACS = {"host": "52:54:00:00:00:01", "dpu": "52:54:00:00:00:02"}
_MANAGEMENT_MAC = "52:54:00:00:00:03"
# Arguments of an emulated x86-64 kernel, of its Documentation/admin-guide/kernel-parameters.txt.
# Its test of the timer may see interrupts too late, which is a panic at boot ("IO-APIC + timer
# doesn't work"). Its test of the time-stamp counters fails, after which each look at the clock
# reads an emulated device, the HPET; QEMU has one counter for all vCPUs. Feature 112, rep_good, has
# it copy and clear memory by instructions that emulation repeats word by word.
_EMULATED = " no_timer_check tsc=reliable clearcpuid=112"
_LINES, _LINE = 400, 4000  # console lines that are kept; characters of one
_TEXT = 1 << 16  # last characters of them that are sent, in one message
_LAST_LINES_S = 5.0


@dataclass(frozen=True, slots=True)
class Channel:
    """Two virtio-serial ports of a guest: a command's standard output and standard error."""

    output: socket.socket
    errors: socket.socket


class Guest:
    """Running guest.

    Args:
        name: host or dpu.
        memory: Its memory in bytes.
        wire: Network to the other guest: one end of a stream socket pair. The constructor closes
            it in this process.
        folders: Folders of this machine that the guest sees in /run, keys are their names there;
            read-only, but for EXCHANGE and NOTEBOOKS.
        services: Servers that run in the guest. If there are any, the guest has a management
            network and a monitor.
        bar_fd: Memfd of the host's RAM that is a PCI BAR of the DPU; None without a BAR.

    Attributes:
        monitor: QEMU's monitor, or None.
    """

    def __init__(
        self,
        name: str,
        image: Image,
        *,
        memory: int,
        wire: socket.socket,
        folders: Mapping[str, Path],
        services: int,
        bar_fd: int | None = None,
    ) -> None:
        self.name = name
        self.image = image
        self.state = "starting"
        self._count = CHANNELS + services
        self._console: deque[str] = deque(maxlen=_LINES)
        self._bar = bar_fd
        self._fds: list[int] = [wire.fileno(), *([] if bar_fd is None else [bar_fd])]
        self._theirs = [wire]
        devices: list[str] = []
        self.control = self._port("control", devices)
        self._channels = [
            Channel(self._port(f"output.{n}", devices), self._port(f"errors.{n}", devices))
            for n in range(self._count)
        ]
        self.free: queue.SimpleQueue[Channel] = queue.SimpleQueue()
        for channel in self._channels:
            self.free.put(channel)
        self.monitor = self._monitor(devices) if services else None
        command = [*self._machine(memory, folders), *self._files(folders), *devices]
        command += _network("wire", f"socket,id=wire,fd={wire.fileno()}", _MACS[name])
        if services:  # added after the network to the other guest, so that this network is eth1
            options = "user,id=management,restrict=on,ipv6=off"
            command += _network("management", options, _MANAGEMENT_MAC)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", pass_fds=self._fds, start_new_session=True,
        )  # fmt: skip
        for end in self._theirs:
            end.close()
        self._reader = essential_thread(f"dgkit-console-{name}", self._follow)
        self._reader.start()

    def _port(self, name: str, devices: list[str]) -> socket.socket:
        """Return this side's end of a virtio-serial port, and add its devices."""
        if not devices:
            devices += ["-device", "virtio-serial-pci"]
        ours, theirs = socket.socketpair()
        self._fds.append(theirs.fileno())
        self._theirs.append(theirs)
        devices += ["-chardev", f"socket,id={name},fd={theirs.fileno()}"]
        devices += ["-device", f"virtserialport,chardev={name},name=dgkit.{name}"]
        return ours

    def _monitor(self, devices: list[str]) -> Monitor:
        ours, theirs = socket.socketpair()
        self._fds.append(theirs.fileno())
        self._theirs.append(theirs)
        devices += ["-chardev", f"socket,id=monitor,fd={theirs.fileno()}"]
        devices += ["-mon", "chardev=monitor,mode=control"]
        return Monitor(ours)

    def _machine(self, memory: int, folders: Mapping[str, Path]) -> list[str]:
        kind = self.image.machine
        words = f"console={CONSOLES[kind]} quiet panic=-1 mitigations=off"
        if kind == "x86_64" and not self.image.kvm:
            words += _EMULATED
        values = {"name": self.name, "address": ADDRESSES[self.name], "channels": self._count}
        values |= dict.fromkeys(folders, 1) | ({"management": MANAGEMENT} if self.monitor else {})
        words += "".join(f" dgkit.{name}={value}" for name, value in values.items())
        ram: list[str] = []
        devices: list[str] = []
        if self._bar is not None and self.name == "host":
            memory = memory >> 20 << 20  # QEMU requires whole MiB
            words += bar_device.words(memory)
            ram = bar_device.ram(memory, self._bar)
        elif self._bar is not None:
            devices = bar_device.device(self._bar)
        return [
            *qemu(kind, self.image.kernel, words, kvm=self.image.kvm, memory=memory, ram=ram),
            "-smp", str(vcpus()), "-initrd", str(self.image.initramfs), *devices,
        ]  # fmt: skip

    def _files(self, folders: Mapping[str, Path]) -> list[str]:
        """Return the arguments for the guest's root and its folders."""
        words: list[str] = []
        for name, path in {"files": self.image.files, **folders}.items():
            text = str(path).replace(",", ",,")
            readonly = "off" if name in (EXCHANGE, NOTEBOOKS) else "on"
            options = f"path={text},security_model=none,readonly={readonly},multidevs=remap"
            words += ["-fsdev", f"local,id={name},{options}"]
            words += ["-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]
        return words

    def _follow(self) -> None:
        """Read the console until its end, and keep the last lines, or parts of them."""
        assert self._process.stdout
        while line := self._process.stdout.readline(_LINE):
            self._console.append(line.rstrip())

    @property
    def pid(self) -> int:
        """Process id of QEMU."""
        return self._process.pid

    def console(self) -> str:
        """Return the last lines of the console."""
        return "\n".join(self._console.copy())[-_TEXT:]

    def kill(self, mark: str) -> None:
        """End the command with this mark."""
        self.control.sendall(f"kill {mark}\n".encode())

    def ended(self) -> None:
        """Read the rest of the console and end running commands, after QEMU has ended."""
        self._process.kill()
        self._process.wait()
        self._reader.join(_LAST_LINES_S)
        for channel in self._channels:
            for port in (channel.output, channel.errors):
                with contextlib.suppress(OSError):  # QEMU has closed its end
                    port.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the guest."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout
        self._process.stdout.close()

    @staticmethod
    def mark() -> str:
        """Return a random mark, which no command prints by chance."""
        return secrets.token_hex(16)


def _network(name: str, options: str, mac: str) -> list[str]:
    """Return the arguments for a network interface."""
    device = f"virtio-net-pci,netdev={name},mac={mac},romfile="
    return ["-netdev", options, "-device", device]
