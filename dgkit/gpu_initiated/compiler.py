# SPDX-License-Identifier: Apache-2.0
"""Compiler of the emulated GPU: turns CUDA C++ into a program that runs one grid on the CPU."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..errors import KernelError, Unsupported
from ..files import installed_softdoca, is_own, make_user_folder, read_regular
from . import ptx

_PACKAGE = Path(__file__).resolve().parent
# The header's folder in an installation, and in a clone.
_FOLDERS = (_PACKAGE / "include", _PACKAGE.parents[1] / "native" / "gpu_initiated")
_VERBS_HEADER = "doca_gpunetio_dev_verbs_onesided.cuh"
SOURCE_NAME = "kernel.cu"  # the name in compiler messages and in reports of stopped threads
_COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-std=c++17", "-O1", "-g", "-fno-omit-frame-pointer", "-pthread", "-rdynamic")
WARNINGS = ("-Wno-unknown-pragmas", "-Wno-attributes")
# What a source includes besides dgkit's header and the system's may have inline PTX.
_FOREIGN = re.compile(r"\b(?:asm|__asm__)\b|#\s*include\s*[<\"](?:cuda|/)")
_CAPABILITY = "-D__CUDA_ARCH__="
_MAX_BYTES = 256 << 20  # of a program
_LIMIT = 120.0  # seconds that one run of the compiler may take

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_KERNEL = re.compile(
    r"(template\s*<[^{;]*>\s*)?(?:extern\s*\"\s*\"\s*|static\s+)?__global__\s+"
    r"(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
)
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+((?:__align__\s*\([^)]*\)\s*|alignas\s*\([^)]*\)\s*)?)([\w:\s]+?)\s+"
    r"(\w+)\s*\[\s*\]\s*;"
)
_DYNAMIC_HERE = r"\2 *const \3 = (\2 *)dg_emu::dynamic_shared();"
_LAUNCH = re.compile(r"(\w+(?:\s*<[^<>;]*>)?)\s*<<<(.*?)>>>\s*\(", re.DOTALL)


def include_dir() -> Path:
    """Return the folder of dgkit_device.cuh, for a compiler's `-I` option.

    Raises:
        FileNotFoundError: The installation lacks the header.
    """
    for folder in _FOLDERS:
        if (folder / "dgkit_device.cuh").is_file():
            return folder
    raise FileNotFoundError(f"dgkit_device.cuh is not in {_FOLDERS[0]}: install dgkit again")


def verbs_include_dirs(source: str) -> list[Path]:
    """Return the folder of dgkit's GPUNetIO headers if a source names one of GPUNetIO's, else none.

    It belongs behind all other folders of headers, so that NVIDIA's are used where they are given.
    """
    if "doca_gpunetio" not in source:
        return []
    folder = installed_softdoca() / "include"
    return [folder] if (folder / _VERBS_HEADER).is_file() else []


def _without_comments(source: str) -> str:
    """Replace comments and string literals by blanks; line numbers stay the same."""
    blank = re.compile(r"[^\n\"]")
    return _COMMENTS.sub(lambda found: blank.sub(" ", found[0]), source)


def kernel_names(source: str) -> list[str]:
    """Return the names of the kernels in a source, except templates."""
    return [name for template, name in _KERNEL.findall(_without_comments(source)) if not template]


def translate(source: str) -> str:
    """Translate CUDA C++ to C++: declare dynamic shared memory, and register the kernels."""
    names = kernel_names(source)
    body = _DYNAMIC.sub(_DYNAMIC_HERE, source)
    kernels = (
        f'static const dg_emu::Kernel<&{name}> dg_emu_kernel_{i}("{name}");'
        for i, name in enumerate(names)
    )
    tail = '#line 1 "kernels"\n' + "\n".join(kernels)
    return f'#include "emulated_gpu.h"\n#line 1 "{SOURCE_NAME}"\n{body}\n{tail}\n'


def translate_host(source: str, name: str) -> str:
    """Translate a CUDA C++ file with host code to C++; `name` is its path, for messages."""
    body = _DYNAMIC.sub(_DYNAMIC_HERE, source)
    body = _LAUNCH.sub(r"dg_emu::configure(\1, \2)(", body)
    return f'#include "emulated/host.h"\n#line 1 "{name}"\n{body}'


def find_compiler() -> str:
    """Return the C++ compiler: $CXX, or the first of c++, g++ and clang++ that is installed.

    Raises:
        Unsupported: No compiler is installed.
    """
    for name in (os.environ.get("CXX", ""), *_COMPILERS):
        if name and (found := shutil.which(name)):
            return found
    raise Unsupported(
        errno.EOPNOTSUPP,
        "the emulated GPU needs a C++17 compiler, and none of $CXX, c++, g++ and clang++ is "
        "installed: apt install g++",
    )


def _cache() -> Path:
    """Return the folder for compiled programs, accessible to this user only.

    Raises:
        NativeError: It cannot be created.
        AccessDenied: It belongs to another user, or other users can write to it.
    """
    return make_user_folder("CACHE", "emulated_gpu")


def _program_name(key: str, content: bytes) -> str:
    """Return the file name of a program: digests of its source, and of source and program."""
    return f"{key}-{hashlib.sha256(key.encode() + content).hexdigest()[:32]}"


def _find(folder: Path, key: str) -> Path | None:
    """Return the program of a key; remove files that are not this user's, or changed."""
    for path in folder.glob(f"{key}-*"):
        with contextlib.suppress(OSError, ValueError):  # a link, removed, large
            if is_own(path.lstat()) and path.name == _program_name(
                key, read_regular(path, _MAX_BYTES)
            ):
                return path
        path.unlink(missing_ok=True)
    return None


