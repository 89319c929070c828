# SPDX-License-Identifier: Apache-2.0
"""Write the recorder's functions, and the description of them for `dgkit softdoca compare`.

    python generate.py ../include functions.c functions.json

Both are generated from softdoca's headers, so that each function of them is recorded. A parameter
has a kind, a character:

    h H    a handle; one returned through a pointer
    l L    a list of handles; one returned through a pointer, and its length after it
    i 1248 a number; one returned through a pointer to so many bytes
    d e D  user data; a pointer to it; the same, returned through a pointer
    a A    an address; one returned through a pointer
    b B N  a descriptor; one returned through a pointer; its length, likewise
    c      a callback
    f F    a file descriptor; one returned through a pointer
    g      a GID, by value
    s p    a text; bytes, which are not recorded
    x      something else, of which only is recorded whether it is NULL

A result has the kind h, i, d, a, s, p, r (doca_error_t) or v (void).
"""

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

# Command lines, log records and their texts belong to the program alone.
EXCLUDED = {"doca_argp.h", "doca_error.h", "doca_log.h", "doca_version.h"}
SIZES = {"char": 1, "bool": 1, "int": 4, "size_t": 8, "doca_error_t": 4}
SIZES |= {f"{sign}int{8 * size}_t": size for sign in ("", "u") for size in (1, 2, 4, 8)}
GID = "structdoca_verbs_gid"
DESCRIPTOR = re.compile(r"export|_conn_details$")
USER_DATA = {"opaque", "config", "cookie", "user_data"}
MAKES = re.compile(r"_(create|alloc|open)|_buf_(get_by_args|dup)$|_(add_entry|port_start)$")
PACKETS = ("structdoca_buf", 2, "pkt_array")  # a list that a callback is given
HANDLES = {("void *", "dev"): "struct doca_dev *"}  # declared as void *
SLOTS = 16  # callbacks of one type that are recorded


class Parameter(NamedTuple):
    """A parameter: its C type without spaces at the ends, its name and its kind."""

    type: str
    name: str
    kind: str


class Function(NamedTuple):
    """A function, or a type of callback."""

    result: str
    name: str
    parameters: list[Parameter]
    header: str

    @property
    def result_kind(self) -> str:
        """The kind of the result."""
        if self.result in ("void", "doca_error_t"):
            return {"void": "v", "doca_error_t": "r"}[self.result]
        if self.result == "const char *":
            return "s"
        if self.result == "uint8_t *":
            return "p"
        return (
            kind_of(self.name, [(self.result, "")], 0)
            if "struct" in self.result
            else ("d" if "union" in self.result else "a" if "*" in self.result else "i")
        )

    @property
    def kinds(self) -> str:
        """The kinds of the result and of the parameters."""
        return self.result_kind + "".join(parameter.kind for parameter in self.parameters)


def kind_of(function: str, parameters: list[tuple[str, str]], index: int) -> str:
    """Return the kind of a parameter."""
    full, name = parameters[index]
    constant, base, stars = "const" in full, re.sub(r"const|[ *]", "", full), full.count("*")
    if (base, stars, name) == PACKETS:
        return "l"
    if stars and (re.search(r"\*\s*const", full) or _is_array(function, full)):
        return "x"
    after = parameters[index + 1][0] if index + 1 < len(parameters) else ""
    if base in CALLBACKS:
        return "c"
    if base == "uniondoca_data":
        return "d" if not stars else "A" if stars > 1 else "e" if constant else "D"
    if base == GID and not stars:
        return "g"
    if base.startswith("struct"):
        if stars == 2 and function.endswith("_destroy_list"):
            return "l"
        return "xhHL"[min(stars, 3)] if base not in DEFINED else "x"
    if base == "void" or (stars == 2 and constant and after.strip() == "size_t *"):
        if stars == 2:
            return "B" if constant else "A"
        if constant:
            return "b" if "export" in function or DESCRIPTOR.search(name) else "p"
        return "d" if name in USER_DATA else "a"
    if "handle_t" in base or name.endswith("_fd"):
        return "F" if stars else "f"
    if stars == 0:
        return "i" if base in SIZES or base.startswith("enum") or base in NUMBERS else "x"
    before = parameters[index - 1][0] if index else ""
    if base == "size_t" and before.count("*") == 2 and "const" in before:
        return "N"
    return _pointer_to_number(function, full, name, after)


def _is_array(function: str, full: str) -> bool:
    """Return whether a callback is given an array."""
    is_array = re.fullmatch(r"(union doca_data|doca_error_t|struct \w+ \*) ?\*", full)
    return function.endswith("_cb_t") and bool(is_array)


