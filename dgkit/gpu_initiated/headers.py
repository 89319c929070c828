"""Folder of the device header, in an installed package or in the repository."""

from __future__ import annotations

from pathlib import Path

__all__ = ["include_dir"]

_PACKAGE = Path(__file__).resolve().parent
_FOLDERS = (_PACKAGE / "include", _PACKAGE.parents[1] / "native" / "device")


def include_dir() -> Path:
    """Return the folder with dgkit_device.cuh: the argument of a compiler's `-I`.

    Raises:
        FileNotFoundError: The installation lacks the header.
    """
    for folder in _FOLDERS:
        if (folder / "dgkit_device.cuh").is_file():
            return folder
    raise FileNotFoundError(f"dgkit_device.cuh is not in {_FOLDERS[0]}: install dgkit again")
