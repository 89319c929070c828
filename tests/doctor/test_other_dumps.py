# SPDX-License-Identifier: Apache-2.0
"""Dumps of other programs as machines: `rdma_topo dump` and archives of sysinfo-snapshot.py."""

import base64
import gzip
import html
import io
import json
import tarfile
import zlib

import pytest
from doctor.snapshots import machine

from dgkit.cli import main
from dgkit.doctor import Verdict
from dgkit.doctor.api import load_machine
from dgkit.doctor.facts import firmware, pci, rdma, topology
from dgkit.doctor.facts.uname import uname
from dgkit.doctor.goals import Goal
from dgkit.doctor.runner import diagnose

NAME = "sysinfo-snapshot-v3.7.9-box-2026-11-01"


def space(known, address):
    return known.raw(f"{pci.DEVICES}/{address}/config").raw or bytes(64)


def dump(name):
    """The output of `rdma_topo dump` on a synthetic machine."""
    known = machine(name)
    found = []
    for one in known.know(pci.tree).devices.values():
        kind = f"{one.kind:04X}00"
        ids = f"v0000{one.vendor:04X}d0000{one.device:04X}sv0000{one.vendor:04X}sd00000000"
        port = known.know(rdma.devices).at(one.address)
        names = {"infiniband": [port.name], "net": list(port.nets)} if port else {}
        found.append({
            "realpath": "/sys/devices/" + "/".join(one.path),
            "modalias": f"pci:{ids}bc{kind[:2]}sc{kind[2:4]}i{kind[4:]}",
            "config": base64.b64encode(zlib.compress(space(known.read, one.address))).decode(),
            "numa_node": one.numa, "iommu_group": 7, "subsystems": names,
        })  # fmt: skip
    return json.dumps(found, indent=4).encode()


def lspci(name):
    """`lspci -nnvvvxxxx` of a synthetic machine."""
    known, text = machine(name), ""
    for one in known.know(pci.tree).devices.values():
        raw = space(known.read, one.address)
        rows = (raw[at : at + 16] for at in range(0, len(raw) & ~15, 16))
        text += (
            f"{one.address} Thing [{one.kind:04x}]: Maker Part [{one.vendor:04x}:{one.device:04x}]"
            f" (rev 01)\n\tSubsystem: Maker [{one.vendor:04x}:0001]\n\tNUMA node: {one.numa}\n"
            "\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported\n"
            "\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)\n"
            + (f"\tKernel driver in use: {one.driver}\n" if one.driver else "")
            + "".join(f"{16 * n:02x}: {row.hex(' ')}\n" for n, row in enumerate(rows))
            + "\n"
        )
    return text


def page(**parts):
    """The HTML page of a snapshot, as the program writes it."""
    text = "<html><body><pre>"
    for name, body in parts.items():
        body = html.escape(body, quote=False).replace("\t", "&nbsp;" * 4).replace("\n", "<br/>")
        text += f"<h2>{name}</h2><p>{body}</p>"
    return text


def archive(name, **more):
    """An archive of a synthetic machine."""
    known = machine(name)
    devices = known.know(pci.tree).devices.values()
    paths = {"/sys/devices/" + "/".join(one.path): one.numa for one in devices}
    ports = known.know(rdma.devices).devices
    files = {
        f"{NAME}.html": page(**{
            "uname": "Linux box 6.8.0-85-generic #85-Ubuntu SMP x86_64 x86_64 x86_64 GNU/Linux",
            "/proc/cmdline": "quiet splash", "ibv_devinfo -v": known.read.run("ibv_devinfo").text,
            "ibdev2netdev": "".join(f"{p.name} port 1 ==> {p.nets[0]} (Up)\n" for p in ports),
        }),
        "pcie_files/lspci_nnvvvxxx": lspci(name),
        "numa_node": "".join(f"{path}/numa_node {n}\n" for path, n in paths.items()),
        "other_system_files": "".join(
            f"{next(p for p in paths if p.endswith(port.address))}/infiniband/{port.name}/ports\n"
            for port in ports
        ),
        "dmesg": "[Sun Nov  1 10:00:00 2026] mlx5_core 0000:01:00.0: firmware version: 28.47\n",
        **more,
    }  # fmt: skip
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        folder = tarfile.TarInfo(NAME)
        folder.type = tarfile.DIRTYPE
        packed.addfile(folder)
        for path, text in files.items():
            member = tarfile.TarInfo(f"{NAME}/{path}")
            member.size = len(text.encode())
            packed.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


