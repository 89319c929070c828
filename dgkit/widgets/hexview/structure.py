# SPDX-License-Identifier: Apache-2.0
"""Structures laid over the bytes of a region: their fields and the fields' values.

A structure is described by a ctypes.Structure or Union class, by a structured NumPy dtype, or by a
dict of names and types, packed: `{"magic": "u32", "size": "u64be", "name": "char[16]"}`.

In a dict, a type may have a place, `@ 8` or `@ name` (fields at one place are a union), what a
number points to, `u32 -> char[16]` (at that offset in the region), and a condition, `if kind == 2`.
A pointer of a ctypes class is an address in the host's memory of the region.
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import BoundsError, ClosedError, DgkitError
from ...units import plural
from ..base.panel import handler

if TYPE_CHECKING:
    from _ctypes import _CData

    from ...session import SessionRegion
    from ..base.page_input import Json
    from .fetch import Reader
    from .view_pages import Page

    CType: TypeAlias = type[_CData]
    DType: TypeAlias = np.dtype[np.generic]
    Source: TypeAlias = type[ctypes.Structure] | type[ctypes.Union] | DType | Mapping[str, str]

MAX_FIELDS = 256
MAX_BYTES = 4096  # size limit of a structure
_MAX_SHOWN = 8  # array elements shown in a value

_TYPES = {
    "u8": "u1", "i8": "i1", "u16": "u2", "i16": "i2", "u32": "u4", "i32": "i4", "u64": "u8",
    "i64": "i8", "f16": "f2", "f32": "f4", "f64": "f8", "bool": "?", "char": "S1", "pad": "V1",
}  # fmt: skip
_SHORT = {code: name for name, code in _TYPES.items()}
_TYPE = rf"({'|'.join(_TYPES)})(le|be)?(?:\[(\d{{1,5}})\])?"
_DECLARED = re.compile(
    rf"{_TYPE}(?: @ (?P<place>\w+))?(?: -> (?P<target>\S+))?"
    rf"(?: if (?P<tag>\S+) (?P<op>==|!=|<|>|&) (?P<number>-?\w+))?",
    re.ASCII,
)
_HOLDS: dict[str, Callable[[int, int], object]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt, "&": operator.and_,
}  # fmt: skip


class Field(NamedTuple):
    """One field.

    Attributes:
        name: Its name; of a nested field its path: `header.flags`, `points[2].x`.
        type: Its type in words.
        offset: Bytes from the start of the structure.
        dtype: The type of its bytes; an array has a subarray type.
        bits: Of a bit field, the lowest bit and the number of bits; otherwise None.
        target: Of a pointer, the type of what it points to; otherwise None.
        only_if: The field, comparison and number without which the field is absent; otherwise None.
    """

    name: str
    type: str
    offset: int
    dtype: DType
    bits: tuple[int, int] | None = None
    target: DType | None = None
    only_if: tuple[Field, str, int] | None = None

    def number(self, data: bytes) -> int:
        """Return the value of a field that is a number, given the bytes of the structure."""
        return int(np.frombuffer(data, self.dtype, offset=self.offset, count=1)[0])

    def present(self, data: bytes) -> bool:
        """Return whether the field's condition holds."""
        if self.only_if is None:
            return True
        tag, op, number = self.only_if
        return bool(_HOLDS[op](tag.number(data), number)) and tag.present(data)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.dtype.itemsize

    def value(self, data: bytes, *, plain: bool = False) -> str:
        """Return the value as text, given the bytes of the structure; without hex if `plain`."""
        array = np.frombuffer(data, self.dtype.base, offset=self.offset, count=self._count)
        return self._text_of(array, plain=plain)

    def _text_of(self, array: NDArray[Any], *, plain: bool) -> str:
        if self.bits is not None:
            low, count = self.bits
            return _text((int(array[0]) >> low) & ((1 << count) - 1), plain=plain)
        if self.dtype.subdtype is None:
            return _text(array[0], plain=plain)
        shown = ", ".join(_text(item, plain=True) for item in array[:_MAX_SHOWN])
        return f"[{shown}{', …' if len(array) > _MAX_SHOWN else ''}]"

    @property
    def _count(self) -> int:
        return self.dtype.itemsize // self.dtype.base.itemsize


