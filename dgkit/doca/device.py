"""Devices: what there is (DeviceInfo, RepresentorInfo), and what was opened."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from ._library import CONTROL, label, library
from ._repr import shown
from .codes import FunctionType, RepresentorFilter
from .errors import DocaError, NotFound
from .handle import Handle

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ._library import Library

__all__ = ["Device", "DeviceInfo", "Representor", "RepresentorInfo", "devices"]

# Sizes of DOCA's texts, with the end (doca_dev.h).
_PCI, _IBDEV, _IFACE, _VUID = 13, 64, 256, 128


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device that this process may open, and what it can do (`doca_devinfo`).

    `pci` is its address, `ibdev` and `iface` its names, `sf_index` the number of a sub-function.
    None: this version of DOCA does not say. `max_copy` is the largest size of one memcpy task in
    bytes, `max_list` the most buffers in one list; both are 0 where `dma` is False. `library` says
    whose word all of this is.
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
        """Each text that `Device` finds it by."""
        return tuple(name for name in (self.pci, self.ibdev, self.iface) if name)

    def _rows(self) -> list[tuple[str, object]]:
        can = {"DMA": self.dma, "export": self.export_pci, "import": self.from_export_pci}
        kind = "unknown" if self.function is None else self.function.name
        rows: list[tuple[str, object]] = [("PCI address", self.pci), ("Function", kind)]
        rows += [("InfiniBand device", self.ibdev), ("Interface", self.iface)]
        rows += [("Can", ", ".join(name for name, able in can.items() if able) or "none of it")]
        rows += [("Largest copy", f"{self.max_copy} bytes"), ("Longest list", self.max_list)]
        return rows if self.dma else rows[:-2]

    def _repr_html_(self) -> str:
        return shown("DeviceInfo", self._rows())


@dataclass(frozen=True, slots=True)
class RepresentorInfo:
    """A function of the host, as the DPU sees it (`doca_devinfo_rep`)."""

    pci: str
    vuid: str
    library: str

    def _repr_html_(self) -> str:
        return shown("RepresentorInfo", [("PCI address", self.pci), ("VUID", self.vuid)])


def _text(lib: Library, name: str, info: Any, size: int) -> str:
    """A text of a devinfo; "" if it has none."""
    buffer = lib.ffi.new("char[]", size)
    with contextlib.suppress(DocaError):
        if name.endswith("_str"):
            lib.call(name, info, buffer)
        else:
            lib.call(name, info, buffer, size)
    return lib.text(buffer)


def _number(lib: Library, name: str, kind: str, info: Any) -> int | None:
    """A number of a devinfo; None if it has none, or this version cannot say."""
    try:
        return int(lib.get(name, kind, info))
    except DocaError:
        return None


def _info(lib: Library, raw: Any) -> DeviceInfo:
    dma = not lib.function("doca_dma_cap_task_memcpy_is_supported")(raw)
    function = _number(lib, "doca_devinfo_get_pci_func_type", "int *", raw)
    can_import = "doca_mmap_cap_is_create_from_export_pci_supported"
    most = (
        _number(lib, f"doca_dma_cap_task_memcpy_get_max_buf_{what}", f"{kind} *", raw)
        for what, kind in (("size", "uint64_t"), ("list_len", "uint32_t"))
    )
    max_copy, max_list = (found or 0 if dma else 0 for found in most)
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
def _listed(name: str, *args: Any) -> Iterator[list[Any]]:
    """A list of devinfos of DOCA's, destroyed at the end of the block."""
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
    """Every device that this process may open."""
    with _listed("doca_devinfo") as found:
        return [_info(library(), raw) for raw in found]


def _chosen(which: str | DeviceInfo | None) -> Callable[[DeviceInfo], bool]:
    """What says of a device that it is the one."""
    if which is None:
        return lambda info: info.dma
    if isinstance(which, DeviceInfo):
        return lambda info: info == which
    if not isinstance(which, str):
        raise TypeError(f"which is {which!r}; it must be text, a DeviceInfo or None")
    # A PCI address may lack its domain: 03:00.0 is 0000:03:00.0.
    return lambda info: which in info.names or f"0000:{which}" == info.pci


class Device(Handle):
    """An open device (`doca_dev`).

    `which` is a PCI address ("0000:03:00.0" or "03:00.0"), a name (`mlx5_0`, `p0`), a DeviceInfo
    of `devices()`, or None for the first that can do DMA. NotFound if there is no such device.
    """

    __slots__ = ("info",)
    _name = "device"
    _order = 5

    def __init__(self, which: str | DeviceInfo | None = None) -> None:
        super().__init__()
        chosen = _chosen(which)
        lib = library()
        with _listed("doca_devinfo") as found:
            known = [(_info(lib, raw), raw) for raw in found]
            for info, raw in known:
                if chosen(info):
                    self.info = info
                    self._opened(lib.get("doca_dev_open", "struct doca_dev **", raw))
                    return
        there = "; ".join(", ".join(info.names) for info, _ in known) or "none"
        wanted = "a device that can do DMA" if which is None else repr(which)
        raise NotFound(f"there is no {wanted} here. The devices: {there}")

    def representors(
        self, which: RepresentorFilter = RepresentorFilter.ALL
    ) -> list[RepresentorInfo]:
        """The host's functions that this device of the DPU stands for.

        NotSupported on the host, which has none.
        """
        with self._turn, _listed("doca_devinfo_rep", self._handle(), int(which)) as found:
            return [_representor_info(library(), raw) for raw in found]

    def _destroy(self) -> None:
        library().call("doca_dev_close", self._h)

    def _about(self) -> str:
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
    """A function of the host, opened on the DPU (`doca_dev_rep`).

    `which` is its PCI address, its VUID or a RepresentorInfo; NotFound if there is no such one.
    """

    __slots__ = ("device", "info")
    _name = "representor"
    _order = 3

    def __init__(self, device: Device, which: str | RepresentorInfo) -> None:
        super().__init__()
        Device._expect("device", device)
        lib = library()
        self.device = device
        with CONTROL, _listed("doca_devinfo_rep", device._handle(), 0) as found:
            known = [(_representor_info(lib, raw), raw) for raw in found]
            for info, raw in known:
                if which in (info, info.pci, info.vuid) or f"0000:{which}" == info.pci:
                    self.info = info
                    opened = lib.get("doca_dev_rep_open", "struct doca_dev_rep **", raw)
                    self._opened(opened, device)
                    return
        there = ", ".join(info.pci for info, _ in known) or "none"
        raise NotFound(f"{device!r} has no representor {which!r}. It has: {there}")

    def _destroy(self) -> None:
        library().call("doca_dev_rep_close", self._h)

    def _about(self) -> str:
        return self.info.pci

    def _rows(self) -> list[tuple[str, object]]:
        return [("PCI address", self.info.pci), ("VUID", self.info.vuid)]
