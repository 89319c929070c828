"""SHA-256 over bytes that were read by DMA."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..wire.messages import Digest, Digested

if TYPE_CHECKING:
    from .copier import Copier
    from .region_ref import RegionRef

__all__ = ["digest"]


def digest(
    request: Digest, ref: RegionRef, copier: Copier, step: Callable[[int], None]
) -> Digested:
    """Return the SHA-256 of a span of a region, read in chunks into the copier's bounce memory.

    Args:
        request: Offset and size of the span.
        ref: Region to read.
        copier: Provides the queue and the bounce memory.
        step: Called with the bytes done after each chunk; may raise to end the work.
    """
    import hashlib

    hasher = hashlib.sha256()
    remote = ref.as_remote()
    queue = copier.queue_for(remote)
    done = dma_ns = 0
    while done < request.size:
        count = min(copier.chunk, request.size - done)
        transfer = queue.read(
            copier.bounce, remote, size=count, remote_offset=request.offset + done
        )
        dma_ns += transfer.wait().latency_ns
        hasher.update(copier.bounce_bytes[:count])
        done += count
        step(done)
    return Digested(request.id, hasher.hexdigest(), dma_ns)
