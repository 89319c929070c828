# SPDX-License-Identifier: Apache-2.0
"""Compiler driver with nvcc's arguments, for programs whose kernels run on the emulated GPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from .compiler import FLAGS, WARNINGS, find_compiler, include_dir, translate_host, without_ptx

TYPE_CHECKING = False  # importing typing takes longer than importing this whole module
if TYPE_CHECKING:
    from collections.abc import Sequence

# Its last word is the release of the emulated headers (CUDA_VERSION); build systems look for the V.
VERSION = "dgkit softdoca nvcc: CUDA C++ for the emulated GPU, release 13.0, V13.0.0"

_RUNTIME = ("emulated_gpu.cpp", "emulated/host.cpp")
_PACKED = "-Wno-address-of-packed-member"  # as of GPUNetIO's headers
# Options followed by a word: those of nvcc alone, which mean nothing here, and those of C++ too.
_IGNORED_PAIRS = ("-gencode", "-arch", "-code", "-ccbin", "-cudart", "-x")
_PAIRS = (
    "-o", "-include", "-isystem", "-iquote", "-MF", "-MT", "-MQ", "-I", "-L", "-D", "-l",
    "-Xcompiler",
)  # fmt: skip
_IGNORED = (
    "-forward-unknown-to-host-compiler",
    "-arch=",
    "-gencode=",
    "-code=",
    "-ccbin=",
    "-cudart=",
    "-rdc=",
    "-G",
    "--",
)
_LINKING = ("-L", "-l", "-o", "-c", "-Wl")  # and every file
_HOST = {".c": "c", ".cpp": "c++", ".cc": "c++", ".cxx": "c++"}  # sources without kernels


def compile_as_nvcc(arguments: Sequence[str]) -> int:
    """Compile and link as nvcc would; return the compiler's exit status.

    Args:
        arguments: nvcc's: -c, -o, files, and the options that it shares with a C++ compiler.

    Raises:
        ValueError: There is nothing to compile or to link.
        KernelError: A .cu file does not compile.
        Unsupported: No C++ compiler is installed.
    """
    options, sources, others = _split_arguments(arguments)
    if not sources and ("-c" in others or not _has_file(others)):
        raise ValueError(f"no source file among the arguments {' '.join(arguments)}")
    if "-c" in others:
        named = others if "-o" in others else None
        return max(
            _compile(options, source, named or ["-c", "-o", f"{Path(source).stem}.o"])
            for source in sources
        )
    with tempfile.TemporaryDirectory() as folder:
        objects = [f"{folder}/{number}.o" for number in range(len(sources))]
        for source, target in zip(sources, objects, strict=True):
            if status := _compile(options, source, ["-c", "-o", target]):
                return status
        runtime = [str(include_dir() / name) for name in _RUNTIME]
        return subprocess.call([*_compiler(), *runtime, *objects, *others])


def _has_file(others: Sequence[str]) -> bool:
    """Return whether the linker gets a file, other than that which it writes."""
    named = others.index("-o") + 1 if "-o" in others else None
    return any(number != named and not word.startswith("-") for number, word in enumerate(others))


def _parts(words: str) -> list[str]:
    """Return the options of a list with commas, of which a backslash protects some."""
    return [part.replace("\\,", ",") for part in re.split(r"(?<!\\),", words)]


def _compiler() -> list[str]:
    return [find_compiler(), *FLAGS, *WARNINGS, _PACKED, f"-I{include_dir()}"]


def _split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return compiler options, sources, and other arguments of the linker."""
    options: list[str] = []
    sources: list[str] = []
    others: list[str] = []
    words = iter(arguments)
    for word in words:
        pair = [word, next(words, "")] if word in (*_PAIRS, *_IGNORED_PAIRS) else [word]
        if word in _IGNORED_PAIRS or word.startswith(_IGNORED):
            continue
        if word == "-Xcompiler":
            options += _parts(pair[1])
        elif word.startswith("-Xcompiler="):
            options += _parts(word.removeprefix("-Xcompiler="))
        elif word.startswith("-Xlinker="):
            others += [f"-Wl,{part}" for part in word.removeprefix("-Xlinker=").split(",")]
        elif Path(word).suffix in (".cu", *_HOST):
            sources.append(word)
        elif word.startswith(_LINKING) or not word.startswith("-"):
            others += pair
        else:
            options += pair
    return options, sources, others


def _compile(options: Sequence[str], source: str, target: Sequence[str]) -> int:
    """Compile a file to an object file; host-only files without optimization, as nvcc does."""
    path = Path(source)
    if language := _HOST.get(path.suffix):
        host = [find_compiler(), f"-I{include_dir() / 'emulated'}", *options, *target]
        return subprocess.call([*host, "-x", language, source])
    options = [*options, f"-iquote{path.parent}"]
    text = without_ptx(_compiler(), options, translate_host(path.read_text(), source))
    command = [*_compiler(), *options, *target, "-x", "c++-cpp-output", "-"]
    return subprocess.run(command, input=text, text=True, check=False).returncode
