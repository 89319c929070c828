# SPDX-License-Identifier: Apache-2.0
"""RDMA devices, network interfaces, and the settings of a card's firmware.

In the drawing of the tree, a function of a NIC has `rdma=mlx5_0`, `net=ens6f0np0`, and `down` if
its port has no link.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from doctor.synthetic_machines.tree import Node

from dgkit.doctor.collect.reader import Reading

_IB, _NET = "/sys/class/infiniband", "/sys/class/net"
_SPEED = {"bf2": 100, "bf3": 200, "cx6": 200, "cx6dx": 100, "cx7": 400, "cx7-spark": 200}
_DESCRIBED = {
    "bf2": (
        "BlueField2",
        "MBF2H516A-CEEO_Ax_Bx",
        "BlueField-2 DPU 100GbE Dual-Port QSFP56; PCIe Gen4 x16; 16GB on-board DDR",
    ),
    "bf3": (
        "BlueField3",
        "900-9D3B6-00CV-A_Ax",
        "NVIDIA BlueField-3 B3220 P-Series FHHL DPU; 200GbE (default mode) / NDR200 IB",
    ),
    "cx6": ("ConnectX6", "MCX653105A-HDA_Ax", "ConnectX-6 VPI adapter card; HDR IB; single-port"),
    "cx6dx": (
        "ConnectX6DX",
        "MCX623106AN-CDA_Ax",
        "ConnectX-6 Dx EN adapter card; 100GbE; Dual-port",
    ),
    "cx7": ("ConnectX7", "MCX75310AAS-NEA_Ax", "NVIDIA ConnectX-7 HHHL Adapter card; 400GbE"),
    "cx7-spark": ("ConnectX7", "P4242_Ax", "ConnectX-7 200GbE Dual-port QSFP112"),
}
# What mlxconfig prints of a BlueField whose Arm cores own the ports, and of one that is a NIC.
DPU_MODE = {
    "INTERNAL_CPU_MODEL": "EMBEDDED_CPU(1)",
    "INTERNAL_CPU_PAGE_SUPPLIER": "ECPF(0)",
    "INTERNAL_CPU_ESWITCH_MANAGER": "ECPF(0)",
    "INTERNAL_CPU_IB_VPORT0": "ECPF(0)",
    "INTERNAL_CPU_OFFLOAD_ENGINE": "ENABLED(0)",
    "INTERNAL_CPU_RSHIM": "ENABLED(0)",
}
NIC_MODE = {
    "INTERNAL_CPU_MODEL": "EMBEDDED_CPU(1)",
    "INTERNAL_CPU_PAGE_SUPPLIER": "EXT_HOST_PF(1)",
    "INTERNAL_CPU_ESWITCH_MANAGER": "EXT_HOST_PF(1)",
    "INTERNAL_CPU_IB_VPORT0": "EXT_HOST_PF(1)",
    "INTERNAL_CPU_OFFLOAD_ENGINE": "DISABLED(1)",
    "INTERNAL_CPU_RSHIM": "ENABLED(0)",
}
# As dgkit asks: a BlueField for its mode, other NICs for what keeps their link up.
_SENDING = ("ACCURATE_TX_SCHEDULER", "REAL_TIME_CLOCK_ENABLE")
_ASKED_DPU = (
    *("LINK_TYPE_P1", "LINK_TYPE_P2", "INTERNAL_CPU_MODEL", "INTERNAL_CPU_PAGE_SUPPLIER"),
    *("INTERNAL_CPU_ESWITCH_MANAGER", "INTERNAL_CPU_IB_VPORT0", "INTERNAL_CPU_OFFLOAD_ENGINE"),
    *_SENDING,
)
_ASKED_NIC = ("LINK_TYPE_P1", "KEEP_ETH_LINK_UP_P1", "KEEP_IB_LINK_UP_P1", *_SENDING)
_LINKS = {
    "LINK_TYPE_P1": "ETH(2)",
    "LINK_TYPE_P2": "ETH(2)",
    "KEEP_ETH_LINK_UP_P1": "True(1)",
    "KEEP_IB_LINK_UP_P1": "False(0)",
}
_MORE = {"ACCURATE_TX_SCHEDULER": "False(0)", "REAL_TIME_CLOCK_ENABLE": "False(0)"}


def network(nodes: Sequence[Node]) -> dict[str, object]:
    """/sys/class/infiniband and the names in /sys/class/net of the tree's NICs, `ibv_devinfo`."""
    rdma = sorted(
        (node for node in nodes if "rdma" in node.words), key=lambda one: one.words["rdma"]
    )
    made: dict[str, object] = {}
    if rdma:
        made[f"names {_IB}"] = [node.words["rdma"] for node in rdma]
        made["run ibv_devinfo"] = devinfo(rdma)
    for node in rdma:
        made |= _device(node)
    nets = [node for node in nodes if "net" in node.words]
    made[f"names {_NET}"] = sorted(["lo", *(node.words["net"] for node in nets)])
    return made


