# SPDX-License-Identifier: Apache-2.0
"""Results of experiments take the place of what the readings suggested."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from .. import finding
from ..data_paths import DataPath
from ..diagnosis import Diagnosis
from ..finding import Finding, Verdict
from .perform import Result

PREFIX = "try-"  # of the check's name in the finding of a failed experiment
TITLES = {
    "cuda-context": "CUDA context and a copy",
    "gpu-copy": "Copy between GPUs",
    "register-dmabuf": "Registering GPU memory (dma-buf)",
    "register-peermem": "Registering GPU memory (peermem)",
    "rdma-loopback": "RDMA loopback",
    "rdma-peer": "RDMA with another machine",
    "doca-dma": "DOCA DMA",
}
# What a text in the answer of a failed experiment says about the cause, and what to do.
_CAUSES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "bytes are wrong",
        "A device or bridge loses or misdirects what the driver reported as done.",
        ("dgkit doctor acs iommu gpu-peers", "sudo dmesg | grep -i -e 'fault' -e aer -e xid"),
    ),
    (
        "no peer access",
        "Programs copy between these GPUs through host memory.",
        ("nvidia-smi topo -p2p rw", "dgkit doctor gpu-peers --explain"),
    ),
    (
        "TOO_MANY_PEERS",
        "CUDA allows a GPU eight peers over PCIe.",
        ("# Give each process eight of the GPUs, by CUDA_VISIBLE_DEVICES.",),
    ),
    (
        "OUT_OF_MEMORY",
        "Other processes hold the GPU's memory.",
        ("nvidia-smi", "# End the processes that hold its memory."),
    ),
    (
        "ibv_reg_mr: Bad address",
        "No kernel module knows the address as GPU memory.",
        ("dgkit doctor peermem",),
    ),
    (
        "ibv_reg_mr: Cannot allocate",
        "The limit of locked memory, or BAR1, has no room for it.",
        ("ulimit -l", "dgkit doctor memlock bar1-size"),
    ),
    (
        "ibv_reg_dmabuf_mr: Cannot allocate",
        "The GPU's BAR1 has no room for it.",
        ("dgkit doctor bar1-size",),
    ),
    (
        "ibv_reg_dmabuf_mr: Operation not supported",
        "The adapter's driver, or this kernel, takes no dma-buf.",
        ("dgkit doctor rdma-dmabuf",),
    ),
    (
        "no result within",
        "A driver or device does not answer.",
        ("sudo dmesg | tail -n 50",),
    ),
    ("crashed", "A library does not fit its driver or device.", ("sudo dmesg | tail -n 50",)),
)


def overrule(diagnosis: Diagnosis, results: Sequence[Result]) -> Diagnosis:
    """Return the diagnosis with the results: on data paths, on checks, and as findings."""
    tried = [result for result in results if result.verdict is not Verdict.UNKNOWN]
    failed = [_result_finding(result) for result in tried if result.verdict is Verdict.FAIL]
    refuted = _refuted(tried)
    paths = tuple(_overruled_path(path, tried, refuted) for path in diagnosis.data_paths)
    stand = [found for found in diagnosis.findings if not _is_overruled(refuted, found)]
    overruled = [_overruled(found) for found in diagnosis.findings if _is_overruled(refuted, found)]
    return msgspec.structs.replace(
        diagnosis,
        findings=(*failed, *stand, *overruled),
        data_paths=paths,
        tried=tuple(results),
    )


def _result_finding(result: Result) -> Finding:
    name = result.experiment.name
    known = next((cause for cause in _CAUSES if cause[0] in result.said), None)
    why, remedy = known[1:] if known else ("", ("sudo dmesg | tail -n 50",))
    failed = finding.fail(result.said, why=why, remedy=remedy, subject=result.experiment.subject)
    return finding.attribute(failed, check=PREFIX + name, title=TITLES[name], side="host")


def _refuted(tried: Iterable[Result]) -> frozenset[str]:
    """Return the checks whose failure is refuted: an experiment succeeded, and none failed."""
    by_check: dict[str, list[Result]] = {}
    for result in tried:
        for check in result.experiment.checks:
            by_check.setdefault(check, []).append(result)
    return frozenset(
        check for check, results in by_check.items() if _verdict(results) is Verdict.OK
    )


def _verdict(results: Sequence[Result]) -> Verdict:
    """Return OK if each subject works, or any of them where one suffices."""
    worked = [result.verdict is Verdict.OK for result in results]
    every = any(result.experiment.every for result in results)
    return Verdict.OK if (all(worked) if every else any(worked)) else Verdict.FAIL


def _is_overruled(refuted: frozenset[str], found: Finding) -> bool:
    return found.check in refuted and found.verdict in (Verdict.FAIL, Verdict.UNKNOWN)


def _overruled(found: Finding) -> Finding:
    why = f"Tried: it works. The readings said: {found.why or found.found}"
    return msgspec.structs.replace(found, verdict=Verdict.OK, why=why, remedy=(), follows="")


def _overruled_path(path: DataPath, tried: Sequence[Result], refuted: frozenset[str]) -> DataPath:
    """Return a data path with the verdict of its experiments; unchanged without experiments."""
    results = [result for result in tried if _data_path(result) == path.name]
    whole = [result for result in results if result.experiment.complete]
    if not results:
        freed = path.blocked_by and set(path.blocked_by) <= refuted
        return _path(path, Verdict.OK, "", None) if freed else path
    failed = next((result for result in whole or results if result.verdict is Verdict.FAIL), None)
    if failed is not None and _verdict(whole or results) is Verdict.FAIL:
        return _path(path, Verdict.FAIL, f"{failed.experiment.subject}: {failed.said}", failed)
    if not whole and not set(path.blocked_by) <= refuted:  # mapped, but something else blocks it
        return path
    verdict = Verdict.WARN if path.verdict is Verdict.WARN or failed else Verdict.OK
    return _path(path, verdict, path.why if path.works else "", failed)


def _data_path(result: Result) -> str:
    """Return the path that a result decides: an RDMA loopback chooses its registration itself."""
    if result.experiment.name == "rdma-loopback" and "nvidia-peermem)" in result.said:
        return "rdma-gpu-peermem"
    return result.experiment.data_path


def _path(path: DataPath, verdict: Verdict, why: str, failed: Result | None) -> DataPath:
    checks = (PREFIX + failed.experiment.name,) if failed is not None else ()
    blocked = checks if verdict is Verdict.FAIL else ()
    warned = (*checks, *path.warned_by) if verdict is Verdict.WARN else ()
    return msgspec.structs.replace(
        path, verdict=verdict, why=why, proviso="", tried=True,
        blocked_by=blocked, caused_by=blocked, warned_by=warned,
    )  # fmt: skip