class Structure(NamedTuple):
    """A structure: the description it was made from, its name, size in bytes and fields."""

    source: Source
    name: str
    size: int
    fields: tuple[Field, ...]

    def values(self, data: bytes) -> list[str | None]:
        """Return the values of all fields as text, given the structure's bytes; None: absent."""
        return [field.value(data) if field.present(data) else None for field in self.fields]


def parse_structure(source: Source) -> Structure:
    """Return the structure that is described by `source`.

    Args:
        source: A ctypes.Structure or Union class, a structured dtype, or a dict of field names and
            types: u8 to u64, i8 to i64, f16 to f64, bool, char, or pad; with `be` for big-endian,
            `[count]` for an array, `@ place`, `-> type` and `if field == number` (also != < > &).

    Raises:
        TypeError: `source` is none of these, or a field has a type that cannot be shown.
        ValueError: A declared type is unknown, or it has no fields.
        BoundsError: It has more than 256 fields or 4,096 bytes.
    """
    if isinstance(source, type) and issubclass(source, (ctypes.Structure, ctypes.Union)):
        name, size, fields = source.__name__, ctypes.sizeof(source), _of_ctypes(source, "", 0)
    elif isinstance(source, np.dtype) and source.names:
        name, size, fields = "dtype", source.itemsize, _of_dtype(source, "", 0)
    elif isinstance(source, Mapping):
        name, found = "structure", _of_mapping(source)
        size = max((field.offset + field.size for field in found), default=0)
        fields = (field for field in found if field.dtype.base.kind != "V")
    else:
        raise TypeError(
            f"structure is {source!r}; it must be a ctypes.Structure class, a structured dtype, a "
            "dict of names and types, or None"
        )
    return _checked_structure(source, name, size, fields)


def _checked_structure(source: Source, name: str, size: int, fields: Iterator[Field]) -> Structure:
    found: list[Field] = []
    for field in fields:
        if len(found) == MAX_FIELDS:
            raise BoundsError(f"structure {name!r} has more than {MAX_FIELDS} fields")
        found.append(field)
    if not found or not size:
        raise ValueError(f"structure {name!r} has no fields")
    if size > MAX_BYTES:
        raise BoundsError(f"structure {name!r} has {size:,} bytes; at most {MAX_BYTES:,} are shown")
    return Structure(source, name, size, tuple(found))


def _of_mapping(source: Mapping[str, str]) -> list[Field]:
    """Return the fields of a dict, with its padding."""
    found: dict[str, Field] = {}
    end = 0
    for key, text in source.items():
        name, match = str(key), _matched(str(key), text)
        at, place = end, match["place"]
        if place is not None:
            at = int(place, 0) if place[0].isdigit() else _known(found, name, place).offset
        dtype, target, only_if = _dtype_of(name, match), None, None
        if match["target"] is not None:
            target = _dtype_of(name, _matched(name, match["target"]))
            if dtype.kind != "u":
                raise ValueError(f"field {name!r} is no pointer: it must be of u8 to u64")
        if match["tag"] is not None:
            tag = _known(found, name, match["tag"])
            if tag.dtype.kind not in "iub":
                raise ValueError(
                    f"field {name!r} depends on {tag.name!r}, which is no whole number"
                )
            only_if = tag, match["op"], _whole(name, match["number"])
        words = _type_text(dtype) + (f" -> {_type_text(target)}" if target is not None else "")
        found[name] = Field(name, words, at, _flat(dtype), None, target, only_if)
        end = at + dtype.itemsize
    return list(found.values())


def _matched(name: str, text: str) -> re.Match[str]:
    match = _DECLARED.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            f"field {name!r} has the type {text!r}; types: {', '.join(_TYPES)}, with be for "
            "big-endian and [count] for an array, then @ place, -> type, if field == number"
        )
    return match