def _run_compiler(command: Sequence[str], text: str = "") -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_LIMIT, input=text
        )
    except subprocess.TimeoutExpired:
        raise KernelError(f"{command[0]} did not finish within {_LIMIT:.0f} s") from None
    if done.returncode:
        raise KernelError(f"emulated GPU: the kernel does not compile\n{done.stderr.strip()}")
    return done.stdout


def without_ptx(command: Sequence[str], options: Sequence[str], text: str) -> str:
    """Preprocess a translated source and replace its inline PTX, and that of its headers."""
    defaults = [f"-I{include_dir() / 'emulated'}"]
    if not any(option.startswith(_CAPABILITY) for option in options):
        defaults.append(f"{_CAPABILITY}900")
    expand = [*command, *defaults, *options, "-E", "-x", "c++", "-"]
    return ptx.translate(_run_compiler(expand, f'#include "emulated/ptx.h"\n{text}'))


def compile_program(source: str, *, options: Sequence[str] = (), tsan: bool = False) -> Path:
    """Compile a CUDA source to a program for the emulated GPU, or take it from the cache.

    Args:
        source: CUDA C++.
        options: Further arguments of the compiler, such as `-DNAME=1` or `-I/folder`.
        tsan: Compile the kernels with ThreadSanitizer.

    Returns:
        The program.

    Raises:
        AccessDenied: The cache's folder is not this user's, or others can write to it.
        KernelError: The source does not compile; the message includes the compiler's output.
        Unsupported: No C++ compiler is installed.
    """
    headers, text = include_dir(), translate(source)
    options = [*options, *(f"-I{folder}" for folder in verbs_include_dirs(source))]
    command = [find_compiler(), *FLAGS, *WARNINGS, f"-I{headers}"]
    sanitizer = ["-fsanitize=thread"] if tsan else []
    language = "c++"
    if any(option.startswith(("-I", "-i")) for option in options) or _FOREIGN.search(source):
        command.append("-Wno-address-of-packed-member")
        text = without_ptx([*command, *sanitizer], options, text)
        language = "c++-cpp-output"
    digest = hashlib.sha256()
    for part in (*command, *sanitizer, *options, text):
        digest.update(part.encode() + b"\0")
    for header in sorted(headers.glob("*.*")):
        digest.update(header.read_bytes())
    cache, key = _cache(), digest.hexdigest()[:32]
    if program := _find(cache, key):
        return program
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        work = Path(folder)
        objects = [str(work / "kernel.o"), str(work / "runtime.o")]
        kernel = [*command, *sanitizer, *options, "-x", language, "-c", "-", "-o", objects[0]]
        _run_compiler(kernel, text)
        define = ["-DDG_EMU_TSAN"] if tsan else []
        _run_compiler(
            [*command, *define, "-c", str(headers / "emulated_gpu.cpp"), "-o", objects[1]]
        )
        _run_compiler([*command, *sanitizer, *objects, "-o", str(made := work / "program")])
        made.chmod(0o700)
        # atomic: other processes may compile the same source
        return made.replace(cache / _program_name(key, made.read_bytes()))
