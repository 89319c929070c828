"""A virtual host and a virtual Arm DPU under QEMU, joined by Soft-RoCE.

The host has this machine's architecture and files; the DPU has Cortex-A72 cores, as BlueField-2
has, and Debian's or Ubuntu's arm64 packages. Both run a real kernel with a real RDMA stack. What is
measured there is an emulator's time.

    with dgkit.testbed.up() as bed:
        print(bed.run("dpu", ["rdma", "link"]).stdout)

testbed.py         up(), running(), Testbed
supervisor.py      process that holds the guests
control_socket.py  messages between the two above
guest.py           QEMU
initramfs.py       a guest's first program
service.py         servers in a guest
agents.py          `dgkit serve` in each guest
ssh.py             SSH servers
jupyterlab.py      JupyterLab
qmp.py             forwarded ports
images.py          images in the user's cache
wheels.py          dgkit for the DPU
kernel.py          kernels and their modules
apt.py             downloads of packages
requirements.py    what must be installed on this machine
"""

from .images import clean
from .testbed import Testbed, running, up

__all__ = ["Testbed", "clean", "running", "up"]
