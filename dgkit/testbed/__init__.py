# SPDX-License-Identifier: Apache-2.0
"""A virtual host and a virtual Arm DPU under QEMU, connected by Soft-RoCE.

The host has this machine's architecture and files; the DPU has Cortex-A72 cores, like a
BlueField-2, and Debian's or Ubuntu's arm64 packages. Both run a real kernel with a real RDMA stack.
Times measured in a testbed are times of an emulator.

    with dgkit.testbed.up() as bed:
        print(bed.run("dpu", ["rdma", "link"]).stdout)

testbed.py         up(), running(), Testbed
supervisor.py      process that runs the guests, and commands in them
control_socket.py  messages between a Testbed and its supervisor
guest.py           a QEMU process: devices, console, commands
qemu.py            command line of QEMU; test of KVM
bar_device.py      host RAM that is a PCI BAR of the DPU
initramfs.py       init program of a guest
guest_service.py   base of the servers in a guest
guest_pair.py      in a guest: connect() to the other one, share() descriptors with it
doorbell.py        in a guest: a queue that the host guest's kernels post to and Arm serves
agents.py          server: `dgkit serve`
ssh.py             server: SSH
jupyterlab.py      server: JupyterLab
qmp.py             QEMU's monitor: forwarded ports
images.py          images in the user's cache
wheels.py          modules of wheels for the DPU guest
guest_kernel.py    kernels and their modules
apt.py             downloads of packages
requirements.py    programs that must be installed on this machine
"""

from .doorbell import gpu_queue, serve_gpu_queue
from .guest_pair import connect, latency, receive, share
from .images import clean
from .testbed import Testbed, running, up

__all__ = [
    "Testbed",
    "clean",
    "connect",
    "gpu_queue",
    "latency",
    "receive",
    "running",
    "serve_gpu_queue",
    "share",
    "up",
]
