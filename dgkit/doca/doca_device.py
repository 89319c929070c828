# SPDX-License-Identifier: Apache-2.0
"""Descriptions of the available devices and representors, and open devices and representors."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from ._library import CONTROL, label, library
from .codes import FunctionType, RepresentorFilter
from .doca_errors import DocaError, NotFound
from .handle import Handle, library_card

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ._library import Library

# Sizes of DOCA's strings, including the terminator (doca_dev.h).
_PCI, _IBDEV, _IFACE, _VUID = 13, 64, 256, 128


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """Device that this process may open, and its capabilities (`doca_devinfo`).

    Attributes:
        pci: PCI address.
        ibdev: Name of the RDMA device, such as `mlx5_0`.
        iface: Name of the network interface.
        function: Kind of PCIe function; None if this version of DOCA does not report it.
        sf_index: Index of a sub-function; None if unknown.
        dma: Supports DMA.
        export_pci: Maps can be exported to the DPU.
        from_export_pci: Maps can be created from a PCI export.
        max_copy: Largest memcpy task in bytes; 0 without DMA.
        max_list: Largest number of buffers in one list; 0 without DMA.
        library: Label of the library that reported these values.
    """

    pci: str
    ibdev: str
    iface: str
    function: FunctionType | None
    sf_index: int | None
    dma: bool
    export_pci: bool
    from_export_pci: bool
    max_copy: int
    max_list: int
    library: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names by which `Device` finds this device."""
        return tuple(name for name in (self.pci, self.ibdev, self.iface) if name)

    def _rows(self) -> list[tuple[str, object]]:
        can = {"DMA": self.dma, "export": self.export_pci, "import": self.from_export_pci}
        kind = "unknown" if self.function is None else self.function.name
        rows: list[tuple[str, object]] = [("PCI address", self.pci), ("Function", kind)]
        rows += [("InfiniBand device", self.ibdev), ("Interface", self.iface)]
        rows += [("Can", ", ".join(name for name, able in can.items() if able) or "none of it")]
        rows += [("Largest copy", f"{self.max_copy:,} bytes"), ("Longest list", self.max_list)]
        return rows if self.dma else rows[:-2]

    def _repr_html_(self) -> str:
        return library_card("DeviceInfo", self._rows())


@dataclass(frozen=True, slots=True)
class RepresentorInfo:
    """Function of the host, as seen by the DPU (`doca_devinfo_rep`)."""

    pci: str
    vuid: str
    library: str

    def _repr_html_(self) -> str:
        return library_card("RepresentorInfo", [("PCI address", self.pci), ("VUID", self.vuid)])


def _text(lib: Library, name: str, info: Any, size: int) -> str:
    """Return a string attribute of a devinfo; "" if it is missing."""
    buffer = lib.ffi.new("char[]", size)
    with contextlib.suppress(DocaError):
        if name.endswith("_str"):
            lib.call(name, info, buffer)
        else:
            lib.call(name, info, buffer, size)
    return lib.text(buffer)


def _number(lib: Library, name: str, kind: str, info: Any) -> int | None:
    """Return a numeric attribute of a devinfo; None if this device or version of DOCA lacks it."""
    try:
        return int(lib.get(name, kind, info))
    except DocaError:
        return None


def _info(lib: Library, raw: Any) -> DeviceInfo:
    dma = not lib.function("doca_dma_cap_task_memcpy_is_supported")(raw)
    function = _number(lib, "doca_devinfo_get_pci_func_type", "int *", raw)
    can_import = "doca_mmap_cap_is_create_from_export_pci_supported"
    limits = (
        _number(lib, f"doca_dma_cap_task_memcpy_get_max_buf_{what}", f"{kind} *", raw)
        for what, kind in (("size", "uint64_t"), ("list_len", "uint32_t"))
    )
    max_copy, max_list = (limit or 0 if dma else 0 for limit in limits)
    is_sf = function == FunctionType.SF
    return DeviceInfo(
        pci=_text(lib, "doca_devinfo_get_pci_addr_str", raw, _PCI),
        ibdev=_text(lib, "doca_devinfo_get_ibdev_name", raw, _IBDEV),
        iface=_text(lib, "doca_devinfo_get_iface_name", raw, _IFACE),
        function=FunctionType(function) if function in tuple(FunctionType) else None,
        sf_index=_number(lib, "doca_devinfo_get_sf_index", "uint32_t *", raw) if is_sf else None,
        dma=dma,
        export_pci=bool(_number(lib, "doca_mmap_cap_is_export_pci_supported", "uint8_t *", raw)),
        from_export_pci=bool(_number(lib, can_import, "uint8_t *", raw)),
        max_copy=max_copy,
        max_list=max_list,
        library=label(),
    )