def _pointer_to_number(function: str, full: str, name: str, after: str) -> str:
    """Return the kind of a pointer to a number or a text; `after` is the next parameter's type."""
    base = re.sub(r"const|[ *]", "", full)
    if "const" in full:
        if base == "char" and full.count("*") == 1:
            return "s"
        return "b" if "export" in function else "p"
    if base == "char" or (base == "uint8_t" and after.strip() in ("uint32_t", "size_t")):
        return "p"
    if function.endswith("_set_addr") or name.endswith("_val_ptr"):
        return "a"
    if full.count("*") > 1:
        return "A"
    size = 4 if base.startswith("enum") else SIZES.get(base, NUMBERS.get(base, 0))
    return str(size) if size else "x"


def split(parameter: str) -> tuple[str, str]:
    """Return the type and the name of a parameter."""
    match = re.fullmatch(r"(.*?[ *])(\w+)(\[\w*\])?", parameter.strip())
    assert match, parameter
    return match[1].strip() + (" *" if match[3] else ""), match[2]


def parse(text: str, header: str) -> tuple[list[Function], list[Function]]:
    """Return the functions and the types of callbacks that a header declares."""
    functions = re.findall(
        r"^DOCA_(?:STABLE|EXPERIMENTAL)\s+(?:DOCA_OF_\w+\s+)?"
        r"([^;()]*?[ *])(doca_\w+)\(([^;]*?)\)\s*;",
        text,
        re.M,
    )
    callbacks = re.findall(r"typedef\s+([\w *]+?)\s*\(\*?(doca_\w+)\)\(([^;]*?)\);", text)
    return [make(*found, header=header) for found in functions if _can_be_recorded(*found)], [
        make(*found, header=header) for found in callbacks if _can_be_recorded(*found)
    ]


def _can_be_recorded(result: str, _: str, parameters: str) -> bool:
    """Return whether C can pass the parameters on, and the result is no structure."""
    by_value = re.fullmatch(r"(struct|union) \w+", result.strip())
    return not re.search(r"[(.]", parameters) and (not by_value or "doca_data" in result)


def make(result: str, name: str, parameters: str, *, header: str) -> Function:
    """Return a function of its declaration's parts."""
    words = re.sub(r"\s+", " ", parameters)
    pairs = [] if words.strip() in ("", "void") else [split(word) for word in words.split(",")]
    known = [(HANDLES.get(pair, pair[0]), pair[1]) for pair in pairs]
    kinds = [kind_of(name, known, index) for index in range(len(pairs))]
    parts = [Parameter(*pair, kind) for pair, kind in zip(pairs, kinds, strict=True)]
    return Function(result.strip(), name, parts, header)


# ---- C ----


def handle_type(declared: str) -> str:
    """Return the name of a handle's type, as in a trace."""
    match = re.search(r"struct (?:doca_)?(\w+)", declared)
    return match[1] if match else ""


def known_type(parameter: Parameter) -> str:
    """Return the type of a parameter, or what a void * is."""
    return HANDLES.get((parameter.type, parameter.name), parameter.type)


def arguments(function: Function) -> str:
    """Return the initializers of the array of arguments."""
    words = []
    for parameter in function.parameters:
        by_value = "*" not in parameter.type
        if parameter.kind == "d" and by_value and "union" in parameter.type:
            words.append(f"{parameter.name}.u64")
        elif parameter.kind == "g":
            words.append(f"(uintptr_t)&{parameter.name}")
        elif parameter.kind == "x" and by_value:
            words.append("0")
        elif by_value and parameter.kind != "c":
            words.append(f"(uint64_t)({parameter.name})")
        else:
            words.append(f"(uintptr_t)({parameter.name})")
    return ", ".join(words) or "0"


def description(function: Function) -> str:
    """Return the C text of a struct softdoca_function."""
    types = [
        handle_type(function.result),
        *(handle_type(known_type(p)) for p in function.parameters),
    ]
    callbacks = [
        f"&type_{re.sub(r'const|[ *]', '', p.type)}" if p.kind == "c" else "NULL"
        for p in function.parameters
    ]
    return (
        f'{{.name = "{function.name}", .kinds = "{function.kinds}", '
        f".makes = {int(bool(MAKES.search(function.name)))}, "
        f".types = (const char *const[]){{{', '.join(f'{chr(34)}{t}{chr(34)}' for t in types)}}}, "
        f".callbacks = (struct recorded_callback *const[]){{{', '.join(callbacks) or 'NULL'}}}}}"
    )


def signature(function: Function, name: str, before: str = "") -> str:
    """Return the C declaration of a function with the same parameters."""
    words = [before] if before else []
    words += [f"{p.type} {p.name}" for p in function.parameters]
    return f"{function.result} {name}({', '.join(words) or 'void'})"


