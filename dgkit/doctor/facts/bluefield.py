# SPDX-License-Identifier: Apache-2.0
"""BlueField DPUs, seen from the host or from their Arm cores."""

from __future__ import annotations

import re
from enum import Enum

import msgspec

from ...json_input import read_json
from ..machine import Machine
from . import firmware, mlxconfig
from .firmware import Adapter
from .mlxconfig import Config
from .uname import uname


def side(machine: Machine) -> str:
    """Return `dpu` or `host`.

    NVIDIA's BlueField image has the file /etc/mlnx-release and a kernel named `..-bluefield`. The
    DMI tables of the Arm side name the product, and it has platform devices MLNXBF.. (Linux,
    drivers/platform/mellanox).
    """
    release, product, platform = machine.read.together(
        [
            "text /etc/mlnx-release",
            "text /sys/class/dmi/id/product_name",
            "names /sys/bus/platform/devices",
        ]
    )
    system = machine.know(uname)
    named = "bluefield" in f"{product.text} {system.release}".lower()
    devices = any(name.startswith("MLNXBF") for name in platform.names)
    return "dpu" if system.arm and (release.ok or named or devices) else "host"


# The settings that determine the mode.
MODE = (
    "INTERNAL_CPU_MODEL",
    "INTERNAL_CPU_PAGE_SUPPLIER",
    "INTERNAL_CPU_ESWITCH_MANAGER",
    "INTERNAL_CPU_IB_VPORT0",
    "INTERNAL_CPU_OFFLOAD_ENGINE",
)
# Settings for accurate send scheduling, required by the GPUNetIO guide.
TX_SCHEDULING = ("ACCURATE_TX_SCHEDULER", "REAL_TIME_CLOCK_ENABLE")
QUERIED = ("LINK_TYPE_P1", "LINK_TYPE_P2", *MODE, *TX_SCHEDULING)
# Settings that keep a link up, by link type; required by the GPUNetIO guide for a ConnectX.
KEEP_LINK_UP = ("KEEP_ETH_LINK_UP_P1", "KEEP_IB_LINK_UP_P1")
LINKS = ("LINK_TYPE_P1", *KEEP_LINK_UP, *TX_SCHEDULING)


class Mode(Enum):
    """BlueField mode of operation: who owns the NIC (NVIDIA, BlueField modes of operation)."""

    DPU = "DPU mode"
    NIC = "NIC mode"
    SEPARATED = "separated hosts"
    UNKNOWN = "?"

    def __str__(self) -> str:
        return self.value


class Representor(msgspec.Struct, frozen=True):
    """Representor of a port of the embedded switch.

    The port of the host's function 0 is called c1pf0, as it belongs to an external controller
    (Linux, devlink-port), or pf0 in kernels without controllers. With NVIDIA's naming rules, the
    interface is called pf0hpf in both cases.

    Attributes:
        net: Network interface.
        port: Name of the represented port (phys_port_name); p0 is an uplink.
    """

    net: str
    port: str

    @property
    def host(self) -> bool:
        """True if the representor is of a function of the host."""
        return bool(_HOST.fullmatch(self.port) or _HOST.fullmatch(self.net))


_HOST = re.compile(r"(?:c[1-9]\d*)?pf\d+(?:hpf)?")


class Tmfifo(msgspec.Struct, frozen=True):
    """Network between the host and the Arm cores over rshim.

    Attributes:
        nets: Interfaces, such as tmfifo_net0.
        addresses: Their IPv4 addresses with prefix length; None if unknown.
        why: Reason why something is unknown.
    """

    nets: tuple[str, ...] = ()
    addresses: tuple[str, ...] | None = None
    why: str = ""


def cards(machine: Machine) -> tuple[Adapter, ...]:
    """Return the BlueFields, sorted by address."""
    return tuple(card for card in machine.know(firmware.adapters) if card.bluefield)


def configs(machine: Machine) -> tuple[tuple[Adapter, Config], ...]:
    """Return each BlueField with its settings from mlxconfig."""
    found = cards(machine)
    settings = mlxconfig.queries(machine, [card.address for card in found], QUERIED)
    return tuple(zip(found, settings, strict=True))


