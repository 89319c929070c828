"""What a device can do."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Caps"]


@dataclass(frozen=True, slots=True)
class Caps:
    """What a provider can do. Sizes are bytes; spin_ns 0: its engine sleeps at once.

    `engine` is what copies, in words: "GPU 0, NVIDIA H200", "DOCA 3.0.0058, 0000:03:00.0 mlx5_0";
    "" for this machine's CPU. `ordered`: writes of one queue become visible in posting order; where
    it is False, those behind a fence do, and with `cuda` those of different calls.
    """

    provider: str
    max_size: int
    inline_max: int
    spin_ns: int
    ordered: bool
    max_queues: int
    engine: str