def _known(found: Mapping[str, Field], name: str, other: str) -> Field:
    """Return a field above another one.

    Raises:
        ValueError: There is none of that name.
    """
    if other not in found:
        raise ValueError(f"field {name!r} names {other!r}, which is no field above it")
    return found[other]


def _whole(name: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"field {name!r} is compared with {text!r}, which is no number") from None


def _dtype_of(name: str, match: re.Match[str]) -> DType:
    kind, order, count = match[1], match[2], int(match[3]) if match[3] else None
    if count is not None and not 0 < count <= MAX_BYTES:
        raise BoundsError(f"field {name!r} has {count:,} elements; it must be 1 to {MAX_BYTES:,}")
    if kind in ("char", "pad"):
        return np.dtype(f"{_TYPES[kind][0]}{count or 1}")
    code = (">" if order == "be" else "<") + _TYPES[kind]
    return np.dtype(code if count is None else (code, (count,)))


def _of_dtype(dtype: DType, name: str, at: int) -> Iterator[Field]:
    """Yield the fields of a dtype, and the fields inside nested structures."""
    base, count = dtype.base, dtype.itemsize // dtype.base.itemsize if dtype.base.itemsize else 0
    if base.names:
        for index in range(count):
            place = f"{name}[{index}]" if dtype.subdtype else name
            for part in base.names:
                inner, offset = base.fields[part][:2]  # type: ignore[index]  # it has names
                path = f"{place}.{part}" if place else part
                yield from _of_dtype(inner, path, at + index * base.itemsize + offset)
    elif base.kind == "O":
        raise TypeError(f"field {name!r} is a Python object: it has no value in memory")
    elif base.itemsize:
        yield Field(name, _type_text(dtype), at, _flat(dtype))


