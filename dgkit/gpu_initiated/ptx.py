# SPDX-License-Identifier: Apache-2.0
"""Inline PTX for the emulated GPU: replaces `asm` statements of preprocessed CUDA C++ by C++.

native/gpu_initiated/emulated/ptx.h implements the instructions. What is known are straight-line
statements (no branches, no calls) on scalar registers: see _FORMS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..errors import KernelError

TYPE_CHECKING = False  # importing typing takes longer than importing this whole module
if TYPE_CHECKING:
    from collections.abc import Iterator

_STRING = r'(?:L|u8?|U)?"(?:\\.|[^"\\\n])*"'
_TOKENS = re.compile(
    rf"^\#[ ](?P<line>\d+)[ ]\"(?P<file>[^\"\n]*)\"(?P<flags>[^\n]*)\n"
    rf"|R\"([^(\s]*)\(.*?\)\4\"|{_STRING}|'(?:\\.|[^'\\\n])*'|\d[\w'.]*"
    rf"|(?P<asm>\b(?:asm|__asm__|__asm)\b)"
    rf"|(?P<poll>\*\s*\((?=\s*volatile\b))"
    rf"|(?P<packed>\}}\s*__attribute__\s*\(\(\s*(?:__)?aligned(?:__)?\s*\(\s*\d+\s*\)\s*\)\)"
    rf"(?P<attribute>\s*__attribute__\s*\(\(\s*(?:__)?packed(?:__)?\s*\)\))\s*;)",
    re.MULTILINE | re.DOTALL,
)
_MARKER = re.compile(r"^# \d+ \"[^\"\n]*\"(?P<flags>[^\n]*)\n", re.MULTILINE)
_QUALIFIERS = re.compile(r"\s*(?:(?:volatile|__volatile__|__volatile)\s*)?\(")
_OPERAND = re.compile(rf"\s*((?:{_STRING}\s*)+)(\(.*\))\s*", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t"}

_CPP = {
    "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t",
    "s16": "int16_t", "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t", "b64": "uint64_t",
    "u64": "uint64_t", "s64": "int64_t", "f32": "float", "f64": "double", "pred": "bool",
}  # fmt: skip
_CONSTRAINTS = {
    "h": "uint16_t", "r": "uint32_t", "l": "uint64_t", "f": "float", "d": "double", "n": "uint64_t",
}  # fmt: skip
_SPECIAL = {
    "laneid": "dg_emu::lane()", "warpid": "dg_ptx::warp()", "smid": "blockIdx.x",
    "globaltimer": "(uint64_t)clock64()", "clock64": "(uint64_t)clock64()",
    "clock": "(uint32_t)clock64()", "lanemask_lt": "((1u << dg_emu::lane()) - 1)",
} | {
    f"{name}.{axis}": f"{variable}.{axis}"
    for name, variable in (
        ("tid", "threadIdx"), ("ntid", "blockDim"), ("ctaid", "blockIdx"), ("nctaid", "gridDim")
    )
    for axis in "xyz"
}  # fmt: skip

_T = rf"\.(?P<type>{'|'.join(_CPP)})"
# Order, scope, space and cache hints of an access, in any order.
_ACCESS = (
    r"(?:\.(?P<how>weak|relaxed|acquire|release|acq_rel|volatile)|\.(?:mmio|async|cta|cluster|gpu|sys"
    r"|global|shared(?:::cta)?|local|nc|ca|cg|cs|cv|wb|wt|L[12]::(?:\d+B|no_allocate|evict_\w+)))*"
)
_VECTOR = r"(?:\.(?P<vector>v[24]))?"
_MATH = r"(?:\.(?:rn|rzi|ftz))*"
_FUNCTIONS = (
    "selp|bfe|fma|lop3|add|sub|div|rem|min|max|and|or|xor|not|neg|abs|shl|shr|popc|clz|brev"
)
# Statement -> how to translate it: {d}, {a}, {b}, {c} are operands, {T} is the type.
_FORMS = [
    (re.compile(pattern.replace(" ", "")), code)
    for pattern, code in (
        (rf"ld {_ACCESS} {_VECTOR} {_T}", "load"),
        (rf"st {_ACCESS} {_VECTOR} {_T}", "store"),
        (rf"atom {_ACCESS} \.(?P<name>add|min|max|and|or|xor|exch|inc|dec) {_T}",
         "dg_ptx::set({d}, dg_ptx::atom_{name}<{T}>({a}, {b}));"),
        (rf"atom {_ACCESS} \.cas {_T}",
         "dg_ptx::set({d}, dg_ptx::atom_cas<{T}>({a}, {b}, {c}));"),
        (rf"red {_ACCESS} \.(?P<name>add|min|max|and|or|xor|inc|dec) {_T}",
         "dg_ptx::atom_{name}<{T}>({d}, {a});"),
        (r"(?:fence|membar)(?:\.[\w:]+)*", "__threadfence();"),
        (r"cp\.async\.bulk\.(?:global\.shared::cta\.bulk_group|global\.shared::cta)",
         "dg_ptx::copy({d}, {a}, {b});"),
        (r"cp\.async\.bulk\.(?:commit_group|wait_group(?:\.read)?)", ""),
        (rf"mov {_T}", "mov"),
        (rf"cvta (?:\.to)?(?:\.(?:global|shared))? {_T}", "dg_ptx::set({d}, ({T}){a});"),
        (rf"cvt {_MATH} {_T} \.(?P<from>{'|'.join(_CPP)})", "dg_ptx::set({d}, ({T})({F}){a});"),
        (rf"setp\.(?P<compare>eq|ne|lt|le|gt|ge) {_MATH} {_T}",
         "{d} = ({T}){a} {compare} ({T}){b};"),
        (rf"(?P<name>{_FUNCTIONS}) {_MATH} {_T}",
         "dg_ptx::set({d}, dg_ptx::{name}_<{T}>({sources}));"),
        (rf"(?P<name>mul|mad)\.(?P<part>lo|hi|wide) {_T}",
         "dg_ptx::set({d}, dg_ptx::{name}_{part}<{T}>({sources}));"),
        (rf"mul {_MATH} \.(?P<type>f32|f64)", "dg_ptx::set({d}, ({T}){a} * ({T}){b});"),
        (rf"(?P<name>shf)\.(?P<part>[lr])\.wrap {_T}",
         "dg_ptx::set({d}, __funnelshift_{part}({sources}));"),
        (r"prmt\.b32", "dg_ptx::set({d}, __byte_perm({sources}));"),
        (r"activemask\.b32", "dg_ptx::set({d}, __activemask());"),
        (r"nanosleep\.u32", "__nanosleep({d});"),
        (r"(?:bar\.sync|barrier\.sync(?:\.aligned)?)", "barrier"),
        (r"bar\.warp\.sync", "__syncwarp({d});"),
        (r"(?:prefetchu?|griddepcontrol|discard|applypriority)(?:\.[\w:]+)*", ""),
        (r"trap", "__builtin_trap();"),
    )
]  # fmt: skip
_ORDERS = {"weak": "WEAK", "acquire": "ORDERED", "release": "ORDERED"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_STATEMENT = re.compile(r"(?:@(!?)([%$\w]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+([%$\w\s,]+)")
_NUMBER = re.compile(r"-?(?:0[xX][\da-fA-F]+|\d+)U?")
_FLOAT = re.compile(r"0[fdFD]([\da-fA-F]+)")


def _split(text: str, separator: str) -> list[str]:
    """Split at separators that are outside of brackets and string literals."""
    parts, depth, start = [], 0, 0
    for found in re.finditer(rf"{_STRING}|'(?:\\.|[^'\\])*'|[()\[\]{{}}]|{separator}", text):
        token = found[0]
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
        elif token == separator and depth == 0:
            parts.append(text[start : found.start()])
            start = found.end()
    return [*parts, text[start:]]


def _end_of_bracket(text: str, start: int) -> int:
    """Return the index behind the bracket that closes the one at start."""
    depth = 0
    for found in re.compile(rf"{_STRING}|'(?:\\.|[^'\\])*'|[()]").finditer(text, start):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    return len(text)


@dataclass
class _Block:
    """One asm statement: its PTX, and C++ variables for its operands and registers."""

    registers: dict[str, str] = field(default_factory=dict)  # name in the PTX -> C++ variable
    kinds: dict[str, str] = field(default_factory=dict)  # C++ variable -> its type
    before: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    def operand(self, text: str, *, output: bool) -> None:
        """Declare the variable of an operand such as `"=r"(x)`."""
        found = _OPERAND.fullmatch(text)
        constraint = re.sub(r'[\s"]', "", found[1]) if found else ""
        kind = _CONSTRAINTS.get(constraint.lstrip("=+&"))
        if found is None or kind is None:
            raise ValueError(f"operand {text.strip()}")
        name = f"dg_{len(self.registers)}"
        reads = not output or "+" in constraint
        value = f"dg_ptx::Bits{found[2]}.as<{kind}>()" if reads else "{}"
        self.before.append(f"{kind} {name} = {value};")
        if output:
            type_ = f"std::remove_reference_t<decltype({found[2]})>"
            self.after.append(f"{found[2]} = dg_ptx::Bits({name}).as<{type_}>();")
        self.registers[f"%{len(self.registers)}"] = name
        self.kinds[name] = kind

    def declare(self, type_: str, names: str) -> None:
        """Declare registers of the PTX."""
        for name in names.split(","):
            self.registers[name.strip()] = variable = f"dg_r{len(self.kinds)}"
            self.kinds[variable] = _CPP[type_]
            self.before.append(f"{_CPP[type_]} {variable} = {{}};")

    def destination(self, text: str) -> str:
        """Return the variable that an operand names."""
        return "dg_ptx::sink()" if text == "_" else self.registers[text]

    def source(self, text: str) -> str:
        """Return an expression for the value of an operand."""
        if text.startswith("["):
            base, _, offset = (part.strip() for part in text[1:-1].partition("+"))
            if self.kinds.get(self.registers.get(base, "")) != "uint64_t":
                raise ValueError("an address of another size than a pointer's")
            return f"({self.source(base)}.bits + {offset or 0})"
        if text.startswith("!"):
            return f"!{self.registers[text[1:].strip()]}"
        if _NUMBER.fullmatch(text):
            return f"dg_ptx::Bits((uint64_t){text})"
        if found := _FLOAT.fullmatch(text):
            return f"dg_ptx::Bits((uint64_t)0x{found[1]})"
        if text not in self.registers and text.startswith("%"):
            return f"dg_ptx::Bits({_SPECIAL[text[1:]]})"
        return f"dg_ptx::Bits({self.registers[text]})"

    def statement(self, text: str) -> str:
        """Return the C++ of one PTX statement.

        Raises:
            KeyError, ValueError: It is not known.
        """
        found = _STATEMENT.fullmatch(text)
        if found is None:
            raise ValueError(text)
        for pattern, code in _FORMS:
            if form := pattern.fullmatch(found[3]):
                operands = [o.strip() for o in _split(found[4], ",")] if found[4] else []
                statement = self._emit(code, form.groupdict(), operands)
                negated, predicate = found[1], found[2]
                return (
                    f"if ({negated}{self.registers[predicate]}) {{ {statement} }}"
                    if predicate
                    else statement
                )
        raise ValueError(text)

    def _emit(self, code: str, form: dict[str, str | None], operands: list[str]) -> str:
        type_ = _CPP[form.get("type") or "b32"]
        if code in ("load", "store", "mov"):
            return self._move(code, type_, form, operands)
        if code == "barrier":
            if operands not in (["0"], []):
                raise ValueError("barrier")
            return "__syncthreads();"
        if "{d}" not in code:
            return code
        writes = "set({d}" in code or code.startswith("{d}")
        first = self.destination(operands[0]) if writes else self.source(operands[0])
        sources = [self.source(o) for o in operands[1:]]
        names = dict(zip("abc", sources, strict=False))
        return code.format(
            d=first, T=type_, F=_CPP.get(form.get("from") or "", ""), sources=", ".join(sources),
            name=form.get("name"), part=form.get("part"),
            compare=_COMPARE.get(form.get("compare") or ""), **names,
        )  # fmt: skip

    def _move(self, code: str, type_: str, form: dict[str, str | None], operands: list[str]) -> str:
        to, value = operands
        vectors = [_split(o[1:-1], ",") if o.startswith("{") else [o] for o in operands]
        to_all, all_ = ([part.strip() for part in vector] for vector in vectors)
        if code == "mov":
            if len(all_) > 1:
                parts = "".join(f", {self.source(part)}" for part in all_)
                return f"dg_ptx::pack<{type_}>({self.destination(to)}{parts});"
            parts = "".join(f", {self.destination(part)}" for part in to_all)
            return f"dg_ptx::unpack<{type_}>({self.source(value)}{parts});"
        order = _ORDERS.get(form["how"] or "weak", "RELAXED")
        address, moved = (value, to_all) if code == "load" else (to, all_)
        statements = []
        for i, part in enumerate(moved):
            place = f"{self.source(address)}, {i}"
            call = f"{code}<{type_}, dg_ptx::{order}>"
            statements.append(
                f"dg_ptx::set({self.destination(part)}, dg_ptx::{call}({place}));"
                if code == "load"
                else f"dg_ptx::{call}({place}, {self.source(part)});"
            )
        return " ".join(statements)


def _template(text: str) -> str:
    """Return the PTX of an asm statement's string literals."""
    literal = "".join(part[part.index('"') + 1 : -1] for part in re.findall(_STRING, text))
    ptx = re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), literal)
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", ptx, flags=re.DOTALL).replace("%%", "%")