@contextlib.contextmanager
def _device_list(name: str, *args: Any) -> Iterator[list[Any]]:
    """Yield DOCA's list of devinfos; destroy it at the end of the block."""
    lib = library()
    kind = "struct doca_devinfo_rep ***" if args else "struct doca_devinfo ***"
    found, count = lib.ffi.new(kind), lib.ffi.new("uint32_t *")
    with CONTROL:
        lib.call(f"{name}_create_list", *args, found, count)
        try:
            yield list(found[0][0 : count[0]])
        finally:
            lib.call(f"{name}_destroy_list", found[0])


def devices() -> list[DeviceInfo]:
    """Return every device that this process may open."""
    with _device_list("doca_devinfo") as found:
        return [_info(library(), raw) for raw in found]


def _matcher(which: str | DeviceInfo | None) -> Callable[[DeviceInfo], bool]:
    """Return a predicate that recognizes the device `which`."""
    if which is None:
        return lambda info: info.dma
    if isinstance(which, DeviceInfo):
        return lambda info: info == which
    if not isinstance(which, str):
        raise TypeError(f"which is {which!r}; it must be text, a DeviceInfo or None")
    # A PCI address may omit its domain: 03:00.0 is 0000:03:00.0.
    return lambda info: which in info.names or f"0000:{which}" == info.pci


class Device(Handle):
    """Open device (`doca_dev`).

    Args:
        which: PCI address ("0000:03:00.0" or "03:00.0"), name (`mlx5_0`, `p0`), DeviceInfo from
            `devices()`, or None for the first device that supports DMA.

    Raises:
        NotFound: There is no such device.
    """

    __slots__ = ("info",)
    _name = "device"
    _order = 5

    def __init__(self, which: str | DeviceInfo | None = None) -> None:
        super().__init__()
        matches = _matcher(which)
        lib = library()
        with _device_list("doca_devinfo") as found:
            known = [(_info(lib, raw), raw) for raw in found]
            for info, raw in known:
                if matches(info):
                    self.info = info
                    self._opened(lib.get("doca_dev_open", "struct doca_dev **", raw))
                    return
        available = "; ".join(", ".join(info.names) for info, _ in known) or "none"
        wanted = "device that supports DMA" if which is None else f"device {which!r}"
        raise NotFound(f"there is no {wanted}. Devices: {available}")

    def representors(
        self, which: RepresentorFilter = RepresentorFilter.ALL
    ) -> list[RepresentorInfo]:
        """Return the host's functions that this device of the DPU represents.

        Raises:
            NotSupported: This process is on the host, which has no representors.
        """
        with self._guard, _device_list("doca_devinfo_rep", self._handle(), int(which)) as found:
            return [_representor_info(library(), raw) for raw in found]

    def _destroy(self) -> None:
        library().call("doca_dev_close", self._h)

    def _summary(self) -> str:
        return " ".join(self.info.names)

    def _rows(self) -> list[tuple[str, object]]:
        return self.info._rows()


def _representor_info(lib: Library, raw: Any) -> RepresentorInfo:
    return RepresentorInfo(
        _text(lib, "doca_devinfo_rep_get_pci_addr_str", raw, _PCI),
        _text(lib, "doca_devinfo_rep_get_vuid", raw, _VUID),
        label(),
    )


class Representor(Handle):
    """Function of the host, opened on the DPU (`doca_dev_rep`).

    Args:
        device: Device of the DPU.
        which: PCI address, VUID or RepresentorInfo.

    Raises:
        NotFound: There is no such representor.
    """

    __slots__ = ("device", "info")
    _name = "representor"
    _order = 3

    def __init__(self, device: Device, which: str | RepresentorInfo) -> None:
        super().__init__()
        Device._expect("device", device)
        lib = library()
        self.device = device
        with CONTROL, _device_list("doca_devinfo_rep", device._handle(), 0) as found:
            known = [(_representor_info(lib, raw), raw) for raw in found]
            for info, raw in known:
                if which in (info, info.pci, info.vuid) or f"0000:{which}" == info.pci:
                    self.info = info
                    opened = lib.get("doca_dev_rep_open", "struct doca_dev_rep **", raw)
                    self._opened(opened, device)
                    return
        available = ", ".join(info.pci for info, _ in known) or "none"
        raise NotFound(f"{device!r} has no representor {which!r}. It has: {available}")

    def _destroy(self) -> None:
        library().call("doca_dev_rep_close", self._h)

    def _summary(self) -> str:
        return self.info.pci

    def _rows(self) -> list[tuple[str, object]]:
        return [("PCI address", self.info.pci), ("VUID", self.info.vuid)]
