# SPDX-License-Identifier: Apache-2.0
"""NVRTC, NVIDIA's compiler as a library: it needs no GPU."""

import ctypes
import functools
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import pytest

# The packages of nvidia-cuda-nvrtc-cu12 and of nvidia-cuda-nvrtc.
LIBRARIES = {12: "nvidia/cuda_nvrtc/lib/libnvrtc.so.12", 13: "nvidia/cu13/lib/libnvrtc.so.13"}
_DEPRECATED = "deprecated"  # NVRTC's own warning for GPUs that the next release refuses


def package_file(path: str) -> Path | None:
    """Return a file of a namespace package, if it is installed."""
    top = importlib.util.find_spec(path.partition("/")[0])
    for folder in (top and top.submodule_search_locations) or ():
        if (found := Path(folder).parent / path).exists():
            return found
    return None


@functools.cache
def library(major: int) -> ctypes.CDLL:
    """Return NVRTC of a major version of CUDA; skip the test if it is not installed."""
    found = package_file(LIBRARIES[major])
    if found is None:
        pytest.skip(f"NVRTC {major} is not here: pip install '.[test]'")
    return ctypes.CDLL(str(found))


class CompileError(Exception):
    """The compiler's log."""


def compile_ptx(major: int, source: str, options: Sequence[str]) -> str:
    """Return the PTX of a CUDA source; warnings are errors, too."""
    nvrtc, program = library(major), ctypes.c_void_p()
    code = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
    )
    assert code == 0
    try:
        given = [option.encode() for option in options]
        code = nvrtc.nvrtcCompileProgram(
            program, len(given), (ctypes.c_char_p * len(given))(*given)
        )
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        log = "\n".join(line for line in log.splitlines() if _DEPRECATED not in line)
        if code or log:
            raise CompileError(f"NVRTC {major}: error {code}\n{log}")
        return _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(size_of: object, get: object, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    assert size_of(program, ctypes.byref(size)) == 0  # type: ignore[operator]
    text = ctypes.create_string_buffer(size.value)
    assert get(program, text) == 0  # type: ignore[operator]
    return text.value.decode()
