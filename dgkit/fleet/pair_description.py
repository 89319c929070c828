# SPDX-License-Identifier: Apache-2.0
"""Description of one pair of host and DPU, held by the client of a fleet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from .._version import __version__
from ..types import provider_label


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One pair of a fleet.

    Attributes:
        name: Host and worker, such as `node7/3`; the same after a restart of the worker.
        worker: Address of its Dask worker.
        host: Name of the worker's machine.
        role: The worker's side: `host` or `dpu`.
        dpu: Name of the DPU's machine, with the process id.
        provider: Provider that moves the bytes.
        label: `hardware`, or the name of its substitute.
        engine: The device that copies; "" for the CPU.
        arch: Architecture of the worker's machine.
        dgkit: Version of dgkit in the worker.
        machine: Id of the worker's machine.
        agent: Address of the other side's agent; "" if the worker has started a software DPU.
        other: Name of the other side's machine; "" if it is the worker's machine.
        machines: Machines that a measurement keeps busy: ids, or names of machines without workers.
        state: "" if the pair is usable, else the reason why not.
    """

    name: str
    worker: str
    host: str = ""
    role: str = ""
    dpu: str = ""
    provider: str = ""
    label: str = ""
    engine: str = ""
    arch: str = ""
    dgkit: str = ""
    machine: str = ""
    agent: str = ""
    other: str = ""
    machines: frozenset[str] = frozenset()
    state: str = ""

    @property
    def usable(self) -> bool:
        """True if it can be measured."""
        return not self.state


def named_pairs(found: Mapping[str, Mapping[str, Any] | str]) -> tuple[Pair, ...]:
    """Return the pairs of all workers, sorted by name.

    Args:
        found: The description of each worker by its address, or the reason why there is none.

    If both sides of a pair have a worker, the pair appears twice; only its first entry is usable.
    """
    described = {address: each for address, each in found.items() if not isinstance(each, str)}
    names = _names(described.values())
    ids = {str(each["host"]): str(each["machine"]) for each in described.values()}
    pairs = [_parse_pair(names[address], each, ids) for address, each in described.items()]
    pairs += [
        Pair(name=address, worker=address, state=why)
        for address, why in found.items()
        if isinstance(why, str)
    ]
    return _once(sorted(pairs, key=lambda pair: natural_key(pair.name)), described)


def _names(described: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return pair names by worker address: the host, and the worker's name or number on that host.

    Workers without a name of their own are numbered, because Dask's default name is the address,
    whose port changes with each restart.
    """
    numbers: Counter[str] = Counter()
    names = {}
    for each in sorted(described, key=lambda each: natural_key(each["address"])):
        label = each["worker"]
        if "://" in label:
            label = f"#{numbers[each['host']]}"
            numbers[each["host"]] += 1
        names[each["address"]] = f"{each['host']}/{label}"
    return names


def natural_key(text: str) -> list[str | int]:
    """Return a sort key under which `a/10` follows `a/9`."""
    parts = re.split(r"(\d+)", text)
    return [int(part) if index % 2 else part for index, part in enumerate(parts)]  # odd: digits


def _parse_pair(name: str, each: Mapping[str, Any], ids: Mapping[str, str]) -> Pair:
    machine, info, state = str(each["machine"]), each["info"], each["error"]
    common = {"name": name, "worker": each["address"], "host": each["host"], "machine": machine}
    common |= {"arch": each["arch"], "dgkit": each["dgkit"], "agent": each["agent"]}
    if each["dgkit"] != __version__:
        state = f"dgkit {each['dgkit']}; this is {__version__}"
    if not info:
        return Pair(**common, machines=frozenset({machine}), state=state or "no session")
    far = info["dpu" if info["role"] == "host" else "host"]["machine"]
    other = far if far != each["host"] else ""
    dpu = info["dpu"]
    return Pair(
        **common, state=state, role=info["role"], other=other,
        machines=frozenset({machine, ids.get(other, other)} - {""}),
        dpu=f"{dpu['machine']}, pid {dpu['pid']}", provider=dpu["provider"],
        label=provider_label(dpu["provider"]), engine=dpu["engine"],
    )  # fmt: skip


def _once(pairs: list[Pair], described: Mapping[str, Mapping[str, Any]]) -> tuple[Pair, ...]:
    """Mark pairs that are an earlier pair seen from its other side's worker."""
    seen: dict[object, str] = {}
    kept = []
    for pair in pairs:
        info = described[pair.worker]["info"] if pair.worker in described else {}
        if pair.usable and info and not info["owned"]:
            ends = (info["host"]["machine"], info["dpu"]["machine"])
            key = ends if ends[0] != ends[1] else (pair.host, info["address"])
            if (first := seen.setdefault(key, pair.name)) != pair.name:
                pair = replace(pair, state=f"the same pair as {first}")
        kept.append(pair)
    return tuple(kept)
