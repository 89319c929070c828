"""Sizes of chunks, slots, windows and messages of data, of the DPU and its clients."""

from __future__ import annotations

__all__ = [
    "BLOCKS_AHEAD",
    "CACHED",
    "COPY_CHUNK",
    "FLOOR_BYTES",
    "GPU_CHUNK",
    "GPU_LEAST",
    "INLINE_MAX",
    "LARGE",
    "LARGE_SLOTS",
    "RATE_BYTES",
    "SAMPLES_A_BLOCK",
    "SCRATCH_PAGE",
    "SMALL",
    "SMALL_SLOTS",
    "SPREAD",
    "STAGE_BYTES",
    "STAGE_SLOTS",
    "SWEEP_BYTES",
    "WAIT_S",
    "WINDOW",
]

KIB, MIB = 1 << 10, 1 << 20

#: Largest copy that runs in the thread that requests it: about 10 us.
INLINE_MAX = 64 * KIB
#: Chunk of a copy, a digest or a move; an agent checks for cancellation after each.
COPY_CHUNK = 1 * MIB
#: Chunk of a copy by the CPU: when it is written, the cache still has what the read put there.
CACHED = 256 * KIB
#: Copies of more than this between memory of GPUs go from GPU to GPU, without bounce memory.
GPU_LEAST = 64 * KIB
#: Chunk of a copy from GPU to GPU: 256 MiB take 0.7 ms by NVLink.
GPU_CHUNK = 256 * MIB
#: Chunks of a job that are in flight at a time: one is read while the one before it is written.
WINDOW = 2
#: How long the worker of a DPU waits for one DMA before it looks at the other jobs.
WAIT_S = 0.02

#: Staging slot for data of at most this size, which one request of a session moves.
SMALL = 64 * KIB
#: Small staging slots of a session: requests that threads have in flight together.
SMALL_SLOTS = 16
#: Staging slot, and so chunk, of larger data.
LARGE = 2 * MIB
#: Large staging slots of a session: three hide the latency of a request behind the DMA of others.
LARGE_SLOTS = 4
#: Piece of data that crosses the control connection where both sides are agents; half a request.
STAGE_BYTES = 32 * KIB
#: Such pieces in flight; with the replies that are not read, less than an agent allows.
STAGE_SLOTS = 8

#: Latency samples in one message: 32 KiB.
SAMPLES_A_BLOCK = 4096
#: Such messages of a measurement that an agent has queued before it pauses the measurement.
BLOCKS_AHEAD = 16
#: Local memory that a window of small transfers cycles through when bandwidth is measured.
RATE_BYTES = 16 * MIB
#: Scratch memory that a window of writes spreads over when bandwidth is measured.
SPREAD = 16 * MIB
#: Bytes that the measurement of a floor copies at most.
FLOOR_BYTES = 64 * MIB
#: Bytes that one point of a latency sweep moves at most, so that 64 MiB do not take minutes.
SWEEP_BYTES = 512 * MIB
#: An offset into scratch memory is kept modulo this, so that its alignment is that of the region.
SCRATCH_PAGE = 4096
