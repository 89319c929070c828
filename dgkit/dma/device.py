# SPDX-License-Identifier: Apache-2.0
"""Open provider, with its regions and queues."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import warnings
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from ..errors import ClosedError, DgkitError
from ..live_set import LiveSet
from ..types import (
    DEFAULT_PROVIDER,
    DOCA,
    Access,
    TransferPath,
    parse_access,
    provider_label,
)
from ..validate import whole
from ._ffi import check, ffi, lib, nanoseconds, open_handle, spin_ns
from .context import DeviceContext
from .gpu_queue import GpuQueue, RingConfig, free_rings, ring_depth, wait_for_kernels
from .gpu_queue_proxy import Proxy
from .queue import Queue
from .region import ON_DEMAND, SHARE_PROCESS, Region, RemoteRegion

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from typing import Any

    from ._ffi import native
    from .fault import FaultRule
    from .nic import Nic
    from .provider_info import Caps, DeviceStats


_GPU_MAX = (1 << 32) - 1
_ORDER, _FENCED = {"cuda": "between posts", "verbs": "within a region"}, "behind a fence"
_ATOMICS = ("none", "with respect to the same adapter's", "with respect to CPUs, too")
_USABLE = "not asked for"  # `why` of a provider that could have been used
_open_devices: LiveSet[Device] = LiveSet()


class Device(DeviceContext):
    """Open provider. Closing it closes its queues and regions; use it in a `with` statement.

    Any thread may use a device, its regions and its queues, even while another thread closes them:
    calls after the close raise ClosedError.

    Args:
        provider: `"soft"` (this machine's CPU copies: the software DPU), `"cuda"` (a GPU's copy
            engine), `"verbs"` (an RDMA adapter, or Soft-RoCE), `"doca"` (a BlueField's DMA engine,
            through DOCA), `"softdoca"` (the same code over DOCA in software; a process can use only
            one of the two) or `"fault"` (wraps another provider and injects faults).
        spin_us: How long the engine spins before it sleeps, in microseconds. On one CPU it sleeps
            at once.
        over: Provider that `"fault"` wraps.
        rules: Faults that `"fault"` injects.
        gpu: Index of the GPU, for `"cuda"`.
        pci: PCI address of DOCA's function ("03:00.0"), for `"doca"` and `"softdoca"`; None for the
            first that supports DMA.
        rdma: Name of the RDMA device ("mlx5_0"; `rdma link` lists them), for `"verbs"`; None for
            the first port with a link and an address.

    Raises:
        DeviceUnavailable: The provider cannot be used here, or the device was used after fork().
        OutOfMemory: The GPU has no memory for a CUDA context.
    """

    def __init__(
        self,
        provider: str = DEFAULT_PROVIDER,
        *,
        spin_us: float = 200.0,
        over: str = "soft",
        rules: Sequence[FaultRule] = (),
        gpu: int = 0,
        pci: str | None = None,
        rdma: str | None = None,
    ) -> None:
        super().__init__(provider)
        _check_arguments(provider, over, rules, gpu)
        _check_name("pci", pci, "'03:00.0'", DOCA, (provider, over))
        _check_name("rdma", rdma, "'mlx5_0'", {"verbs"}, (provider, over))
        config, _alive = _device_config(spin_us, over, rules, gpu, {"pci": pci, "rdma": rdma})
        self._queues: LiveSet[Queue] = LiveSet()
        self._gpu_queues: LiveSet[GpuQueue] = LiveSet()
        self._nics: LiveSet[Nic] = LiveSet()
        self._proxy: Proxy | None = None
        self._proxy_lock = threading.Lock()
        open_handle(self, "_d", "dg_device", (), lib.dg_device_open, provider.encode(), config)
        _open_devices.add(self)

    @property
    def caps(self) -> Caps:
        """Capabilities of the provider."""
        from .provider_info import Caps

        raw = ffi.new("dg_caps *")
        check(lib.dg_device_caps(self._handle(), raw))
        name = ffi.string(raw.provider).decode()
        return Caps(
            name, raw.max_size, raw.inline_max, raw.spin_ns, bool(raw.ordered), raw.max_queues,
            ffi.string(raw.engine).decode(errors="replace"), raw.atomics,
        )  # fmt: skip

    @property
    def stats(self) -> DeviceStats:
        """Counters of the engine, which say whether it slept."""
        from .provider_info import DeviceStats

        raw = ffi.new("dg_stats *")
        check(lib.dg_device_stats(self._handle(), raw))
        return DeviceStats(raw.engine_sleeps, raw.engine_moves)

    @property
    def why(self) -> dict[str, str]:
        """Map each other provider to the reason why it was not chosen."""
        from .provider_info import providers

        others = (p for p in providers(deep=False) if p.name != self.provider)
        return {p.name: _USABLE if p.usable else p.why for p in others}

    def register(
        self,
        memory: Any,
        access: str | Access | None = None,
        *,
        offset: int = 0,
        size: int | None = None,
        name: str | None = None,
        share_process: bool = False,
        on_demand: bool = False,
    ) -> Region:
        """Register a Memory (`dgkit.empty`) or any contiguous buffer, in place.

        The region keeps the memory alive. Do not call `resize(..., refcheck=False)` of a registered
        NumPy array: it frees the memory under the region, which cannot be detected.

        Register an array on a GPU as `dgkit.wrap(array)`. Providers that cannot copy GPU memory
        can only export such a region; `doca`, `softdoca` and `verbs` receive its dma-buf, else its
        address for nvidia-peermem.

        Args:
            memory: Memory, or object with a buffer.
            access: What DMA may do: `"r"`, `"w"` or `"rw"`; None for all that the memory allows,
                which is `"r"` for read-only memory.
            offset: Where the region begins in the memory; bytes.
            size: Bytes; None for all from `offset` on.
            name: Shown in its repr and cards.
            share_process: Importers may open this process to copy (Yama's PR_SET_PTRACER,
                prctl(2)).
            on_demand: Do not pin the memory: the RDMA adapter pages it (ODP). For `"verbs"` and
                host memory.

        Raises:
            TypeError: `memory` has no buffer.
            ValueError: `on_demand` for GPU memory.
            Unsupported: It is not contiguous, or a PyTorch tensor that requires grad; or the
                provider, or its adapter, cannot page memory on demand.
            AccessDenied: `"w"` or `"rw"` for read-only memory.
            BoundsError: The range exceeds the memory.
            ExportError: The memfd is not sealed, or DOCA or the RDMA adapter cannot use this GPU
                memory.
        """
        flags = None if access is None else parse_access(access)
        how = (SHARE_PROCESS if share_process else 0) | (ON_DEMAND if on_demand else 0)
        return Region(self, memory, flags, part=(offset, size), name=name, flags=how)

    def import_region(self, token: bytes, timeout: float = 1.0) -> RemoteRegion:
        """Import a region from its descriptor, exported by this or another process of this user.

        Args:
            token: The descriptor.
            timeout: Seconds to wait for the exporter.

        Raises:
            DescriptorError: The descriptor is malformed, or its region was closed.
            PeerLost: The exporter is gone.
            PeerTimeout: The exporter did not answer in time.
            PeerVersion: The exporter uses another version of the descriptor.
            Unsupported: The region belongs to another machine.
            ExportError: Using its memory could kill this process (the memfd is not sealed).
        """
        return RemoteRegion(self, token, timeout)

    def queue(
        self,
        depth: int = 256,
        path: str | TransferPath = "auto",
        *,
        spin_us: float = 50.0,
        op_timeout: float = 30.0,
    ) -> Queue:
        """Open a queue.

        Args:
            depth: Maximum number of operations posted and not yet reaped, 1 to 65,536.
            path: `"auto"`, `"inline"` or `"worker"`.
            spin_us: How long a wait spins before it sleeps, in microseconds.
            op_timeout: Seconds after which an operation without a completion ends as TIMED_OUT.
        """
        queue = Queue(self, depth, path, spin_us=spin_us, op_timeout=op_timeout)
        self._queues.add(queue)
        return queue

    def gpu_queue(
        self,
        depth: int = 1024,
        *,
        weak: bool = False,
        timeout: float = 10.0,
        trace: bool = False,
        first: int = 0,
        spin_us: float = 1000.0,
        regions: Iterable[Region | RemoteRegion] = (),
    ) -> GpuQueue:
        """Open a queue that kernels post to (dgkit_device.cuh). A thread of this process serves it.

        Args:
            depth: Maximum number of operations posted and not complete: rounded up to a power of
                two, 64 to 16,384.
            weak: Kernels choose the slot of each operation, instead of taking the next one.
            timeout: Seconds after which a wait of a kernel ends as TIMED_OUT.
            trace: Kernels store their clock for each operation; see `GpuQueue.trace`.
            first: Number of the first operation, up to 2**56 - 1.
            spin_us: How long the thread spins when all queues are idle, in microseconds; taken
                from the first queue of the device.
            regions: Regions that the kernels will use, checked now. Without this check, a kernel's
                operation that the provider cannot copy completes as UNSUPPORTED.

        Raises:
            Unsupported: The provider cannot run a kernel's operations, or not with these regions.
            ValueError: `depth` or `first` is out of range, or a region is of another device.
        """
        spin_ns(spin_us)
        with self._proxy_lock:
            proxy = self._proxy
            if proxy is None:
                proxy = self._proxy = Proxy(self, spin_us)
        config = RingConfig(
            ring_depth(depth), weak=bool(weak), timeout=timeout, trace=bool(trace), first=first
        )
        queue = GpuQueue(proxy, config, regions)
        self._gpu_queues.add(queue)
        return queue

    def nic(self, *, spin_us: float = 1000.0) -> Nic:
        """Start a software NIC: a thread that executes mlx5 work queue entries of kernels.

        NVIDIA's open device headers of GPUNetIO Verbs post to its queue pairs, unmodified. For a
        kernel of your own, `gpu_queue` is the shorter and faster way.

        Args:
            spin_us: How long the thread spins when all queue pairs are idle, in microseconds.

        Raises:
            Unsupported: The provider can move no bytes for a NIC: it must be soft, cuda or fault.
        """
        from .nic import Nic

        nic = Nic(self, spin_us)
        self._nics.add(nic)
        return nic

    def close(self, timeout: float = 1.0) -> None:
        """Close the queues, then the regions, then the device. Idempotent.

        Args:
            timeout: Seconds to wait for each region that is in use.

        Raises:
            RegionBusy: A region is still in use, or a kernel that was launched with a GPU queue
                of a provider `"cuda"` still runs. The device stays open, and close() may be called
                again.
            QueueInUse: Another thread is using a queue. The device stays open.
        """
        if self._closed:
            return
        self._close_children(timeout)
        check(lib.dg_device_close(self._d.c, nanoseconds(timeout)))
        self._closed = True
        self._close_children(timeout)  # children that another thread opened meanwhile

    def _close_children(self, timeout: float) -> None:
        for gpu_queue in self._gpu_queues:
            gpu_queue.close()
        for nic in self._nics:
            nic.close()
        free_rings()
        proxy = self._proxy
        if proxy is not None:
            if self.provider == "cuda":
                wait_for_kernels(timeout)
            proxy.close()
            self._proxy = None
        for queue in self._queues:
            queue.close()
        for region in self._regions:
            region.close(timeout)

    def __enter__(self) -> Device:
        self._handle()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_d", None) is not None and not self._closed:
            if self._pid == os.getpid():
                warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1)
            # If an importer still uses a region, the region and the device stay open.
            with contextlib.suppress(DgkitError):
                self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        # The provider's name, "fault", already says that faults are injected.
        label = provider_label(self._label).partition(", injected")[0]
        return f"<dgkit.Device {self.provider}, {label}, {state}>"

    def _repr_html_(self) -> str:
        from ..html_cards import card, provider_badge
        from ..units import plural

        rows: list[tuple[str, object]] = [("Provider", self.provider)]
        with contextlib.suppress(ClosedError):
            caps = self.caps
            rows += [("Engine", caps.engine)] if caps.engine else []
            rows += [
                ("Largest inline copy", plural(caps.inline_max, "byte")),
                ("Engine spins", f"{caps.spin_ns / 1000:g} µs before it sleeps"),
                ("Engine slept", plural(self.stats.engine_sleeps, "time")),
                ("Keeps order", "yes" if caps.ordered else _ORDER.get(self.provider, _FENCED)),
                ("Atomic operations", _ATOMICS[caps.atomics]),
            ]
            rows += [(f"Not {name}", why) for name, why in self.why.items() if why != _USABLE]
        title = "Device (closed)" if self.closed else "Device"
        return card(title, rows, badge=provider_badge(self._label))


def _check_arguments(provider: str, over: str, rules: Sequence[FaultRule], gpu: int) -> None:
    for name in (provider, over):
        if not isinstance(name, str):
            raise TypeError(f"provider is {name!r}; it must be text, as 'soft'")
        if not name.isprintable():
            raise ValueError(f"provider is {name!r:.80}; a name has printable characters only")
    if not isinstance(rules, Sequence):
        raise TypeError(f"rules is {rules!r:.60}; it must be a list of FaultRule")
    if rules and provider != "fault":
        raise ValueError(f"rules are for the provider 'fault', not for {provider!r}")
    if gpu and "cuda" not in (provider, over):
        raise ValueError(f"gpu={gpu!r} is for the provider 'cuda', not for {provider!r}")


def _check_name(
    what: str, name: str | None, like: str, providers: AbstractSet[str], given: tuple[str, str]
) -> None:
    """Check an argument that names hardware, for some providers only."""
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"{what} is {name!r}; it must be text, as {like}, or None")
    if providers.isdisjoint(given):
        fitting = " and ".join(map(repr, sorted(providers)))
        raise ValueError(f"{what}={name!r} is for {fitting}, not for {given[0]!r}")
    if not name.isprintable():
        raise ValueError(f"{what} is {name!r:.80}; a name has printable characters only")


def _device_config(
    spin_us: float, over: str, rules: Sequence[FaultRule], gpu: int, names: dict[str, str | None]
) -> tuple[native.dg_device_config, list[native.Array]]:
    """Return a `dg_device_config`, and the objects to keep alive while it is in use."""
    config = ffi.new("dg_device_config *")
    config.shared = 1
    config.spin_ns = spin_ns(spin_us)
    config.gpu = min(whole("gpu", gpu), _GPU_MAX)
    alive = [ffi.new("char[]", over.encode())]
    config.over = alive[0]
    for field, name in names.items():
        if name is not None:
            alive.append(ffi.new("char[]", name.encode()))
            setattr(config, field, alive[-1])
    if rules:
        from .fault import native_rules

        alive.append(native_rules(rules))
        config.rules, config.n_rules = alive[-1], len(rules)
    return config, alive


@atexit.register
def _close_all() -> None:
    for device in _open_devices:
        # An importer keeps its own mapping when this process exits.
        with contextlib.suppress(DgkitError):
            device.close(timeout=0.1)
