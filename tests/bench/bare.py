# SPDX-License-Identifier: Apache-2.0
"""The bare ring engine of bare_engine.c, called through cffi as dgkit's own core is.

It is compiled at its first use with `cc` into `.cache/bench`, as the extension is: -O2, stable ABI.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import statistics
import subprocess
import sysconfig
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cffi

_HERE = Path(__file__).parent
_SOURCES = (_HERE / "bare_engine.c", _HERE / "bare_engine.h")
_BUILD = _HERE.parents[1] / ".cache" / "bench"
_NAME = "bare_engine_ffi"


def _build() -> Path:
    """Compile the engine, unless these sources were compiled before."""
    text = "".join(path.read_text(encoding="utf-8") for path in _SOURCES)
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    target = _BUILD / key / f"{_NAME}.abi3.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    ffi = cffi.FFI()
    ffi.cdef(text.split("end mark to cffi. */")[1].split("/* cdef: end. */")[0])
    ffi.set_source(_NAME, '#include "bare_engine.h"\n', py_limited_api=True)
    glue = target.with_name(f"{_NAME}.c")
    ffi.emit_c_code(str(glue))
    flags = ["-O2", "-shared", "-fPIC", "-pthread", "-D_GNU_SOURCE", "-DPy_LIMITED_API=0x030a0000"]
    folders = [f"-I{_HERE}", f"-I{sysconfig.get_path('include')}"]
    part = target.with_suffix(".part")
    command = ["cc", *flags, *folders, str(glue), str(_SOURCES[0]), "-o", str(part)]
    subprocess.run(command, check=True)
    part.rename(target)
    return target


def _load() -> Any:
    spec = importlib.util.spec_from_file_location(_NAME, _build())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def engine_batch(n: int, size: int = 64) -> Iterator[Callable[[], Any]]:
    """A function that has the engine copy `n` times `size` bytes, by one call through cffi."""
    native = _load()
    ffi, lib = native.ffi, native.lib
    source, target = (ffi.new("char[]", bytes([i]) * (n * size)) for i in (1, 2))
    requests, results = ffi.new("bare_request[]", n), ffi.new("bare_result[]", n)
    for i in range(n):
        requests[i].dst, requests[i].src = target + i * size, source + i * size
        requests[i].size, requests[i].user = size, i
    engine = lib.bare_open()
    if engine == ffi.NULL:
        raise OSError("the bare engine cannot start its thread")
    call = lib.bare_run
    try:
        yield lambda: call(engine, requests, results, n)
        assert bytes(ffi.buffer(target)[: n * size]) == bytes([1]) * (n * size)
    finally:
        lib.bare_close(engine)


def eventfd_ns(count: int = 500) -> float:
    """Median ns of a hand-off to another thread and back by eventfds."""
    native = _load()
    samples = array("Q", bytes(8 * count))
    raw = native.ffi.from_buffer("uint64_t[]", samples, require_writable=True)
    if native.lib.bare_eventfd(count, raw):
        raise OSError("the eventfds failed")
    return statistics.median(samples)
