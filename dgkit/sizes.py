# SPDX-License-Identifier: Apache-2.0
"""Sizes of the data chunks, slots, windows and messages of the DPU and its clients."""

from __future__ import annotations

KIB, MIB = 1 << 10, 1 << 20

#: Largest copy that always runs in the thread that requests it: about 10 us. A waiting caller also
#: runs larger ones itself, where it can (`DpuService.run`).
INLINE_MAX = 64 * KIB
#: Chunk of a copy between regions, of a digest, and of a request that an agent serves; between
#: two chunks the agent checks for cancellation.
COPY_CHUNK = 1 * MIB
#: Chunk of a copy by the CPU: still in the cache, after it was read, when it is written. An agent's
#: work between two chunks costs 5 to 20 % of the copy at 256 KiB, and half of that at 512 KiB.
CACHED = 512 * KIB
#: Larger copies between GPU memories go directly from GPU to GPU, without bounce memory.
GPU_LEAST = 64 * KIB
#: Chunk of a copy from GPU to GPU: 256 MiB take 0.7 ms by NVLink.
GPU_CHUNK = 256 * MIB
#: Such chunks in flight: one is read while the one before it is written.
WINDOW = 2
#: How long a session's worker waits for one chunk before it checks the other jobs.
WAIT_S = 0.02

#: Staging slot for data of at most this size, which one request of a session moves, whether or
#: not the caller waits.
SMALL = 64 * KIB
#: Number of small staging slots of a session: such writes and reads of all threads together.
SMALL_SLOTS = 16
#: How long a small transfer waits for such a slot, before the worker has to move it: an agent that
#: is not stuck frees one in about 20 us.
SLOT_WAIT_S = 0.01
#: Largest write or read that waits and is one request to an agent, without the session's worker
#: (`RemoteDpu._move_whole`); chunk and staging slot of all other transfers of a session.
LARGE = 2 * MIB
#: Such chunks in flight: the latency of a request hides behind the DMA of the three others.
LARGE_SLOTS = 4
#: Piece of data that crosses the control connection where both sides are agents; half a request.
STAGE_BYTES = 32 * KIB
#: Such pieces in flight; with unread replies, they stay below the limit of an agent.
STAGE_SLOTS = 8

#: Latency samples in one message: 32 KiB.
SAMPLES_A_BLOCK = 4096
#: Such messages that an agent queues before it pauses the measurement. With those of STAGE_SLOTS
#: they stay below its limit of unread replies: an honest client that is slow is not ended.
BLOCKS_AHEAD = 6
#: Most memory, on each side, that a window of transfers cycles through in a bandwidth measurement.
RATE_BYTES = 16 * MIB
#: Most bytes that the measurement of a floor copies.
FLOOR_BYTES = 64 * MIB
#: Most bytes that one point of a latency sweep moves, so that 64 MiB do not take minutes.
SWEEP_BYTES = 512 * MIB
#: An offset into scratch memory is kept modulo this, so that its alignment is that of the region:
#: the larger page of the two sides, as BlueField's Arm cores have pages of 64 KiB since DOCA 3.2.
SCRATCH_PAGE = 64 * 1024


def rate_span(size: int, window: int) -> int:
    """Return the bytes, on each side, that `window` transfers of `size` bytes cycle through.

    A smaller region would make them share cache lines, which changes their rate.
    """
    return max(size, min(size * window, RATE_BYTES))