def _device(node: Node) -> dict[str, object]:
    folder, words = f"{_IB}/{node.words['rdma']}", node.words
    model, firmware, board = node.kind.rdma or ("", "", "")
    infiniband = node.kind.code == 0x020700
    files = {
        "fw_ver": words.get("fw", firmware),
        "board_id": board,
        "hca_type": model,
        "ports/1/link_layer": "InfiniBand" if infiniband else "Ethernet",
        "ports/1/state": "1: DOWN" if "down" in words else "4: ACTIVE",
        "ports/1/phys_state": "3: Disabled" if "down" in words else "5: LinkUp",
        "ports/1/rate": f"{node.kind.speed or _SPEED[node.word]} Gb/sec (4X HDR)",
    }
    made: dict[str, object] = {
        f"text {folder}/{name}": f"{value}\n" for name, value in files.items()
    }
    made[f"link {folder}/device"] = f"/sys/devices/{'/'.join(node.path)}"
    made[f"names {folder}/ports"] = ["1"]
    if "net" in words:
        others = words["reps"].split(",") if "reps" in words else []
        made[f"names {folder}/device/net"] = [words["net"], *others]
    if words.get("net") and not infiniband:  # the link-local GID, as RoCE v1 and v2
        gids = f"{folder}/ports/1/gid_attrs/ndevs"
        made[f"names {gids}"] = ["0", "1"]
        made |= {f"text {gids}/{index}": f"{words['net']}\n" for index in "01"}
    return made


def devinfo(rdma: Sequence[Node]) -> str:
    """`ibv_devinfo`, a block a device."""
    blocks = []
    for number, node in enumerate(rdma):
        model, firmware, board = node.kind.rdma or ("MT0", "", "")
        part = model.removeprefix("MT") if node.kind.vendor == 0x15B3 else str(node.kind.device)
        vendor = 0x02C9 if node.kind.vendor == 0x15B3 else node.kind.vendor
        infiniband, down = node.kind.code == 0x020700, "down" in node.words
        blocks.append(
            f"hca_id:\t{node.words['rdma']}\n"
            "\ttransport:\t\t\tInfiniBand (0)\n"
            f"\tfw_ver:\t\t\t\t{node.words.get('fw', firmware)}\n"
            f"\tnode_guid:\t\t\t0000:0000:0000:{number + 1:04x}\n"
            f"\tsys_image_guid:\t\t\t0000:0000:0000:{number + 1:04x}\n"
            f"\tvendor_id:\t\t\t0x{vendor:04x}\n"
            f"\tvendor_part_id:\t\t\t{part}\n"
            "\thw_ver:\t\t\t\t0x1\n"
            f"\tboard_id:\t\t\t{board}\n"
            "\tphys_port_cnt:\t\t\t1\n"
            "\t\tport:\t1\n"
            f"\t\t\tstate:\t\t\t{'PORT_DOWN (1)' if down else 'PORT_ACTIVE (4)'}\n"
            "\t\t\tmax_mtu:\t\t4096 (5)\n"
            f"\t\t\tactive_mtu:\t\t{'4096 (5)' if infiniband else '1024 (3)'}\n"
            "\t\t\tsm_lid:\t\t\t0\n"
            "\t\t\tport_lid:\t\t0\n"
            "\t\t\tport_lmc:\t\t0x00\n"
            f"\t\t\tlink_layer:\t\t{'InfiniBand' if infiniband else 'Ethernet'}\n"
        )
    return "\n".join(blocks)


