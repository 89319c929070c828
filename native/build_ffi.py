# SPDX-License-Identifier: Apache-2.0
"""Write the C file of `dgkit._native`, and its stub for mypy, from dgkit.h.

    python build_ffi.py dgkit.h _native.c _native.pyi

The declarations for cffi are cut from the header: the part between its two cdef marks, and the
numeric constants above them. So there is one copy of each declaration. The stub is
cpython/_native.pyi.in, followed by a class for each struct and by `Lib`, with each constant and
function.
"""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import cffi

# A cross build uses the build machine's pyconfig.h; this checks it against the target's sizes.
SOURCE = """\
#include "dgkit.h"
_Static_assert(SIZEOF_VOID_P == sizeof(void *) && SIZEOF_SIZE_T == sizeof(size_t) &&
               SIZEOF_LONG == sizeof(long) && SIZEOF_LONG_LONG == sizeof(long long) &&
               SIZEOF_WCHAR_T == sizeof(wchar_t), "the type sizes in pyconfig.h are wrong");
"""
_WIDTH, _INDENT = 100, " " * 8


def declarations(header: str) -> str:
    """Return the declarations in dgkit.h for cffi."""
    head, body = re.split(r"/\* cdef: begin\..*?\*/", header, flags=re.DOTALL)
    constants = re.findall(r"^#define (DG_\w+) \d+$", head, flags=re.MULTILINE)
    body = body.split("/* cdef: end. */")[0]
    return "".join(f"#define {name} ...\n" for name in constants) + body


def stub(header: str) -> str:
    """Return the declarations in dgkit.h as Python's type annotations."""
    text = re.sub(r"/\*.*?\*/", "", declarations(header), flags=re.DOTALL)
    structs = re.findall(r"typedef struct (\w+)(?: \{(.*?)\})? \w+;", text, re.DOTALL)
    constants = re.findall(r"#define (DG_\w+)", text)
    for members in re.findall(r"enum (?:\w+ )?\{(.*?)\}", text, re.DOTALL):
        constants += re.findall(r"DG_\w+", members)
    filled = [name for name, fields in structs if fields]
    lines: list[str] = []
    for name, fields in structs:
        lines += [f"class {name}(CData):{'' if fields else ' ...'}", *_fields(fields), ""]
    lines += ["class FFI(_FFI):"]
    for name in filled:
        lines += ["    @overload"]
        lines += [f'    def new(self, cdecl: Literal["{name} *"], init: Any = ...) -> {name}: ...']
    lines += ["    @overload", "    def new(self, cdecl: str, init: Any = ...) -> Array: ...", ""]
    lines += ["class Lib:", *(f"    {name}: int" for name in constants)]
    functions = re.findall(r"^(\w[\w ]*[ *])(dg_\w+)\((.*?)\);", text, re.MULTILINE | re.DOTALL)
    for result, name, parameters in functions:
        lines += _function(result, name, parameters, filled)
    return "\n".join([*lines, ""])


def _fields(fields: str) -> Iterator[str]:
    """Yield the attributes for a struct's fields: integers, or pointers and arrays."""
    for declaration in fields.split(";")[:-1]:
        for field in re.sub(r"^\s*(const )?\w+ ", "", declaration).split(","):
            match = re.fullmatch(r"\s*(\*?)(\w+)(\[\w+\])?", field)
            assert match, declaration
            yield f"    {match[2]}: {'Any' if match[1] or match[3] else 'int'}"


def _function(result: str, name: str, parameters: str, structs: list[str]) -> Iterator[str]:
    """Yield the lines of a method of `Lib` for a function."""
    words = ["self"]
    for parameter in parameters.split(","):
        if match := re.fullmatch(r"\s*(.*[ *])(\w+)", parameter):  # not `void`
            words.append(f"{match[2]}: {_parameter_type(match[1], structs)}")
    words.append("/")
    end = f") -> {_result_type(result)}: ..."
    line = f"    def {name}({', '.join(words)}{end}"
    if len(line) <= _WIDTH:
        yield line
        return
    yield f"    def {name}("
    yield from textwrap.wrap(
        ", ".join(words), _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT
    )
    yield f"    {end}"


def _parameter_type(declared: str, structs: list[str]) -> str:
    """Return what may be passed: a handle is one pointer, a struct's may also be an array's."""
    base, pointers = declared.removeprefix("const ").strip(" *"), declared.count("*")
    if not pointers:
        return "int"
    if pointers == 1 and base in ("char", "void", "uint8_t"):
        return "CData | bytes"
    if pointers == 1 and base.startswith("dg_"):
        return f"{base} | Array" if base in structs else base
    return "Array"


def _result_type(declared: str) -> str:
    if "*" in declared:
        return "Array"
    return "None" if declared.strip() == "void" else "int"


def main(header: str, output: str, stub_output: str) -> None:
    """Read the header, and write the C file and the stub."""
    text = Path(header).read_text(encoding="utf-8")
    ffi = cffi.FFI()
    ffi.cdef(declarations(text))
    ffi.set_source("dgkit._native", SOURCE, py_limited_api=True)
    ffi.emit_c_code(output)
    written = Path(__file__).with_name("cpython") / "_native.pyi.in"
    stubs = written.read_text(encoding="utf-8") + "\n" + stub(text)
    Path(stub_output).write_text(stubs, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
