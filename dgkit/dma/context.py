# SPDX-License-Identifier: Apache-2.0
"""State that a device shares with its regions and queues."""

from __future__ import annotations

import os

from ..errors import ClosedError
from ..live_set import LiveSet
from ..unique import Unique

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any, Protocol

    class _Child(Protocol):
        """Region of the device."""

        def close(self, timeout: float) -> None: ...


def provider_name(provider: str, emulated: str) -> str:
    """Return a provider's name for reprs and reports, including any emulated memory."""
    return f"{provider}, emulated {emulated}" if emulated else provider


class DeviceContext(Unique):
    """State that a device shares with its regions and queues, which keep it. Base of Device.

    Attributes:
        provider: Name of the provider.
        emulated: Kind of emulated memory that was registered or imported; "" if none.
    """

    provider: str
    emulated: str

    def __init__(self, provider: str) -> None:
        self._d: Any = None
        self._closed = False
        self._pid = os.getpid()
        self.provider = provider
        self.emulated = ""
        self._regions: LiveSet[_Child] = LiveSet()

    @property
    def closed(self) -> bool:
        """True if the device is closed."""
        return self._closed

    @property
    def _label(self) -> str:
        """Provider as reprs and cards name it."""
        return provider_name(self.provider, self.emulated)

    def _handle(self) -> Any:
        if self._closed:
            raise ClosedError(f"this {self.provider} device is closed")
        return self._d.c
