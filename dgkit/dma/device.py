"""A device: an open provider, with its regions and queues."""

from __future__ import annotations

import atexit
import contextlib
import os
import warnings
import weakref
from collections.abc import Sequence

from ..errors import ClosedError, DgkitError
from ..types import DOCA, Access, Path, parse_access
from ..validate import whole
from ._ffi import check, ffi, lib, nanoseconds
from .queue import Queue
from .region import Region, RemoteRegion

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from .caps import Caps
    from .fault import FaultRule

__all__ = ["Device"]


_GPU_MAX = (1 << 32) - 1
_ORDER, _FENCED = {"cuda": "between posts"}, "behind a fence"
_UNASKED = "not asked for"  # a provider that works here, too
_open_devices: weakref.WeakSet[Device] = weakref.WeakSet()


class Device:
    """An open provider. `with` is its normal lifetime; closing it closes its queues and regions.

    `provider` is `"soft"` (this machine's CPU copies: the software DPU), `"cuda"` (GPU number `gpu`
    copies, by its copy engine), `"doca"` (a BlueField's DMA engine, through DOCA), `"softdoca"`
    (the same code over DOCA in software; a process has one of the two) or `"fault"`, which wraps
    the provider `over` and does to its operations what `rules` say. `pci`: the address of DOCA's
    function, as "03:00.0"; None: the first that does DMA. The engine spins `spin_us` before it
    sleeps; on one CPU it sleeps at once. Any thread may use a device. DeviceUnavailable if the
    provider is not there, or after fork(); OutOfMemory if the GPU has no room for a context.
    """

    def __init__(
        self,
        provider: str = "soft",
        *,
        spin_us: float = 200.0,
        over: str = "soft",
        rules: Sequence[FaultRule] = (),
        gpu: int = 0,
        pci: str | None = None,
    ) -> None:
        self._d: Any = None
        for what in (provider, over):
            if not isinstance(what, str):
                raise TypeError(f"provider is {what!r}; it must be text, as 'soft'")
        if rules and provider != "fault":
            raise ValueError(f"rules are for the provider 'fault', not for {provider!r}")
        if gpu and "cuda" not in (provider, over):
            raise ValueError(f"gpu={gpu!r} is for the provider 'cuda', not for {provider!r}")
        if pci is not None and not isinstance(pci, str):
            raise TypeError(f"pci is {pci!r}; it must be text, as '03:00.0', or None")
        if pci is not None and DOCA.isdisjoint((provider, over)):
            raise ValueError(f"pci={pci!r} is for 'doca' and 'softdoca', not for {provider!r}")
        config = ffi.new("dg_device_config *")
        config.spin_ns = nanoseconds(spin_us / 1e6, "spin_us")
        config.gpu = min(whole("gpu", gpu), _GPU_MAX)
        keep = [ffi.new("char[]", over.encode())]
        config.over = keep[0]
        if pci is not None:
            keep.append(ffi.new("char[]", pci.encode()))
            config.pci = keep[-1]
        if rules:
            from .fault import native_rules

            keep.append(native_rules(rules))
            config.rules, config.n_rules = keep[-1], len(rules)
        out = ffi.new("dg_device **")
        check(lib.dg_device_open(provider.encode(), config, out))
        self._d = out[0]
        self._pid = os.getpid()
        self.provider = provider
        self._queues: weakref.WeakSet[Queue] = weakref.WeakSet()
        self._regions: weakref.WeakSet[Region | RemoteRegion] = weakref.WeakSet()
        _open_devices.add(self)

    @property
    def caps(self) -> Caps:
        """What the provider can do."""
        from .caps import Caps

        raw = ffi.new("dg_caps *")
        check(lib.dg_device_caps(self._handle(), raw))
        name = ffi.string(raw.provider).decode()
        return Caps(
            name, raw.max_size, raw.inline_max, raw.spin_ns, bool(raw.ordered), raw.max_queues,
            ffi.string(raw.engine).decode(errors="replace"),
        )  # fmt: skip

    @property
    def why(self) -> dict[str, str]:
        """Each other provider, and why it was not chosen."""
        from .system import providers

        others = (p for p in providers(deep=False) if p.name != self.provider)
        return {p.name: _UNASKED if p.usable else p.why for p in others}

    @property
    def closed(self) -> bool:
        """Whether the device is closed."""
        return self._d is None

    def _handle(self) -> Any:
        if self._d is None:
            raise ClosedError(f"this {self.provider} device is closed")
        return self._d

    def register(
        self,
        memory: Any,
        access: str | Access = "rw",
        *,
        offset: int = 0,
        size: int | None = None,
        name: str | None = None,
        share_process: bool = False,
    ) -> Region:
        """Registers a Memory (`dgkit.empty`) or any contiguous buffer, in place.

        An array on a GPU: register `dgkit.wrap(array)`. With a provider that cannot copy GPU memory
        such a region can be exported, and no more; `doca` and `softdoca` are given its dma-buf.

        `offset` and `size` (bytes; None: to the end) take a part. `access` says what DMA may do:
        `"r"`, `"w"`, `"rw"`. With `share_process` importers may open this process to copy (Yama's
        PR_SET_PTRACER, prctl(2)). TypeError without a buffer, AccessDenied for "w" on read-only
        bytes, BoundsError for a part outside, ExportError for a memfd that is not sealed, and for
        GPU memory that DOCA cannot be given.
        """
        flags = parse_access(access)
        return Region(
            self, memory, flags, offset=offset, size=size, name=name, share_process=share_process
        )

    def import_region(self, token: bytes, timeout: float = 1.0) -> RemoteRegion:
        """Makes a remote region of a descriptor, of this process or of another of this user.

        DescriptorError if the bytes are none or name no region, PeerLost if the exporter is gone,
        PeerTimeout if it does not answer within `timeout` seconds, PeerVersion, Unsupported if it
        is of another machine, ExportError if its memory could kill this process.
        """
        return RemoteRegion(self, token, timeout)

    def queue(
        self,
        depth: int = 256,
        path: str | Path = "auto",
        *,
        spin_us: float = 50.0,
        op_timeout: float = 30.0,
    ) -> Queue:
        """Opens a queue for up to `depth` operations (1 to 65,536); one thread at a time uses it.

        `path` is `"auto"`, `"inline"` or `"worker"`. A wait spins `spin_us` before it sleeps. An
        operation without a completion for `op_timeout` seconds ends as TIMED_OUT.
        """
        queue = Queue(self, depth, path, spin_us=spin_us, op_timeout=op_timeout)
        self._queues.add(queue)
        return queue

    def close(self, timeout: float = 1.0) -> None:
        """Closes queues, then regions, then the device. Closing again does nothing.

        RegionBusy if a region is still in use after `timeout` seconds, QueueInUse if a thread is
        inside a queue: then the device stays open, and close() may be called again.
        """
        if self._d is None:
            return
        for queue in list(self._queues):
            queue.close()
        for region in list(self._regions):
            region.close(timeout)
        check(lib.dg_device_close(self._d, nanoseconds(timeout)))
        self._d = None

    def __enter__(self) -> Device:
        self._handle()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_d", None) is not None:
            if self._pid == os.getpid():
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
            # Its regions may still be in use by others: then they stay, and so does the device.
            with contextlib.suppress(DgkitError):
                self.close()

    def __repr__(self) -> str:
        state = "closed" if self._d is None else "open"
        from ..html_cards import provider_label

        label = provider_label(self.provider).partition(", injected")[0]
        return f"<dgkit.Device {self.provider}, {label}, {state}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge

        rows: list[tuple[str, object]] = [("Provider", self.provider)]
        if not self.closed:
            caps = self.caps
            rows += [("Engine", caps.engine)] if caps.engine else []
            rows += [
                ("Largest inline copy", f"{caps.inline_max} bytes"),
                ("Engine spins", f"{caps.spin_ns / 1000:g} us before it sleeps"),
                ("Keeps order", "yes" if caps.ordered else _ORDER.get(self.provider, _FENCED)),
            ]
            rows += [(f"Not {name}", why) for name, why in self.why.items() if why != _UNASKED]
        title = "Device (closed)" if self.closed else "Device"
        return card(title, rows, badge=provider_badge(self.provider))


@atexit.register
def _close_all() -> None:
    for device in list(_open_devices):
        # The process ends: what an importer still uses is its own mapping, and stays.
        with contextlib.suppress(DgkitError):
            device.close(timeout=0.1)
