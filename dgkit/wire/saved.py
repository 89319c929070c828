"""Agent that `dgkit bluefield up` has started, under a name that connect() takes: "bluefield"."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import BluefieldError, PeerLost
from ..files import make_own_folder, read_regular, replace_file

BLUEFIELD = "bluefield"  # the address, and the name of this side's key pair
_MAX_BYTES = 1 << 16


def path() -> Path:
    """Return the file: $XDG_CONFIG_HOME/dgkit/bluefield.json, else ~/.config/dgkit/..."""
    return Path(
        os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "dgkit/bluefield.json"
    )


def load() -> dict[str, Any]:
    """Return what `up` has stored: `arm`, `address` and more; {} if there is nothing.

    Raises:
        BluefieldError: The file is damaged.
    """
    try:
        found = json.loads(read_regular(path(), _MAX_BYTES))
        texts = all(isinstance(found.get(name), str) for name in ("arm", "address", "provider"))
        if not texts or not isinstance(found.get("why"), list):
            raise ValueError
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError):
        raise BluefieldError(
            f"{path()} is damaged: delete it, then run `dgkit bluefield up` again"
        ) from None
    return dict(found)


def store(values: dict[str, Any]) -> None:
    """Store what load() returns."""
    make_own_folder(path().parent, "XDG_CONFIG_HOME")
    replace_file(path(), json.dumps(values, indent=1).encode(), 0o600)


def resolve(address: str, keys: str | None) -> tuple[str, str | None]:
    """Return an address and the name of this side's key pair, those of "bluefield" if that is it.

    Raises:
        PeerLost: `dgkit bluefield up` has not been run.
        BluefieldError: What it has stored is damaged.
    """
    if address != BLUEFIELD:
        return address, keys
    found = load()
    if not found:
        raise PeerLost("no BlueField is set up here: run `dgkit bluefield up` first")
    return found["address"], keys or BLUEFIELD
