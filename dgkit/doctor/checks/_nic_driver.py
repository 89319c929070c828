"""Why a NIC has no RDMA device: its driver, or the Arm cores that it waits for."""

from __future__ import annotations

from ..facts import bluefield, nvidia_proc, pci
from ..facts.bluefield import Mode
from ..facts.ofed import ofed
from ..machine import Machine

_FIRST_MLX5 = 0x1011  # device id of the Connect-IB; those below are of mlx4


def without_driver(machine: Machine, address: str) -> tuple[str, list[str]]:
    """Return a sentence on why a NIC has no RDMA device, and the remedy."""
    device = machine.know(pci.tree).devices.get(address)
    driver = device.driver if device is not None else ""
    if driver and not driver.startswith("mlx"):
        why = f"There is a NIC, and {driver} holds it, so that it has no RDMA device here."
        return why, [f"# Use it where {driver} gives it to, or give it back to its own driver."]
    old = device is not None and 0x1000 < device.device < _FIRST_MLX5
    family = "mlx4" if driver.startswith("mlx4") or old else "mlx5"
    module = f"{family}_ib" if driver else f"{family}_core"
    why = "the kernel has no RDMA device for it" if driver else "no driver holds it"
    loaded = _is_loaded(machine, module)
    if loaded and not driver and _waits_for_arm(machine, address):
        why = "No driver holds the BlueField's functions. In DPU mode, mlx5_core of the host waits "
        why += "until the Arm cores have started."
        return why, _start_arm(machine, address)
    if loaded:
        why = f"There is a NIC, and {why}, although {module} is loaded: its messages say why."
        return why, [f"sudo dmesg | grep {family}"]
    state = "is not loaded" if loaded is False else "may not be loaded (/proc/modules was not read)"
    ofed_starts = not driver and machine.know(ofed).installed
    start = "sudo /etc/init.d/openibd start" if ofed_starts else f"sudo modprobe {family}_ib"
    return f"There is a NIC, but {why}: {module} {state}.", [start]


def _is_loaded(machine: Machine, module: str) -> bool | None:
    """Return whether a module is loaded or built into the kernel; None if that is not known."""
    if machine.read.names(f"/sys/module/{module}").ok:
        return True
    loaded = machine.know(nvidia_proc.modules)
    return None if loaded is None else module in loaded


def _waits_for_arm(machine: Machine, address: str) -> bool:
    """Return whether the NIC is a BlueField in DPU mode, seen from the host."""
    if machine.know(bluefield.side) == "dpu":
        return False
    by_rshim = machine.know(bluefield.rshim).get(address.rpartition(".")[0])
    modes = [
        bluefield.mode(known)
        for c, known in machine.know(bluefield.configs)
        if c.address == address
    ]
    return Mode.DPU in (by_rshim, *modes)


def _start_arm(machine: Machine, address: str) -> list[str]:
    """Return how to see whether the Arm cores have started, and what gives the NIC its driver."""
    names = machine.know(bluefield.rshim_devices)
    look = [
        f"echo 'DISPLAY_LEVEL 2' | sudo tee /dev/{n}/misc && sudo cat /dev/{n}/misc"
        for n in names[:1]
    ]
    return [
        *look,
        "# Once its messages say that Linux is up:",
        f"echo {address} | sudo tee /sys/bus/pci/drivers/mlx5_core/bind",
        "# If it never is: a BF-FW-bundle has firmware only, a BF-bundle has the system, too.",
    ]
