# SPDX-License-Identifier: Apache-2.0
"""view(): the panel for anything that has bytes."""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import cell_lifetime
from .base.panel import Panel
from .hexview import HexView

if TYPE_CHECKING:
    from ..session import Session, SessionRegion

_CAPTURE = b"\n\r\r\n"  # pcapng: the type of its first block
_DESCRIPTOR = b"DGKIT\0\0\0"
_FIELDS = {  # of struct dg_descriptor (native/src/share/descriptor.h)
    "magic": "char[8]", "version": "u16", "length": "u16", "checksum": "u32", "boot_id": "u8[16]",
    "key": "u8[16]", "size": "u64", "access": "u32", "reserved": "u16", "blob_length": "u16",
    "path": "char[108]", "provider": "char[12]",
}  # fmt: skip
_lock = threading.Lock()  # guards _own
_own: list[Session] = []  # at most one: for what belongs to no session


def view(thing: Any, *, session: Session | None = None) -> Panel:
    """Show the bytes of something in the panel for its kind.

    Args:
        thing: A region of a session: its bytes, as a hex view. An object with the buffer protocol
            or an array on a GPU (NumPy, CuPy, PyTorch, `dgkit.empty`, a descriptor): the same, with
            an image of an array of two or more dimensions, and the fields of a descriptor. A path:
            the packets of a capture, the findings of a recorded machine (`.snap`), or the bytes of
            any other file. A queue pair of the software NIC: its entries.
        session: The session whose DPU reads the bytes; by default the region's, or one with a
            software DPU for all such views of this kernel.

    Raises:
        TypeError: It has no bytes.
        ValueError: It has 0 bytes.
        OSError: The file cannot be read.
    """
    if hasattr(thing, "session") and hasattr(thing, "local"):
        return _view_region(thing, thing.local and thing.local.memory.array)
    if callable(getattr(thing, "completions", None)):
        from .queuepair import QueuePanel

        return QueuePanel(thing)
    if isinstance(thing, (str, os.PathLike)):
        return _view_file(Path(thing), session)
    return _registered(thing, session, None)


def _view_file(path: Path, session: Session | None) -> Panel:
    if path.suffix == ".snap":
        from .doctor import DoctorPanel

        return DoctorPanel([str(path)])
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no regular file")
    with path.open("rb") as file:
        if file.read(len(_CAPTURE)) == _CAPTURE:
            from .packets import PacketPanel

            return PacketPanel(path)
        if not os.fstat(file.fileno()).st_size:
            raise ValueError(f"{path} has 0 bytes")
        return _registered(
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), session, path.name[:128]
        )


def _registered(thing: Any, session: Session | None, name: str | None) -> Panel:
    """Return a hex view of a region that ends with it."""
    with cell_lifetime.detached():
        region = (session or _own_session()).register(thing, name=name)
    try:
        panel = _view_region(region, thing)
    except BaseException:
        region.close()
        raise
    panel.on_close(region.close)
    return panel


def _view_region(region: SessionRegion, thing: Any) -> HexView:
    panel = HexView(region.session, region)
    array = getattr(thing, "array", thing)  # of memory of dgkit
    if len(getattr(array, "shape", ())) > 1 and (dtype := _number(array.dtype)):
        panel.image = {"dtype": dtype, "width": int(array.shape[-1])}
    if isinstance(thing, bytes) and thing.startswith(_DESCRIPTOR):
        panel.structure = _FIELDS
    return panel


def _number(dtype: Any) -> str:
    """Return the type of a pixel, such as f32, for that of an array or tensor; "" for others."""
    import numpy as np

    try:
        known = np.dtype(str(dtype).removeprefix("torch."))
    except TypeError:  # bfloat16
        return ""
    return f"{known.kind}{8 * known.itemsize}" if known.kind in "iuf" else ""


def _own_session() -> Session:
    from ..session import connect

    with _lock:
        if not _own or _own[0].closed or _own[0].lost:
            _own[:] = [connect()]
        return _own[0]