@pytest.mark.parametrize("make", [dump, archive])
@pytest.mark.parametrize("name", ["pix", "acs-on", "sys"])
def test_a_dump_has_the_tree_its_ports_and_what_is_near(make, name, tmp_path):
    path = tmp_path / "box"
    path.write_bytes(make(name))
    found, same = load_machine(path), machine(name)
    tree, wanted = found.know(pci.tree), same.know(pci.tree)
    assert tree.devices.keys() == wanted.devices.keys()
    for one in wanted.devices.values():
        assert tree.devices[one.address].path == one.path
        assert tree.devices[one.address].port == one.port
    gpu, nic = wanted.gpus[0].address, wanted.nics[0].address
    assert topology.path(tree, gpu, nic).near is topology.path(wanted, gpu, nic).near
    names = [(one.name, one.address, one.nets) for one in found.know(rdma.devices).devices]
    assert names == [(one.name, one.address, one.nets) for one in same.know(rdma.devices).devices]
    acs = [diagnose([one], goal=Goal.RDMA).of("acs")[0].verdict for one in (found, same)]
    assert acs[0] is acs[1]


def test_an_archive_has_the_kernel_the_links_and_the_ports(tmp_path):
    path = tmp_path / "box.tgz"
    path.write_bytes(archive("pix"))
    found = load_machine(path)
    assert found.know(uname).release == "6.8.0-85-generic"
    assert found.read.text("/proc/cmdline").text.strip() == "quiet splash"
    assert "mlx5_core" in found.read.run("dmesg").text
    same = machine("pix").know(rdma.devices).devices
    for one, wanted in zip(found.know(rdma.devices).devices, same, strict=True):
        assert (one.firmware, one.board, one.model) == (wanted.firmware, wanted.board, wanted.model)
        assert [p.state for p in one.ports] == [p.state for p in wanted.ports]
    (link, *_) = diagnose([found], goal=Goal.RDMA).of("link")
    assert link.verdict is Verdict.WARN


def test_settings_of_an_archive_are_those_of_the_card(tmp_path):
    path, nic = tmp_path / "box.tgz", machine("bf3-nic-mode").know(firmware.adapters)[0].address
    text = (
        f"mlxconfig -d {nic} -e  q\n\nConfigurations:    Default    Current    Next Boot\n"
        "   INTERNAL_CPU_MODEL    EMBEDDED_CPU(1)   EMBEDDED_CPU(1)   EMBEDDED_CPU(1)\n"
        "   INTERNAL_CPU_OFFLOAD_ENGINE    ENABLED(0)   DISABLED(1)   DISABLED(1)\n"
    )
    path.write_bytes(archive("bf3-nic-mode", **{"firmware/mlxconfig_9f000": text}))
    (mode,) = diagnose([load_machine(path)], goal=Goal.GPUNETIO).of("bluefield-mode")
    assert mode.found == "NIC mode"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'[{"realpath": "/sys/devices/x", "modalias": "pci:?", "config": ""}]', "is no device"),
        (b'[{"realpath": 1}]', "no dump of rdma_topo"),
        (archive("pix")[:-300], "cannot be unpacked"),
        (gzip.compress(gzip.decompress(archive("pix"))[:3000]), "cannot be unpacked"),
    ],
)
def test_a_damaged_dump_is_named(content, says, tmp_path, capsys):
    path = tmp_path / "box"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        load_machine(path)
    assert main(["doctor", "--from", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


PAGE = page(uname="Linux box 6.1.0-7 #1 SMP x86_64 x86_64")


@pytest.mark.parametrize(
    "kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_nothing_outside_of_an_archive_is_read(kind, tmp_path):
    (tmp_path / "page").write_text(PAGE)
    member, out = tarfile.TarInfo(f"{NAME}/{NAME}.html"), io.BytesIO()
    member.type, member.linkname = kind, str(tmp_path / "page")
    member.size = len(PAGE) if kind == tarfile.REGTYPE else 0
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        packed.addfile(member, io.BytesIO(PAGE.encode()))
    (tmp_path / "box").write_bytes(out.getvalue())
    found = load_machine(tmp_path / "box").know(uname).release
    assert found == ("6.1.0-7" if kind == tarfile.REGTYPE else "")


def test_an_archive_that_grows_beyond_the_limit_is_refused(tmp_path):
    path = tmp_path / "box"
    path.write_bytes(gzip.compress(gzip.decompress(archive("pix"))[:1024] + bytes(300 << 20), 1))
    with pytest.raises(ValueError, match="larger than 256 MiB"):
        load_machine(path)