def _asked(node: Node) -> tuple[str, ...]:
    return _ASKED_DPU if node.word.startswith("bf") else _ASKED_NIC


def _command(node: Node) -> str:
    return f"run mlxconfig -d {node.address} -e q {' '.join(_asked(node))}"


def settings(
    node: Node, now: Mapping[str, str], later: Mapping[str, str] | None = None
) -> dict[str, object]:
    """`mlxconfig -d ADDRESS -e q NAMES`: what is in force, and what will be."""
    kind, name, words = _DESCRIBED.get(node.word, _DESCRIBED["cx6dx"])
    asked = _asked(node)
    known = {**_LINKS, **_MORE, **now}
    columns = [
        {**known, **(DPU_MODE if node.word.startswith("bf") else {})},
        known,
        {**known, **(later or {})},
    ]
    lines = [
        "",
        "Device #1:",
        "-" * 10,
        "",
        f"Device type:        {kind:<20}",
        f"Name:               {name:<20}",
    ]
    lines += [f"Description:        {words}", f"Device:             {node.address:<20}", ""]
    heads = f"{'Default':<20}{'Current':<20}Next Boot"
    lines.append(f"{'Configurations:':<57}{heads}")
    for one in asked:
        if one in known:
            default, current, following = (column[one] for column in columns)
            mark = "*" if following != default else " "
            lines.append(f"{mark:<8}{one:<44}{default:<20}{current:<20}{following:<20}")
    lines.append("The '*' shows parameters with next value different from default/current value.")
    return {_command(node): "\n".join(lines) + "\n"}


def denied(node: Node) -> dict[str, object]:
    """The same without root."""
    said = "-E- You need to be root to run this tool\n"
    return {_command(node): Reading(said=said, text="", code=3)}


def privileges(node: Node, level: str) -> dict[str, object]:
    """`mlxprivhost -d ADDRESS q` on the Arm side: what the host may do."""
    held = "TRUE" if level == "RESTRICTED" else "FALSE"
    names = ("disable_rshim", "disable_tracer", "disable_port_owner", "disable_counter_rd")
    lines = ["Current device configurations:", "-" * 30, f"{'level':<30}: {level}", ""]
    lines += ["Port functions status:", "-" * 23, *(f"{name:<30}: {held}" for name in names)]
    return {f"run mlxprivhost -d {node.address} q": "\n".join(lines) + "\n"}


def rshim(made: Mapping[str, object], card: Node, mode: str) -> dict[str, object]:
    """The driver of the way to the Arm cores: rshim(8)'s file, and its network interface."""
    nets = made[f"names {_NET}"]
    assert isinstance(nets, list)
    soc = card.address.rpartition(".")[0] + ".2"
    lines = {
        "DISPLAY_LEVEL": "0 (0:basic, 1:advanced, 2:log)",
        "BF_MODE": mode,
        "BOOT_MODE": "1 (0:rshim, 1:emmc, 2:emmc-boot-swap)",
        "BOOT_TIMEOUT": "300 (seconds)",
        "DROP_MODE": "0 (0:normal, 1:drop)",
        "SW_RESET": "0 (1: reset)",
        "DEV_NAME": f"pcie-{soc}",
        "DEV_INFO": "BlueField-3(Rev 1)",
        "OPN_STR": "N/A",
    }
    return {
        "text /dev/rshim0/misc": "".join(f"{name:<16}{value}\n" for name, value in lines.items()),
        f"names {_NET}": sorted([*nets, "tmfifo_net0"]),
        "run ip -j addr show": addresses({"tmfifo_net0": "192.168.100.1/30"}),
    }


def addresses(known: Mapping[str, str]) -> str:
    """`ip -j addr show` of interfaces and their IPv4 addresses."""
    links = []
    for number, (name, address) in enumerate(known.items()):
        local, _, length = address.partition("/")
        info = [{"family": "inet", "local": local, "prefixlen": int(length), "scope": "global"}]
        links.append({"ifindex": number + 2, "ifname": name, "operstate": "UP", "addr_info": info})
    return json.dumps(links) + "\n"
