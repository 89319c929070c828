# SPDX-License-Identifier: Apache-2.0
"""Write the C file of `dgkit._native`: python build_ffi.py dgkit.h _native.c

The declarations for cffi are cut from the header: the part between its two cdef marks, and the
numeric constants above them. So there is one copy of each declaration.
"""

import re
import sys
from pathlib import Path

import cffi

# A cross build uses the build machine's pyconfig.h; this checks it against the target's sizes.
SOURCE = """\
#include "dgkit.h"
_Static_assert(SIZEOF_VOID_P == sizeof(void *) && SIZEOF_SIZE_T == sizeof(size_t) &&
               SIZEOF_LONG == sizeof(long) && SIZEOF_LONG_LONG == sizeof(long long) &&
               SIZEOF_WCHAR_T == sizeof(wchar_t), "the type sizes in pyconfig.h are wrong");
"""


def declarations(header: str) -> str:
    """Return the declarations in dgkit.h for cffi."""
    head, body = re.split(r"/\* cdef: begin\..*?\*/", header, flags=re.DOTALL)
    constants = re.findall(r"^#define (DG_\w+) \d+$", head, flags=re.MULTILINE)
    body = body.split("/* cdef: end. */")[0]
    return "".join(f"#define {name} ...\n" for name in constants) + body


def main(header: str, output: str) -> None:
    """Read the header and write the C file."""
    ffi = cffi.FFI()
    ffi.cdef(declarations(Path(header).read_text(encoding="utf-8")))
    ffi.set_source("dgkit._native", SOURCE, py_limited_api=True)
    ffi.emit_c_code(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