def _statements(ptx: str) -> Iterator[str]:
    """Yield the statements of PTX; the braces of a scope are statements of their own."""
    for part in ptx.split(";"):
        text = part.strip()
        while text[:1] in ("{", "}") and text:
            yield text[0]
            text = text[1:].lstrip()
        if text:
            yield text


def _asm(body: str) -> str:
    """Translate what stands in the brackets of an asm statement."""
    template, *operands = _split(_MARKER.sub("\n", body), ":")
    block = _Block()
    for i, section in enumerate(operands[:2]):
        for text in _split(section, ","):
            if text.strip():
                block.operand(text, output=i == 0)
    for text in _statements(_template(template)):
        try:
            if found := _REGISTERS.fullmatch(text):
                block.declare(found[1], found[2])
            elif text not in "{}":
                block.code.append(block.statement(text))
        except (KeyError, ValueError, IndexError):
            raise ValueError(text) from None
    return f"do {{ {' '.join([*block.before, *block.code, *block.after])} }} while (0)"


def _check_unpadded(text: str, end: int) -> str:
    """Return an assertion that the structure that ends before `end` has no padding."""
    depth = 1
    while depth and end:
        end -= 1
        depth += {"}": 1, "{": -1}.get(text[end], 0)
    found = re.search(r"\bstruct\s+(\w+)\s*$", text[max(0, end - 200) : end])
    if found is None:
        return ""
    reason = f'"{found[1]} is aligned and packed: the emulated GPU takes it only without padding"'
    return f" static_assert(__has_unique_object_representations({found[1]}), {reason});"


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of lines that are not from a system header."""
    start: int | None = 0
    for found in _MARKER.finditer(text):
        system = "3" in found["flags"].split()
        if system and start is not None:
            yield start, found.start()
            start = None
        elif not system and start is None:
            start = found.start()
    if start is not None:
        yield start, len(text)


def translate(text: str) -> str:
    """Replace the inline PTX of preprocessed CUDA C++ by C++; lines stay where they are.

    Reads through a cast to a pointer to volatile become yield points, since programs poll that way.
    A structure that is aligned and packed loses the packing, and must have no padding without it: a
    C++ compiler binds no reference to members of a packed structure, and nvcc does.

    Raises:
        KernelError: A statement is unknown; the message quotes it and names its file and line.
    """
    parts: list[str] = []
    done, file, line, counted = 0, "", 1, 0
    for found in (f for run in _runs(text) for f in _TOKENS.finditer(text, *run)):
        if found["line"]:
            file, line, counted = found["file"], int(found["line"]), found.end()
        if found.start() < done:
            continue
        try:
            new, end = _replace(text, found)
        except ValueError as error:
            line += text.count("\n", counted, found.start())
            raise KernelError(
                f"emulated GPU: {file}:{line}: the PTX statement `{error};` is not known: leave it "
                "out with #ifndef DG_EMULATED_GPU, or use a function of CUDA"
            ) from None
        if new:
            parts += [text[done : found.start()], new]
            done = end
    return "".join([*parts, text[done:]])


def _replace(text: str, found: re.Match[str]) -> tuple[str, int]:
    """Return the new text of a token and the end of the old, or "" if it stays.

    Raises:
        ValueError: A PTX statement is unknown.
    """
    if found["poll"]:
        end = _end_of_bracket(text, found.end() - 1)
        type_ = text[found.end() : end - 1]
        return f"*(dg_ptx::Polled<{type_}>)({type_})" if type_.rstrip().endswith("*") else "", end
    if found["packed"]:
        kept = text[found.start() : found.start("attribute")]
        return f"{kept};{_check_unpadded(text, found.start())}", found.end()
    start = _QUALIFIERS.match(text, found.end()) if found["asm"] else None
    if start is None:
        return "", 0
    end = _end_of_bracket(text, start.end() - 1)
    body = text[start.end() : end - 1]
    if ";" not in _template(_split(body, ":")[0]):
        return "", 0  # the name of a symbol, or a barrier for the compiler
    return _asm(body) + "\n" * text.count("\n", found.start(), end), end
