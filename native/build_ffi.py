# SPDX-License-Identifier: Apache-2.0
"""Writes the C file of `dgkit._native`: python build_ffi.py dgkit.h _native.c

What cffi is told is the header itself: the part between its two cdef marks, and the plain
number constants above them. So there is one copy of each declaration.
"""

import re
import sys
from pathlib import Path

import cffi

# A cross build takes the build machine's pyconfig.h; this holds it to the target's sizes.
SOURCE = """\
#include "dgkit.h"
_Static_assert(SIZEOF_VOID_P == sizeof(void *) && SIZEOF_SIZE_T == sizeof(size_t) &&
               SIZEOF_LONG == sizeof(long) && SIZEOF_LONG_LONG == sizeof(long long) &&
               SIZEOF_WCHAR_T == sizeof(wchar_t), "pyconfig.h is of a machine with other sizes");
"""


def declarations(header: str) -> str:
    """The part of dgkit.h that cffi is told."""
    head, body = re.split(r"/\* cdef: begin\..*?\*/", header, flags=re.DOTALL)
    constants = re.findall(r"^#define (DG_\w+) \d+$", head, flags=re.MULTILINE)
    body = body.split("/* cdef: end. */")[0]
    return "".join(f"#define {name} ...\n" for name in constants) + body


def main(header: str, output: str) -> None:
    """Reads the header and writes the C file."""
    ffi = cffi.FFI()
    ffi.cdef(declarations(Path(header).read_text(encoding="utf-8")))
    ffi.set_source("dgkit._native", SOURCE, py_limited_api=True)
    ffi.emit_c_code(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
