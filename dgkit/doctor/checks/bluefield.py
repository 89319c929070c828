# SPDX-License-Identifier: Apache-2.0
"""BlueField: generation, mode, link settings, representors, network to the Arm cores."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from .. import finding, references
from ..facts import bluefield, cuda, distribution, firmware, gpus, nvidia_proc, pci, virtual
from ..facts.bluefield import Mode, side
from ..facts.firmware import Adapter
from ..facts.mlxconfig import Config
from ..facts.nvidia_smi import smi
from ..finding import Finding, Verdict
from ..goals import BY_ARM, WITH_CARD, Goal
from ..machine import Case, Machine
from ..prerequisites import applies, device, readable, reason
from ..registry import check
from ..remedies import SettingsAccess
from . import _card_settings
from ._card_settings import GUIDE, MODES, REQUIRED_MODE, ModeState, card_label, judge_mode
from ._devices import any_of

_NO_BLUEFIELD = "no BlueField"


@check(
    "bluefield-present",
    "BlueField",
    asks="Which BlueFields are present, and on which side is this?",
    requires=[
        readable(
            reason(pci.tree),
            "PCI devices not read",
            sources=[references.DOCA_SUPPORT("Supported devices")],
        )
    ],
)
def _bluefield_present(case: Case) -> Iterator[Finding]:
    arm = case.machine.know(side) == "dpu"
    found = [_judge_card(case, card, arm) for card in case.machine.know(bluefield.cards)]
    yield from any_of(found, _connectx(case)) if found else [_no_card(case, arm)]


def _judge_card(case: Case, card: Adapter, arm: bool) -> Finding:
    source = references.DOCA_SUPPORT("Supported devices")
    ports = len(card.functions)
    seen_from = "its Arm cores" if arm else "the host"
    found = f"{card.model}, {ports} port{'s' if ports > 1 else ''}, from {seen_from}"
    if card.model != "BlueField" or case.goal not in BY_ARM | {Goal.GPUNETIO}:
        return finding.ok(found, subject=card.address, sources=[source])
    return finding.fail(
        found,
        needed="BlueField-2 or later",
        why="DOCA supports BlueField-2 and later; the first BlueField has no DOCA DMA.",
        subject=card.address,
        remedy=["# replace it by a BlueField-2 or BlueField-3"],
        sources=[source],
    )


def _no_card(case: Case, arm: bool) -> Finding:
    others = [card.model for card in case.machine.know(firmware.adapters)]
    missing = _ARM_WITHOUT_NIC if arm else _MISSING.get(case.goal)
    if case.goal is Goal.ARM_DMA and not arm and _lacks_cuda(case.machine):
        missing = None  # the GPU needs a working driver first
    if missing is None or (case.goal is Goal.GPUNETIO and others):
        return finding.n_a(f"none; there is {others[0]}" if others else _NO_BLUEFIELD)
    if not arm and case.machine.know(virtual.virtual).is_vm:
        return msgspec.structs.replace(
            missing, remedy=(f"# pass one through to this virtual machine: {missing.needed}",)
        )
    return missing


def _lacks_cuda(machine: Machine) -> bool:
    """Return whether there are GPUs but CUDA cannot use them."""
    if not machine.know(gpus.gpus):
        return False
    loaded = machine.know(nvidia_proc.driver).loaded
    refused = machine.know(smi).trouble == "devices"
    codes = {context.code for context in machine.know(cuda.contexts).values()} - {None}
    without = bool(codes) and 0 not in codes
    return loaded is False or refused or without or bool(machine.know(cuda.cuda).code)


_ARM_WITHOUT_NIC = finding.fail(
    "Arm cores without their NIC",
    needed="the card's network functions",
    why="This is the Arm side of a BlueField, but its PCI bus has no network function of the card: "
    "its firmware did not start, or the card is in NIC mode.",
    remedy=[
        "sudo dmesg | grep -i mlx5",
        "# on the host: shut it down, and switch its power off and on",
    ],
    sources=[MODES],
)
_MISSING = {
    **dict.fromkeys(
        BY_ARM,
        finding.fail(
            _NO_BLUEFIELD,
            needed="BlueField-2 or later",
            why="There are no Arm cores to move the bytes; the software DPU can take their place.",
            remedy=["# install a BlueField-2 or -3, or use the software DPU: dgkit.connect()"],
            sources=[references.DOCA_SUPPORT("Supported devices")],
        ),
    ),
    Goal.GPUNETIO: finding.fail(
        "no NVIDIA NIC",
        needed="BlueField-2, ConnectX-6 Dx or later",
        why="GPUNetIO drives a ConnectX, or a BlueField in NIC mode.",
        remedy=["# install a ConnectX-6 Dx or later"],
        sources=[references.GPUNETIO("ConnectX NIC")],
    ),
}


def _runs_here(case: Case) -> bool:
    """Return whether the mode matters on this side: GPUNetIO runs on the host, if it is judged."""
    arm = case.machine.know(side) == "dpu"
    return not (arm and case.host is not None and case.goal is Goal.GPUNETIO)


@check(
    "bluefield-mode",
    "Mode of the BlueField",
    asks="Is the card in the mode that the goal needs: DPU mode or NIC mode?",
    goals=WITH_CARD,
    requires=[
        device(lambda case: case.machine.know(bluefield.cards), _NO_BLUEFIELD),
        applies(_runs_here, "GPUNetIO runs on the host"),
    ],
)
def _bluefield_mode(case: Case) -> Iterator[Finding]:
    arm = case.machine.know(side) == "dpu"
    reported = _wrong_modes_on_host(case) if arm else set()
    for mode in any_of(_judge_modes(case, arm), "" if arm else _connectx(case)):
        repeated = mode.verdict is Verdict.FAIL and mode.found in reported
        yield finding.n_a(mode.found, why="Reported on the host.") if repeated else mode


def _connectx(case: Case) -> str:
    """Return the label of a ConnectX if the goal is GPUNetIO, which can use it; else ""."""
    others = [card for card in case.machine.know(firmware.adapters) if not card.bluefield]
    return card_label(others[0]) if others and case.goal is Goal.GPUNETIO else ""


def _wrong_modes_on_host(case: Case) -> set[str]:
    """Return the wrong modes that this check finds on the host; empty if no host is judged."""
    if case.host is None:
        return set()
    host = msgspec.structs.replace(case, machine=case.host)
    modes = _judge_modes(host, arm=False)
    return {mode.found for mode in modes if mode.verdict is Verdict.FAIL}


def _judge_modes(case: Case, arm: bool) -> list[Finding]:
    configs = case.machine.know(bluefield.configs)
    return [_judge_mode(case, card, settings, arm) for card, settings in configs]


def _judge_mode(case: Case, card: Adapter, settings: Config, arm: bool) -> Finding:
    now, after = bluefield.mode(settings), bluefield.mode(settings, after=True)
    evidence, access = "", SettingsAccess(on_arm=arm)
    if now is Mode.UNKNOWN:
        now, evidence = _mode_without_root(case, card)
        after = now
    locked = bluefield.zero_trust_card(case.machine if arm else _arm_side(case))
    if locked is not None and arm:
        evidence = f"{evidence} {_ZERO_TRUST}".strip()
    elif locked is not None:
        access = SettingsAccess(arm_address=locked.address)
    if now is Mode.UNKNOWN:
        required = REQUIRED_MODE.get(case.goal)
        if required is None:
            why = "RDMA from the host works in DPU mode and in NIC mode."
            return finding.ok("not read", why=why, subject=card_label(card), sources=[MODES])
        return finding.unknown(
            "mode not read",
            needed=str(required),
            why=settings.why or "mlxconfig does not list INTERNAL_CPU_OFFLOAD_ENGINE.",
            subject=card_label(card),
            remedy=_card_settings.query_commands([(card, settings)], bluefield.MODE),
            sources=[MODES],
        )
    return judge_mode(case.goal, ModeState(card, settings, now, after, evidence, access))


def _arm_side(case: Case) -> Machine | None:
    """Return the Arm side if there is a single card: of several, it may belong to any."""
    return case.dpu if len(case.machine.know(bluefield.cards)) == 1 else None


_ZERO_TRUST = (
    "The host is restricted (zero trust) and may not change the mode: run the commands on the Arm "
    "side."
)


def _mode_without_root(case: Case, card: Adapter) -> tuple[Mode, str]:
    """Return mode and evidence from representors, a running Arm side or the rshim driver."""
    arm = case.machine if case.machine.know(side) == "dpu" else _arm_side(case)
    if arm is not None:
        if any(port.host for port in arm.know(bluefield.representors)):
            return Mode.DPU, "The Arm side has representors of the host's functions."
        if card.model == "BlueField-3":
            return Mode.DPU, "The Arm cores run; in NIC mode those of a BlueField-3 do not."
    modes = case.machine.know(bluefield.rshim)
    return modes.get(
        card.address.rpartition(".")[0], Mode.UNKNOWN
    ), "According to the rshim driver."


@check(
    "bluefield-link",
    "Link settings for GPUNetIO",
    asks="Are the ports Ethernet or InfiniBand, and do they keep their link as GPUNetIO requires?",
    goals={Goal.GPUNETIO},
    sides=("host",),
    requires=[device(lambda case: _card_settings.nics(case.machine), "no NVIDIA NIC")],
)
def _bluefield_link(case: Case) -> Iterator[Finding]:
    nics = _card_settings.nics(case.machine)
    unread = [(card, settings) for card, settings in nics if settings.fault]
    for card, settings in nics:
        if not settings.fault:
            yield _card_settings.judge_link(card, settings)
    by_port = [_card_settings.judge_port(case.machine, card, settings) for card, settings in unread]
    if unread and all(by_port):
        yield from filter(None, by_port)
    elif unread:
        yield finding.unknown(
            "link settings not read",
            needed="the link type, KEEP_*_LINK_UP",
            why=unread[0][1].why,
            subject=", ".join(card.address for card, _ in unread),
            # query all settings, because an Ethernet-only card has no LINK_TYPE_P1
            remedy=_card_settings.query_commands(unread, ()),
            sources=[GUIDE],
        )


@check(
    "bluefield-representors",
    "Representors",
    asks="Does the Arm side see the host's functions?",
    goals=BY_ARM,
    sides=("dpu",),
    sources=[references.REPRESENTORS()],
    requires=[
        readable(
            lambda case: case.machine.read.names("/sys/class/net").unread, "interfaces not read"
        )
    ],
)
def _bluefield_representors(case: Case) -> Finding:
    ports = case.machine.know(bluefield.representors)
    found = ", ".join(port.net for port in ports[:5]) or "none"
    if any(port.host for port in ports):
        return finding.ok(found, needed="pf0hpf")
    cards = case.machine.know(bluefield.cards)
    address = cards[0].address if cards else "0000:03:00.0"
    return finding.warn(
        found,
        needed="pf0hpf",
        why="There is no representor of the host's function: the card is in NIC mode, or its "
        "switch is not in switchdev mode. DOCA then finds no host.",
        remedy=[
            f"sudo devlink dev eswitch show pci/{address}",
            f"sudo devlink dev eswitch set pci/{address} mode switchdev",
        ],
    )


def _tmfifo_unread(case: Case) -> str:
    found = case.machine.know(bluefield.tmfifo)
    return found.why if found.addresses is None or not found.nets else ""


def _tmfifo_text(case: Case) -> str:
    nets = case.machine.know(bluefield.tmfifo).nets
    return f"{nets[0]}, address not read" if nets else "interfaces not read"


@check(
    "bluefield-tmfifo",
    "Network to the Arm cores",
    asks="Do host and Arm cores have the network over rshim, with its usual addresses?",
    goals=BY_ARM,
    sources=[references.RSHIM("tmfifo_net0")],
    requires=[
        device(
            lambda case: case.machine.know(side) == "dpu" or case.machine.know(bluefield.cards),
            _NO_BLUEFIELD,
        ),
        readable(_tmfifo_unread, _tmfifo_text),
    ],
)
def _bluefield_tmfifo(case: Case) -> Finding:
    arm = case.machine.know(side) == "dpu"
    found = case.machine.know(bluefield.tmfifo)
    if found.nets:
        usual = "192.168.100.2/30" if arm else "192.168.100.1/30"
        name = found.nets[0]
        if found.addresses:
            addresses = ", ".join(found.addresses[:2])
            return finding.ok(f"{name} {addresses}", needed=usual)
        return finding.warn(
            f"{name} without an address",
            needed=usual,
            why="The other side cannot be reached over it until both have an address.",
            remedy=[
                f"sudo ip addr add {usual} dev {shlex.quote(name)}",
                f"sudo ip link set {shlex.quote(name)} up",
            ],
        )
    outside = not arm and not case.machine.know(virtual.container).engine
    why = "Host and Arm cores have no network over PCIe; any other network will do."
    remedy: Sequence[str] = _rshim_commands(case, arm)
    if outside and case.machine.know(bluefield.rshim_devices):
        why, remedy = f"{why} rshim has the card, but made no network.", _RESTART_RSHIM
    elif outside and case.machine.know(bluefield.rshim_runs):
        why, remedy = f"{why} The rshim service runs, but has no device.", _RSHIM_WITHOUT_DEVICE
        if excluded := _EXCLUDED.findall(case.machine.read.text("/etc/rshim.conf").text):
            why = f"{why} /etc/rshim.conf excludes {', '.join(excluded[:2])}."
            remedy = ("# Remove the line `none` of the card from /etc/rshim.conf.", *_RESTART_RSHIM)
    return finding.warn("no tmfifo_net0", needed="tmfifo_net0", why=why, remedy=remedy)


_EXCLUDED = re.compile(r"^none\s{1,20}((?:pcie|usb|pcie-lf)-\S{1,40})", re.MULTILINE)
_RESTART_RSHIM = ("sudo systemctl restart rshim",)
# rshim-user-space, pull requests 155 (ownership) and 438 (modules).
_RSHIM_WITHOUT_DEVICE = (
    "sudo journalctl -u rshim -n 20",
    "# If another backend is attached, as the card's BMC: stop that one, then restart this service",
    "# If a module is missing: sudo modprobe -a cuse uio vfio_pci, then restart this service",
)


def _rshim_commands(case: Case, arm: bool) -> list[str]:
    if case.machine.know(virtual.container).engine:
        return ["# outside this container: install rshim and start its service"]
    if arm:
        return ["sudo modprobe mlxbf-tmfifo"]
    return [
        distribution.install_command(case.machine, "rshim", "rshim"),
        "sudo systemctl enable --now rshim",
    ]
