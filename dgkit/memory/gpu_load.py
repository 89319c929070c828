# SPDX-License-Identifier: Apache-2.0
"""Load, memory, PCIe and NVLink traffic of the GPUs of this machine, by NVML."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .gpu_info import open_nvml

if TYPE_CHECKING:
    from collections.abc import Callable

# Bytes per second of one lane in one direction, by generation: transfers per second less the
# encoding, 8b/10b up to generation 2, 128b/130b up to 5, flits of 236/256 in 6 (PCI Express Base
# 6.0, 4.2).
_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.375e9}

# Of nvml.h; their names in cuda.bindings differ between its releases.
_PCIE_SENT, _PCIE_RECEIVED = 0, 1  # NVML_PCIE_UTIL_TX_BYTES, _RX_BYTES
_NVLINK_SENT, _NVLINK_RECEIVED = 138, 139  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _RX
_ALL_LINKS = 0xFFFF_FFFF  # as nvmlFieldValue_t.scopeId: the sum over the GPU's NVLinks


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """One reading of a GPU; values that NVML does not report are None, and `why` has the reason.

    Attributes:
        index: NVML's number of the GPU.
        name: Product name.
        busy: Percent of the last sample period, of 1/6 s to 1 s, in which a kernel ran.
        used: Bytes of memory allocated, by all processes.
        total: Bytes of memory.
        received: Bytes per second that it received over PCIe, in 20 ms.
        sent: Bytes per second that it sent.
        link: Bytes per second that its PCIe link can carry in each direction.
        nvlink: Bytes received and sent over its NVLinks since they were counted first; None without
            NVLink, for which `why` has no reason.
        why: Why a value is None; else "".
    """

    index: int
    name: str
    busy: int | None
    used: int | None
    total: int | None
    received: float | None
    sent: float | None
    link: float | None
    nvlink: tuple[int, int] | None
    why: str


def gpu_loads() -> tuple[list[GpuLoad], str]:
    """Return a reading of each GPU of this machine; if there is none, also why.

    It takes about 40 ms per GPU, during which NVML counts the bytes on PCIe.
    """
    try:
        nvml = open_nvml()
        count = int(nvml.device_get_count_v2())
    except Exception as error:  # NVML's errors have no common base
        return [], f"NVML fails: {error}"
    return [_read_load(nvml, index) for index in range(count)], "" if count else "NVML lists no GPU"


def _read_load(nvml: Any, index: int) -> GpuLoad:
    errors: list[str] = []

    def get(query: Callable[[], Any]) -> Any:
        try:
            return query()
        except Exception as error:  # as above; a GPU may support some queries only
            errors.append(str(error))
            return None

    gpu = get(lambda: nvml.device_get_handle_by_index_v2(index))
    memory = get(lambda: nvml.device_get_memory_info_v2(gpu))
    lanes = get(lambda: nvml.device_get_max_pcie_link_width(gpu))
    generation = get(lambda: nvml.device_get_max_pcie_link_generation(gpu))
    received, sent = (  # NVML counts in KB/s
        get(partial(nvml.device_get_pcie_throughput, gpu, counter))
        for counter in (_PCIE_RECEIVED, _PCIE_SENT)
    )
    return GpuLoad(
        index=index,
        name=get(lambda: str(nvml.device_get_name(gpu))) or f"GPU {index}",
        busy=get(lambda: int(nvml.device_get_utilization_rates(gpu).gpu)),
        used=None if memory is None else int(memory.used),
        total=None if memory is None else int(memory.total),
        received=None if received is None else 1e3 * received,
        sent=None if sent is None else 1e3 * sent,
        link=lanes * _LANE[generation] if lanes and generation in _LANE else None,
        nvlink=_nvlink_bytes(nvml, gpu),
        why=errors[0] if errors else "",
    )


def _nvlink_bytes(nvml: Any, gpu: int) -> tuple[int, int] | None:
    """Return the bytes of payload that a GPU received and sent over all its NVLinks."""
    try:
        fields = nvml.FieldValue(2)
        fields.field_id = [_NVLINK_RECEIVED, _NVLINK_SENT]
        fields.scope_id = [_ALL_LINKS] * 2
        nvml.device_get_field_values(gpu, fields)
        if any(fields.nvml_return):
            return None
        first, second = (1024 * int(fields[at].value.ull_val[0]) for at in range(2))  # in KiB
    except Exception:  # as above
        return None
    return first, second
