# SPDX-License-Identifier: Apache-2.0
"""Agent that `dgkit bluefield up` has started, under a name that connect() takes: "bluefield"."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..errors import BluefieldError, PeerLost
from ..files import make_user_folder, read_regular, replace_file, user_folder

if TYPE_CHECKING:
    from pathlib import Path

BLUEFIELD = "bluefield"  # the address, and the name of this side's key pair
_MAX_BYTES = 1 << 16


def path() -> Path:
    """Return the file."""
    return user_folder("CONFIG", "bluefield.json")


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
    make_user_folder("CONFIG")
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
