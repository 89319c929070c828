# SPDX-License-Identifier: Apache-2.0
"""RDMA devices, and whether they can register a dma-buf."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from .. import finding, references
from ..facts import (
    bluefield,
    distribution,
    firmware,
    nvidia_proc,
    pci,
    rdma,
    topology,
    versions,
    virtual,
)
from ..facts.bluefield import Mode
from ..facts.doca import ofed
from ..facts.peermem import peermem_state
from ..facts.rdma import RdmaDevice
from ..facts.topology import Near
from ..facts.uname import uname
from ..facts.versions import Version
from ..finding import Finding, Verdict
from ..goals import BY_ARM, WITH_CARD, WITH_GPU, Goal
from ..machine import Case, Machine
from ..prerequisites import applies, missing_device, readable, reason
from ..registry import check
from ..remedies import with_devices
from ._card_settings import to_ethernet
from ._devices import any_of

_KERNEL = (5, 12)  # first kernel in which mlx5 can register a dma-buf
_SOURCE = references.RDMA_CORE("ibv_devinfo(1)")
_DMABUF = references.RDMA_DMABUF("Linux 5.12")
_GID = references.SYSFS_INFINIBAND("gid_attrs/ndevs")
_UNOPENED = references.RDMA_CORE("librdmacm: Do not fail init if one device is failing")
_SKIPS_UNOPENED = Version((38,))  # rdma-core whose librdmacm skips what it cannot open
_SUPPORTED = "registers a dma-buf"
_SOFTWARE = re.compile(r"(?:rxe|siw)")
_DEVICE = re.compile(r"(?:en|eth|wl)\w+")  # systemd's and the kernel's names of real interfaces


@check(
    "rdma-devices",
    "RDMA devices",
    asks="Which RDMA devices are present, do programs see them, and are their links up?",
    goals=WITH_CARD,
    sources=[_SOURCE],
    requires=[readable(reason(rdma.devices), "RDMA devices not read")],
)
def _rdma_devices(case: Case) -> Iterator[Finding]:
    known = case.machine.know(rdma.devices)
    if not known.devices:
        yield _no_devices(case)
        return
    visible = case.machine.know(rdma.devinfo)
    for device in known.devices:
        hidden = not visible.why and device.name not in visible.names
        found = _hidden(case, device, visible.names) if hidden else _judge_device(case, device)
        yield finding.about(device.name, found)


def _no_devices(case: Case) -> Finding:
    cards = case.machine.know(firmware.adapters)
    missing = missing_device(case.machine, "no RDMA devices, no NVIDIA NIC")
    if not cards and (case.goal is not Goal.RDMA or missing.verdict is Verdict.UNKNOWN):
        return missing
    if cards and "netns exclusive" in case.machine.read.run("rdma", "system").text:
        why = (
            "Each RDMA device is in one network namespace only (exclusive mode), none in this one."
        )
        remedy = [
            "# On the host: sudo rdma dev set mlx5_0 netns NAME; in Kubernetes: rdma-cni.",
            "# Or before other namespaces exist: sudo rdma system set netns shared",
        ]
    elif cards:
        why, remedy = without_driver(case.machine, cards[0].address)
    else:
        why = "No NIC supports RDMA. In tests, Soft-RoCE replaces it or, for programs on one "
        why += "machine and host memory, `dgkit mlx5 run -- PROGRAM`, which needs no root."
        guest = case.machine.know(virtual.virtual).is_vm
        remedy = [
            "# pass a NIC with RDMA through to this virtual machine"
            if guest
            else "# install a NIC with RDMA",
            *_soft_roce(case),
        ]
    return finding.fail("none", needed="mlx5_0 or similar", why=why, remedy=remedy)


def _soft_roce(case: Case) -> list[str]:
    """Return the commands that start RDMA in software, over the first hardware interface."""
    nets = case.machine.read.names("/sys/class/net").names
    net = next((name for name in nets if _DEVICE.match(name)), "")
    if not net:
        return []
    line = f"sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev {shlex.quote(net)}"
    return ["# for tests, in software:", line]


def _hidden(case: Case, device: RdmaDevice, visible: frozenset[str]) -> Finding:
    """Judge a device that the kernel has and libibverbs does not list."""
    others = case.machine.know(rdma.devices).devices
    has_library = any(other.model == device.model and other.name in visible for other in others)
    in_container = bool(case.machine.know(virtual.container).engine)
    if has_library:
        return _without_device_file(case, in_container=in_container)
    why = "ibv_devinfo does not list it: its provider library is missing"
    remedy = [_install_providers(case.machine)]
    if in_container:
        why += " from the container's image, or the container has no /dev/infiniband"
        remedy += with_devices(case.machine, gpu=False, infiniband=True)
    return finding.fail(
        "in the kernel, not in libibverbs", needed="both", why=f"{why}.", remedy=remedy
    )


def _without_device_file(case: Case, *, in_container: bool) -> Finding:
    found = "no file in /dev/infiniband"
    if not in_container:
        return finding.fail(
            found,
            needed="uverbs file",
            why="Others of its kind are listed: its library is here.",
            remedy=["ls -l /dev/infiniband", "sudo udevadm trigger -s infiniband_verbs"],
        )
    release = versions.rdma_core(case.machine.know(versions.libraries).version("libibverbs"))
    why = "This container was not given it."
    if release is None or not release < _SKIPS_UNOPENED:
        return finding.ok(found, why=why)
    return finding.warn(
        found,
        needed="rdma-core 38 or later",
        sources=[_UNOPENED],
        why=f"{why} librdmacm of rdma-core {release} then finds no device at all (ENODEV); "
        "verbs without librdmacm work.",
        remedy=["# In the container's image: rdma-core 38 or later; or give it all device files."],
    )


def _install_providers(machine: Machine) -> str:
    """Return how to install the provider libraries, where the program runs."""
    command = distribution.install_command(machine, "ibverbs-providers", "rdma-core libibverbs")
    if machine.know(virtual.container).engine:
        return f"# In the container's image, not on the host: {command.removeprefix('sudo ')}"
    if machine.know(ofed).installed:
        return "# Reinstall MLNX_OFED's rdma-core: the distribution's does not fit its libibverbs."
    return command


def _judge_device(case: Case, device: RdmaDevice) -> Finding:
    ports = ", ".join(f"{p.link_layer} {p.state}" for p in device.ports) or "no ports"
    if device.why and not (device.address and device.active):
        why = f"{device.why.rstrip('.')}."
        return finding.unknown("not read", why=why)
    if device.software:
        over = f" over {device.parent}" if device.parent else ""
        others = case.machine.know(rdma.devices).devices
        alone = all(other.software for other in others)
        make = finding.warn if case.goal is Goal.RDMA and alone else finding.ok
        why = "RDMA in software is suitable for tests, but does not support GPU memory."
        return make(f"in software{over}", why=why)
    if device.active and case.goal not in BY_ARM and (found := _without_gid(case, device)):
        return found
    if device.active or case.goal in BY_ARM:
        why = "" if device.active else "DMA over PCIe needs no link."
        return finding.ok(ports, why=why)
    others = case.machine.know(rdma.devices).devices
    if _is_nearest(case, device):
        why = "It has no link, and no device that has one is as near to a GPU: bytes go between "
        why += "host bridges, slower."
        return finding.warn(ports, needed="ACTIVE", why=why, remedy=_plug_in(case.machine, device))
    if any(other.active and not other.software for other in others):
        why = "It has no link; another device has one."
        return finding.ok(ports, why=why)
    return finding.warn(
        ports,
        needed="ACTIVE",
        why="No port has a link, so it reaches no other machine.",
        remedy=_plug_in(case.machine, device),
    )


def _without_gid(case: Case, device: RdmaDevice) -> Finding | None:
    """Return the finding if no GID of an active Ethernet port is of this network namespace."""
    owners = _gid_owners(case.machine, device)
    here = frozenset(case.machine.read.names("/sys/class/net").names)
    if owners is None or not here or owners & here:
        return None
    why = "Queue pairs cannot connect (ibv_modify_qp: No such device, or Invalid argument): "
    if owners:
        why += f"its GIDs belong to {', '.join(sorted(owners)[:2])}, in another network namespace."
    else:
        why += "the port has no GID."
    others = case.machine.know(rdma.devices).devices
    own = [one.name for one in others if (_gid_owners(case.machine, one) or frozenset()) & here]
    make = finding.warn if own else finding.fail
    return make(
        "no GID in this network namespace", needed="a GID", why=why,
        remedy=[*_only(own), *_own_gid(case.machine, device)], sources=[_GID],
    )  # fmt: skip


def _gid_owners(machine: Machine, device: RdmaDevice) -> frozenset[str] | None:
    """Return the network interfaces of the GIDs of active Ethernet ports; None if not known."""
    active = [port for port in device.ports if port.state == "ACTIVE"]
    known = [rdma.gid_nets(machine, device.name, port.number) for port in active]
    if not active or any(port.link_layer != "Ethernet" for port in active) or None in known:
        return None
    return frozenset(net for of_port in known for net in of_port or ())


def _only(names: list[str]) -> list[str]:
    """Return the variables that limit programs to the devices that have a GID here."""
    if not names:
        return []
    ports = ",".join(f"{name}:1" for name in names)
    return [f"export NCCL_IB_HCA=={','.join(names)} UCX_NET_DEVICES={ports}  # those with a GID"]


def _own_gid(machine: Machine, device: RdmaDevice) -> list[str]:
    engine = machine.know(virtual.container).engine
    if engine == "Kubernetes":
        return ["# In the pod: hostNetwork: true, or the NIC's interface as a second network."]
    if engine:
        return ["# Start the container in the host's network, with the option --network=host."]
    return [
        *_bring_up(device),
        "# It has a GID as soon as its interface is in this network namespace.",
    ]


def _is_nearest(case: Case, device: RdmaDevice) -> bool:
    """Return whether the only devices near a GPU have no link."""
    tree, known = case.machine.know(pci.tree), case.machine.know(rdma.devices).devices
    if case.machine.know(virtual.virtual).is_vm or not device.address:
        return False
    active = [d.address for d in known if d.active and d.address in tree.devices]
    far = bool(active) and all(
        topology.path(tree, gpu.address, address).near > Near.PHB
        for gpu in tree.gpus
        for address in active
    )
    return (
        far
        and device.address in tree.devices
        and any(
            topology.path(tree, gpu.address, device.address).near <= Near.PHB for gpu in tree.gpus
        )
    )


def _plug_in(machine: Machine, device: RdmaDevice) -> list[str]:
    if "InfiniBand" not in {port.link_layer for port in device.ports}:
        return ["# plug in the cable, and check the switch port", *_bring_up(device)]
    return [
        "# plug in the cable, and check the switch port",
        "sudo ibstat",
        "# an InfiniBand port becomes ACTIVE through a subnet manager: start opensm",
        *to_ethernet(machine, device.address),
    ]


def _bring_up(device: RdmaDevice) -> list[str]:
    return [f"sudo ip link set {shlex.quote(net)} up" for net in device.nets[:1]]


@check(
    "rdma-dmabuf",
    "RDMA regions of a dma-buf",
    asks="Can the RDMA devices register a dma-buf, as which GPU memory is shared with them?",
    goals=WITH_GPU,
    sides=("host",),
    sources=[_DMABUF],
    requires=[
        readable(reason(rdma.devices), "RDMA devices not read"),
        applies(lambda case: case.machine.know(rdma.devices).devices, "no RDMA devices"),
    ],
)
def _rdma_dmabuf(case: Case) -> Iterator[Finding]:
    known = case.machine.know(rdma.devices)
    kinds: dict[tuple[str, bool], list[RdmaDevice]] = {}
    for device in known.devices:  # support depends on the driver: test one device of each kind
        kinds.setdefault((device.model, device.software), []).append(device)
    case.machine.read.together([f"probe rdma-dmabuf {kind[0].name}" for kind in kinds.values()])
    yield from any_of([_judge_dmabuf(case, kind) for kind in kinds.values()])


def _judge_dmabuf(case: Case, kind: list[RdmaDevice]) -> Finding:
    reading = case.machine.read.probe("rdma-dmabuf", kind[0].name)
    answer = reading.data if isinstance(reading.data, dict) else {}
    takes, errno = answer.get("takes"), str(answer.get("errno") or "")
    about = ", ".join(device.name for device in kind)
    if takes is True:
        return finding.ok(_SUPPORTED, subject=about)
    if takes is False:
        return _judge_refused(case, kind[0], about, errno)
    why = reading.why or str(answer.get("why") or "") or "the probe gave no answer"
    return finding.unknown(
        f"not tested{f' ({errno})' if errno else ''}",
        needed=_SUPPORTED,
        why=why,
        subject=about,
        remedy=[distribution.as_root("rdma-dmabuf")],
    )


def _judge_refused(case: Case, device: RdmaDevice, about: str, errno: str) -> Finding:
    """Judge a device that the probe asked to register a dma-buf, and that refused."""
    found = f"refuses it{f' ({errno})' if errno else ''}"
    if device.software or _SOFTWARE.match(device.name):
        why = "Soft-RoCE and Soft-iWARP of Linux cannot register a dma-buf."
        return finding.warn(
            found, needed=_SUPPORTED, why=why, subject=about,
            remedy=["# use host memory on this device, or a ConnectX for GPU memory"],
        )  # fmt: skip
    linux = case.machine.know(uname)
    if case.machine.know(peermem_state) == "loaded":
        return finding.n_a(f"{found}; nvidia-peermem is loaded instead")
    if () < linux.version < _KERNEL:  # (): not known
        why = f"Linux {linux.release} is older than 5.12, from which mlx5 supports it."
    else:
        why = "The driver does not support it, or libibverbs is older than rdma-core 34."
    return finding.warn(
        found,
        needed=_SUPPORTED,
        why=f"{why} The alternative is nvidia-peermem.",
        subject=about,
        remedy=[
            "# How to load it: dgkit doctor peermem",
            "# permanently: Linux 5.12 and rdma-core 34 or later",
        ],
        sources=[_DMABUF, references.RDMA_CORE("debian/libibverbs1.symbols")],
    )


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