def settings_tool(machine: Machine) -> str:
    """Return the program that changes settings of cards: mlxconfig or mstconfig, "" for neither.

    Return mlxconfig if there is no card or no query was recorded.
    """
    cards = machine.know(firmware.adapters)
    if not cards:
        return "mlxconfig"
    names = QUERIED if cards[0].bluefield else LINKS
    found = mlxconfig.query(machine, cards[0].address, names)
    return found.tool or ("" if found.fault == "absent" else "mlxconfig")


def mode(settings: Config, *, after: bool = False) -> Mode:
    """Return the current mode or, with `after`, the mode after the next power cycle."""
    read = settings.next if after else settings.now
    if read("INTERNAL_CPU_MODEL") == 0:
        return Mode.SEPARATED
    engine = read("INTERNAL_CPU_OFFLOAD_ENGINE")
    if engine is None:
        return Mode.UNKNOWN
    return Mode.NIC if engine == 1 else Mode.DPU


def rshim_devices(machine: Machine) -> tuple[str, ...]:
    """Return the names in /dev of the cards that the rshim driver serves, such as `rshim0`."""
    names = machine.read.names("/dev").names
    return tuple(name for name in names if re.fullmatch(r"rshim\d+", name))


def rshim(machine: Machine) -> dict[str, Mode]:
    """Return the modes reported by the rshim driver, by PCI address without the function.

    /dev/rshim0/misc has a line `BF_MODE  DPU mode` since rshim 2.1 (rshim(8)); only root can read
    it.
    """
    paths = [f"text /dev/{name}/misc" for name in machine.know(rshim_devices)]
    found = {}
    for reading in machine.read.together(paths):
        lines = (line.split(None, 1) for line in reading.text.splitlines())
        fields = {words[0]: words[1].strip() for words in lines if len(words) == 2}
        match = re.search(r"(?<![0-9a-f:])([0-9a-f:]+)\.[0-7]", fields.get("DEV_NAME", ""))
        if match:
            address = match[1] if match[1].count(":") == 2 else f"0000:{match[1]}"
            found[address] = _MODES.get(fields.get("BF_MODE", "").lower(), Mode.UNKNOWN)
    return found


def rshim_runs(machine: Machine) -> bool:
    """Return whether systemd runs rshim's service on the host."""
    return machine.read.run("systemctl", "is-active", "rshim").text.strip() == "active"


def zero_trust_card(arm: Machine | None) -> Adapter | None:
    """Return the card of a DPU on which host privileges are restricted (zero-trust mode)."""
    if arm is None:
        return None
    for card in arm.know(cards):
        reading = arm.read.run("mlxprivhost", "-d", card.address, "q")
        if re.search(r"^[ \t]*level[ \t]*:[ \t]*RESTRICTED", reading.text, re.MULTILINE):
            return card
    return None


_MODES = {"dpu mode": Mode.DPU, "nic mode": Mode.NIC}


def representors(machine: Machine) -> tuple[Representor, ...]:
    """Return the representors on the Arm side of a DPU.

    The result is meaningful only on a DPU: a host's own interfaces may be called p0 and p1, too.
    """
    nets = machine.read.names("/sys/class/net").names
    ports = machine.read.together([f"text /sys/class/net/{net}/phys_port_name" for net in nets])
    pairs = zip(nets, (port.text.strip() for port in ports), strict=True)
    return tuple(
        Representor(net, port) for net, port in pairs if re.fullmatch(r"(?:c\d+)?p[f]?\d+\w*", port)
    )


def tmfifo(machine: Machine) -> Tmfifo:
    """Return the tmfifo interfaces and their addresses."""
    listing = machine.read.names("/sys/class/net")
    nets = tuple(net for net in listing.names if net.startswith("tmfifo_net"))
    if not nets:
        return Tmfifo(why="" if listing.ok or listing.absent else listing.why)
    reading = machine.read.run("ip", "-j", "addr", "show")
    by_net = addresses(reading.text)
    if by_net is None:
        return Tmfifo(nets, why=reading.why or "ip -j addr show printed no JSON")
    return Tmfifo(nets, tuple(address for net in nets for address in by_net.get(net, ())))


def addresses(text: str) -> dict[str, tuple[str, ...]] | None:
    """Parse `ip -j addr show`: IPv4 addresses by interface; None if malformed."""
    try:
        links = read_json(text)
        return {
            str(link["ifname"]): tuple(
                f"{info['local']}/{info['prefixlen']}"
                for info in link.get("addr_info", ())
                if info.get("family") == "inet"
            )
            for link in links
            if "ifname" in link
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