def result_of(function: Function) -> tuple[str, str, str]:
    """Return how C keeps, records and returns the result."""
    if function.result == "void":
        return "", "0", ""
    value = "result.u64" if "union" in function.result else "result"
    cast = "(uintptr_t)" if "*" in function.result else "(uint64_t)"
    return f"{function.result} result = ", f"{cast}{value}", "\treturn result;\n"


def function_text(function: Function) -> str:
    """Return the recorder's function, which calls the library's."""
    keep, value, end = result_of(function)
    passed = [
        f"(__typeof__({p.name}))(uintptr_t)arguments[{i}]" if p.kind == "c" else p.name
        for i, p in enumerate(function.parameters)
    ]
    return (
        f"static struct recorded_function recorded_{function.name} = {description(function)};\n"
        f"{signature(function, function.name)}\n{{\n"
        f"\tuint64_t arguments[] = {{{arguments(function)}}};\n"
        f"\t__typeof__({function.name}) *next = recorded_next(&recorded_{function.name});\n"
        f"\tstruct recorded_call call __attribute__((cleanup(recorded_end)));\n\n"
        f"\trecorded_enter(&call, &recorded_{function.name}, arguments);\n"
        f"\t{keep}next({', '.join(passed)});\n"
        f"\trecorded_leave(&call, {value});\n{end}}}\n"
    )


def callback_text(function: Function) -> str:
    """Return the functions that take the place of the program's callbacks."""
    name, count = function.name, len(function.parameters)
    names = ", ".join(["slot", *(p.name for p in function.parameters)])
    keep, value, end = result_of(function)
    told = f"\trecorded_returned(&call, {value});\n" if end else ""
    passed = ", ".join(p.name for p in function.parameters)
    stubs = [
        f"{('static ' + signature(function, f'{name}_{i}'))} "
        f"{{ {'return ' if end else ''}{name}_call({names.replace('slot', str(i), 1)}); }}\n"
        for i in range(SLOTS)
    ]
    table = ", ".join(f"(void *){name}_{i}" for i in range(SLOTS))
    return (
        f"static struct recorded_callback type_{name} __attribute__((unused));\n"
        f"static {signature(function, name + '_call', 'unsigned int slot')}\n{{\n"
        f"\t{function.result} (*real)({', '.join(p.type for p in function.parameters)});\n"
        f"\tuint64_t arguments[{max(count, 1)}] = {{{arguments(function)}}};\n"
        f"\tstruct recorded_call call __attribute__((cleanup(recorded_end)));\n\n"
        f"\treal = (__typeof__(real))recorded_call_back(&call, &type_{name}, slot, arguments);\n"
        f"\t{keep}real({passed});\n{told}{end}}}\n"
        + "".join(stubs)
        + f"static struct recorded_callback type_{name} = {{.function = {description(function)}, "
        f".stubs = {{{table}}}}};\n"
    )


def main(include: str, source: str, described: str) -> None:
    """Write both files."""
    functions, callbacks = read(Path(include))
    headers = sorted({function.header for function in functions + callbacks})
    text = [f"#include <{header}>\n" for header in headers] + [
        f'#include "recorder.h"\n\n_Static_assert(RECORDED_CALLBACKS == {SLOTS}, "");\n'
    ]
    text += [callback_text(callback) for callback in callbacks]
    text += [function_text(function) for function in functions]
    Path(source).write_text("\n".join(text), encoding="utf-8")
    tables = {
        name: {
            f.name: {
                "header": f.header,
                "result": [f.result_kind, f.result],
                "parameters": [[p.kind, known_type(p), p.name] for p in f.parameters],
                "makes": bool(MAKES.search(f.name)),
            }
            for f in found
        }
        for name, found in (("functions", functions), ("callbacks", callbacks))
    }
    Path(described).write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")


CALLBACKS: set[str] = set()
DEFINED: set[str] = set()
NUMBERS: dict[str, int] = {}


def read(include: Path) -> tuple[list[Function], list[Function]]:
    """Return the functions and types of callbacks of all headers but the excluded ones."""
    left_out = re.compile(r"/\*.*?\*/|^#.*?(?<!\\)$", re.S | re.M)
    texts = {
        path.name: left_out.sub("", path.read_text("utf-8"))
        for path in sorted(include.glob("*.h"))
        if path.name not in EXCLUDED
    }
    every = "\n".join(texts.values())
    CALLBACKS.update(re.findall(r"typedef\s+[\w *]+?\s*\(\*?(doca_\w+)\)\(", every))
    DEFINED.update(f"struct{name}" for name in re.findall(r"struct (\w+) \{", every))
    for base, name in re.findall(r"typedef (\w+) (\w+);", every):
        NUMBERS[name] = SIZES.get(base, NUMBERS.get(base, 0))
    parsed = [parse(text, header) for header, text in texts.items()]
    return [f for part, _ in parsed for f in part], [c for _, part in parsed for c in part]


if __name__ == "__main__":
    main(*sys.argv[1:])
