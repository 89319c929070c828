# SPDX-License-Identifier: Apache-2.0
"""Kernels of the emulated GPU: the same source as for a real GPU, run on the CPU.

A block is an OS thread, and its threads are fibers. Shared memory, barriers, warp collectives,
atomics and clocks work as on a GPU. Its speed says nothing about a GPU.
"""

from __future__ import annotations

import contextlib

from ..validate import whole
from .compiler import compile_program, kernel_names
from .kernel_arguments import Arguments
from .launch import Command, Grid, Launch

TYPE_CHECKING = False  # importing typing takes longer than importing this whole module
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

LABEL = "emulated GPU"
# Limits of a block (CUDA C++ Programming Guide, technical specifications per compute capability).
_THREADS, _SHARED = 1024, 228 << 10
_BLOCKS = 4096  # more would take minutes


def _dimensions(what: str, value: int | Sequence[int]) -> tuple[int, int, int]:
    """Return the x, y and z sizes of a grid or a block."""
    given = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(given) <= 3:
        raise ValueError(f"{what} is {value!r}; it has one to three sizes")
    sizes = [whole(what, size, 1) for size in given]
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


class EmulatedKernel:
    """Kernel of an emulated module, called in the same way as a CuPy kernel.

    Attributes:
        name: Name of the kernel.
        label: "emulated GPU", to be shown beside every figure.
    """

    label = LABEL

    def __init__(self, command: Command, name: str) -> None:
        self._command = command
        self.name = name

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        **options: Any,
    ) -> None:
        """Run a grid and wait for its end; arguments and options are those of start()."""
        self.start(grid, block, args, **options).wait()

    def start(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        shared_mem: int = 0,
        seed: int = 0,
        timeout: float = 60.0,
    ) -> Launch:
        """Start a grid in a child process.

        Args:
            grid: Number of blocks, or up to three sizes (x, y, z).
            block: Number of threads in a block, or up to three sizes (x, y, z); at most 1024 in
                total.
            args: Numbers, GPU queues, and memory. Memory of `dgkit.empty` and regions over it are
                shared with the kernel; other buffers are copied in, and copied back by wait().
            shared_mem: Dynamic shared memory of a block in bytes.
            seed: Seed of the order in which threads run; another seed gives another interleaving.
                From 2**63 on, a thread that waits for an operation keeps its turn meanwhile.
            timeout: Seconds after which the grid is stopped.

        Raises:
            TypeError, ValueError: A size or an argument is invalid.
        """
        blocks, threads = _dimensions("grid", grid), _dimensions("block", block)
        if threads[0] * threads[1] * threads[2] > _THREADS:
            raise ValueError(f"block is {block!r}; a block has at most {_THREADS} threads")
        if blocks[0] * blocks[1] * blocks[2] > _BLOCKS:
            raise ValueError(f"grid is {grid!r}; the {LABEL} runs at most {_BLOCKS} blocks")
        if not 0 <= shared_mem <= _SHARED:
            raise ValueError(f"shared_mem is {shared_mem} bytes; the limit is {_SHARED}")
        if not 0 < timeout < 1e6:
            raise ValueError(f"timeout is {timeout!r} s; it must be more than 0 and below 1e6")
        shape = Grid(blocks, threads, shared_mem, whole("seed", seed), timeout)
        arguments = Arguments(args)
        try:
            return Launch(self._command, self.name, shape, arguments)
        except BaseException:
            with contextlib.suppress(OSError):
                arguments.close()
            raise

    def __repr__(self) -> str:
        return f"<dgkit kernel {self.name}, {LABEL}>"


class EmulatedModule:
    """Compiled source; `module["kernel"]` returns a kernel. Created by `emulate`.

    Args:
        command: Command that runs a grid of the compiled program.
        names: Names of the program's kernels.
    """

    label = LABEL

    def __init__(self, command: Command, names: list[str]) -> None:
        self._command = command
        self.names = names

    def __getitem__(self, name: str) -> EmulatedKernel:
        if name not in self.names:
            known = ", ".join(self.names) or "none"
            raise KeyError(f"there is no kernel {name!r}; the source has: {known}")
        return EmulatedKernel(self._command, name)

    get_function = __getitem__

    def __repr__(self) -> str:
        return f"<dgkit module of {', '.join(self.names)}, {LABEL}>"


def emulate(source: str, *, options: Sequence[str] = (), tsan: bool = False) -> EmulatedModule:
    """Compile CUDA C++ for the emulated GPU.

    Args:
        source: CUDA C++, which may include dgkit_device.cuh, and headers of GPUNetIO Verbs:
            NVIDIA's if `options` has their folders, else dgkit's. It and headers of folders named
            by `-I` may have inline PTX without branches, and include `<cuda/atomic>`.
        options: Further arguments of the compiler, such as `-DNAME=1`, `-I/folder`, or
            `-D__CUDA_ARCH__=800` (with inline PTX the default is 900).
        tsan: Compile the kernels with ThreadSanitizer, which then reports data races between
            the threads of a launch.

    Raises:
        KernelError: The source does not compile, or has a PTX statement that is not known.
        Unsupported: No C++ compiler is installed.
    """
    program = compile_program(source, options=options, tsan=tsan)
    return EmulatedModule(Command(program), kernel_names(source))