def _flat(dtype: DType) -> DType:
    if dtype.subdtype is None:
        return dtype
    return np.dtype((dtype.base, (dtype.itemsize // dtype.base.itemsize,)))


def _type_text(dtype: DType) -> str:
    base = dtype.base
    text = str(_SHORT.get(base.str[1:].replace("b1", "?"), base.name))
    if base.kind == "V":
        text = plural(base.itemsize, "byte")
    if base.kind == "S":
        text = f"char[{base.itemsize}]" if base.itemsize > 1 else "char"
    if base.byteorder == ">":
        text += " big-endian"
    return text + "".join(f"[{n}]" for n in dtype.shape)


def _of_ctypes(kind: CType, name: str, at: int) -> Iterator[Field]:
    """Yield the fields of a ctypes class, and the fields inside nested classes."""
    for owner in reversed(kind.__mro__):
        for entry in vars(owner).get("_fields_", ()):
            part, inner = entry[0], entry[1]
            place = getattr(kind, part)
            path = f"{name}.{part}" if name else part
            if len(entry) == 3:
                yield _bit_field(path, inner, at + place.offset, place.size & 0xFFFF, entry[2])
            else:
                yield from _of_ctype(inner, path, at + place.offset)


def _bit_field(name: str, kind: CType, at: int, low: int, count: int) -> Field:
    dtype = np.dtype(kind)
    last = low + count - 1
    return Field(name, f"{_type_text(dtype)}, bits {low} to {last}", at, dtype, (low, count))


def _of_ctype(kind: CType, name: str, at: int) -> Iterator[Field]:
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        yield from _of_ctypes(kind, name, at)
    elif issubclass(kind, ctypes.Array) and not _is_simple(kind):
        element, count = _element(kind)
        step = ctypes.sizeof(element)
        for index in range(count):
            yield from _of_ctype(element, f"{name}[{index}]", at + index * step)
    elif issubclass(kind, ctypes.Array):
        scalar: CType = kind
        shape = []
        while issubclass(scalar, ctypes.Array):
            scalar, count = _element(scalar)
            shape.append(count)
        text = scalar is ctypes.c_char and len(shape) == 1
        dtype = np.dtype(f"S{shape[0]}") if text else np.dtype((_scalar(scalar), tuple(shape)))
        yield Field(name, _type_text(dtype), at, _flat(dtype))
    elif issubclass(kind, ctypes.py_object):
        raise TypeError(f"field {name!r} is a Python object: it has no value in memory")
    elif _is_simple(kind):
        yield Field(name, _type_text(_scalar(kind)), at, _scalar(kind))
    else:
        pointed = vars(kind).get("_type_")
        simple = isinstance(pointed, type) and issubclass(pointed, ctypes._SimpleCData)
        target = _scalar(pointed) if simple and _is_simple(pointed) else None  # type: ignore[arg-type]
        words = f"pointer ({kind.__name__})"
        yield Field(name, words, at, np.dtype(np.uintp), target=target)


def _element(array: type[ctypes.Array[_CData]]) -> tuple[CType, int]:
    """Return the type and the number of an array's elements."""
    element: CType = vars(array)["_type_"]
    return element, vars(array)["_length_"]


def _scalar(kind: CType) -> DType:
    """Return the dtype of a simple ctypes type; for a wide character, that of its code.

    Raises:
        TypeError or NotImplementedError: NumPy does not know the type: it is a pointer.
    """
    return np.dtype(np.uint32 if kind is ctypes.c_wchar else kind)


def _is_simple(kind: CType) -> bool:
    """Return whether NumPy knows the type of the elements."""
    while issubclass(kind, ctypes.Array):
        kind, _ = _element(kind)
    if issubclass(kind, (ctypes.Structure, ctypes.Union, ctypes.py_object)):
        return False
    try:
        _scalar(kind)
    except (TypeError, NotImplementedError):
        return False
    return True


def _text(value: np.generic | int, *, plain: bool = False) -> str:
    """Return a NumPy scalar or an int as text; an int also in hex digits unless `plain`."""
    if isinstance(value, np.void):
        return value.tobytes().hex(" ")
    if isinstance(value, int | np.integer):
        number = int(value)
        return str(number) if plain or -10 < number < 10 else f"{number} ({number:#x})"
    if isinstance(value, np.floating):
        return f"{value:.9g}"
    return repr(value.item()) if isinstance(value, np.character) else str(value)


class StructureView:
    """Structure and offset of a panel; an assigned one stays when another region is shown.

    Without one, a region whose array has a structured dtype is shown with that.

    Attributes:
        offset: The offset of the structure's first byte.
    """

    def __init__(
        self,
        reader: Reader,
        region: Callable[[], SessionRegion | None],
        source: Callable[[], str],
        changed: Callable[[], None],
    ) -> None:
        """Start without a structure; `changed()` is called when the structure has changed."""
        self._changed = changed
        self._reader, self._region, self._source = reader, region, source
        self._assigned: Structure | None = None
        self._adopted: tuple[DType | None, Structure | None] = (
            None,
            None,
        )  # of the dtype that is first
        self.offset = 0

    @property
    def structure(self) -> Structure | None:
        """The assigned structure, or that of the region's dtype; None if there is none."""
        if self._assigned is not None:
            return self._assigned
        dtype = _record_dtype(self._region())
        if dtype != self._adopted[0]:
            self._adopted = dtype, _parsed(dtype)
        return self._adopted[1]

    def region_changed(self) -> None:
        """Place the structure of another region's dtype at its start."""
        if self._assigned is None:
            self.offset = 0

    @property
    def described_by(self) -> Source | None:
        """The description of the structure; None without one."""
        structure = self.structure
        return None if structure is None else structure.source

    def assign(self, source: Source | None) -> None:
        """Lay a structure over the bytes at the current offset; None: that of the region's dtype.

        Raises:
            TypeError, ValueError, BoundsError: As raised by parse_structure() and place().
        """
        structure = None if source is None else parse_structure(source)
        if structure is not None:
            self._check(structure, 0)
            region = self._region()
            if region is not None and self.offset + structure.size > region.size:
                self.offset = 0
        self._assigned = structure
        self._changed()

    @handler
    def place_structure(self, offset: int) -> None:
        """Move the structure to an offset.

        Raises:
            ValueError: There is no structure.
            BoundsError: It does not fit there.
        """
        structure = self.structure
        if structure is None:
            raise ValueError("there is no structure: assign one to HexView.structure")
        self._check(structure, offset)
        self.offset = offset
        self._changed()

    def _check(self, structure: Structure, offset: int) -> None:
        region = self._region()
        if type(offset) is not int or offset < 0:
            raise BoundsError(f"structure_offset is {offset!r}; it must be 0 or more")
        if region is not None and offset + structure.size > region.size:
            raise BoundsError(
                f"structure {structure.name!r} at offset {offset:,} ends at "
                f"{offset + structure.size:,}: region {region.name!r} has {region.size:,} bytes"
            )

    def state(self) -> Json | None:
        """Return name, size, offset and fields for a view; None without a structure."""
        structure = self.structure
        if structure is None:
            return None
        fields = [[field.name, field.type, field.offset, field.size] for field in structure.fields]
        return {
            "name": structure.name, "size": structure.size, "at": self.offset, "fields": fields,
        }  # fmt: skip

    @handler
    def fields(self) -> Json:
        """Read the structure; return `at`, `values`, `targets` (of pointers: start, stop), `error`.

        A value is None where the field's condition does not hold.
        """
        structure, region = self.structure, self._region()
        if structure is None or region is None:
            return _values(self.offset, [])
        at = self.offset
        if at + structure.size > region.size:
            text = f"{structure.name} has {plural(structure.size, 'byte')}; there are fewer here."
            return _values(at, [], error=text)
        try:
            data = self._read(region, at, structure.size)
            values, targets = structure.values(data), dict[int, list[int]]()
            for i, field in enumerate(structure.fields):
                target = field.target
                if target is None or values[i] is None:
                    continue
                start = _offset_of(region, field.number(data), isinstance(structure.source, type))
                if start is None or start + target.itemsize > region.size:
                    values[i] = f"{values[i]}: not in this region"
                    continue
                pointed = Field("", "", 0, _flat(target))
                bytes_ = self._read(region, start, target.itemsize)
                values[i] = f"{values[i]}: {pointed.value(bytes_)}"
                targets[i] = [start, start + target.itemsize]
        except ClosedError:
            return _values(at, [])
        except DgkitError as error:
            return _values(at, [], error=str(error))
        return _values(at, values, targets)

    def _read(self, region: SessionRegion, at: int, size: int) -> bytes:
        return self._reader.read(region, (self._source(),), at, size)[0]

    def of_page(self, page: Page) -> Json | None:
        """Return the same as fields() from a page that was read, or None if bytes are missing."""
        structure, at = self.structure, self.offset - page.at
        if structure is None or at < 0 or at + structure.size > len(page.parts[0]):
            return None
        if any(field.target is not None for field in structure.fields):
            return None
        return _values(self.offset, structure.values(page.parts[0][at : at + structure.size]))


def _values(
    at: int, values: list[str | None], targets: dict[int, list[int]] | None = None, error: str = ""
) -> Json:
    return {"at": at, "values": values, "targets": targets or {}, "error": error}


def _offset_of(region: SessionRegion, pointer: int, is_address: bool) -> int | None:
    """Return the offset in the region of an offset, or of an address in its host memory."""
    if not is_address and pointer < region.size:
        return pointer
    address = region.local.address if region.local is not None and region.place == "host" else None
    if address is not None and address <= pointer < address + region.size:
        return int(pointer - address)
    return None


def _record_dtype(region: SessionRegion | None) -> DType | None:
    """Return the dtype of a region's array in this process if it has fields, else None."""
    array = getattr(getattr(region and region.local, "memory", None), "array", None)
    dtype = getattr(array, "dtype", None)
    return dtype if getattr(dtype, "names", None) else None


def _parsed(dtype: DType | None) -> Structure | None:
    with contextlib.suppress(BoundsError, TypeError):  # too large to be shown
        return None if dtype is None else parse_structure(dtype)
    return None
