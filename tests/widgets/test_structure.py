# SPDX-License-Identifier: Apache-2.0
"""Structures over the bytes of a hex view."""

import ctypes
import re
import struct

import numpy as np
import pytest
from support.jupyter.panels import PanelError, View
from traitlets import TraitError

import dgkit
from dgkit.widgets.hexview.structure import MAX_FIELDS, parse_structure


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float))


class Header(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint32), ("ready", ctypes.c_uint16, 1), ("kind", ctypes.c_uint16, 5),
        ("name", ctypes.c_char * 6), ("next", ctypes.POINTER(Point)), ("points", Point * 2),
        ("table", ctypes.c_int16 * 3), ("letter", ctypes.c_wchar), ("text", ctypes.c_char_p),
    )  # fmt: skip


class Network(ctypes.BigEndianStructure):
    _fields_ = (("port", ctypes.c_uint16), ("flags", ctypes.c_uint16, 4), ("rest", ctypes.c_int32))


def fields(source):
    return {one.name: (one.offset, one.size) for one in parse_structure(source).fields}


def values(source, data):
    made = parse_structure(source)
    return dict(zip([one.name for one in made.fields], made.values(bytes(data)), strict=True))


MESSAGE = {
    "kind": "u8", "size": "u16be", "pad": "pad", "ratio": "f32 if kind == 1",
    "id": "u32 @ ratio if kind != 1", "deep": "u8 @ 0x8 if size & 0x100",
    "next": "u8 @ 9 -> char[3]",
}  # fmt: skip


def test_a_declared_structure_has_unions_conditions_and_places():
    assert fields(MESSAGE) == {
        "kind": (0, 1), "size": (1, 2), "ratio": (4, 4), "id": (4, 4), "deep": (8, 1),
        "next": (9, 1),
    }  # fmt: skip
    data = bytes([1, 1, 0, 0, *np.float32(1.5).tobytes(), 7, 9])
    assert values(MESSAGE, data) | {"size": ""} == {
        "kind": "1", "size": "", "ratio": "1.5", "id": None, "deep": "7", "next": "9",
    }  # fmt: skip
    absent = values(MESSAGE, bytes(10))
    assert (absent["ratio"], absent["id"], absent["deep"]) == (None, "0", None)


def test_a_field_whose_tag_is_absent_is_absent():
    nested = {"a": "u8", "b": "u8 if a == 1", "c": "u8 if b == 0"}
    assert values(nested, [0, 0, 5]) == {"a": "0", "b": None, "c": None}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("u8 @ nowhere", "'nowhere', which is no field above it"),
        ("u8 if b == 1", "'b', which is no field above it"),
        ("u8 if real == 1", "'real', which is no whole number"),
        ("u8 if a == one", "'one', which is no number"),
        ("f32 -> u8", "no pointer"),
        ("u8 -> what", "'what'"),
        ("u8 when a", "then @ place, -> type, if field == number"),
    ],
)
def test_declarations_that_mean_nothing_are_refused(text, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_structure({"a": "u8", "real": "f32", "b": text})


def test_a_pointer_shows_what_it_points_to_if_that_is_in_the_region(session):
    class Node(ctypes.Structure):
        _fields_ = (("next", ctypes.POINTER(ctypes.c_uint32)),)

    region = session.empty(64)
    region.array[:] = 0
    region.array[20:23] = list(b"end")
    region.array[9] = 20
    view = View(dgkit.HexView(session, region))
    view.panel.structure = MESSAGE
    shown = view.ask("fields")
    assert (shown["values"][-1], shown["targets"]) == ("20 (0x14): b'end'", {5: [20, 23]})
    region.array[9] = 62
    shown = view.ask("fields")
    assert (shown["values"][-1], shown["targets"]) == ("62 (0x3e): not in this region", {})
    address = region.local.address
    region.array[:8] = list((address + 16).to_bytes(8, "little"))
    region.array[16:20] = [5, 0, 0, 0]
    view.panel.structure = Node
    shown = view.ask("fields")
    assert shown["values"] == [f"{address + 16} ({address + 16:#x}): 5"]
    assert shown["targets"] == {0: [16, 20]}
    view.panel.close()


def test_the_fields_of_a_ctypes_structure_are_where_ctypes_puts_them():
    found = fields(Header)
    assert found["magic"] == (0, 4)
    assert found["name"] == (Header.name.offset, 6)
    assert found["next"] == (Header.next.offset, ctypes.sizeof(ctypes.c_void_p))
    assert found["points[1].y"] == (Header.points.offset + 12, 4)
    assert found["table"] == (Header.table.offset, 6)
    assert parse_structure(Header).size == ctypes.sizeof(Header)


def test_the_values_are_those_that_ctypes_reads():
    one = Header(magic=0xD6, ready=1, kind=21, name=b"dpu", letter="ß")
    one.points[1].y = 2.5
    one.table[:] = [1, -2, 3]
    shown = values(Header, one)
    assert shown["magic"] == "214 (0xd6)"
    assert (shown["ready"], shown["kind"]) == ("1", "21 (0x15)")
    assert shown["name"] == "b'dpu'"
    assert shown["points[1].y"] == "2.5"
    assert shown["table"] == "[1, -2, 3]"
    assert shown["letter"] == "223 (0xdf)"
    assert shown["next"] == shown["text"] == "0"


def test_big_endian_fields_and_their_bits_are_read_as_such():
    shown = values(Network, Network(port=80, flags=9, rest=-3))
    assert (shown["port"], shown["flags"], shown["rest"]) == ("80 (0x50)", "9", "-3")
    assert parse_structure(Network).fields[0].type == "u16 big-endian"


def test_a_dtype_has_its_own_offsets_nested_ones_too():
    point = np.dtype([("x", "<f4"), ("y", ">f4")])
    dtype = np.dtype({
        "names": ["id", "at", "raw"], "formats": ["<u8", (point, (2,)), "V3"],
        "offsets": [4, 16, 40], "itemsize": 48,
    })  # fmt: skip
    assert fields(dtype) == {
        "id": (4, 8), "at[0].x": (16, 4), "at[0].y": (20, 4), "at[1].x": (24, 4),
        "at[1].y": (28, 4), "raw": (40, 3),
    }  # fmt: skip
    data = bytearray(48)
    struct.pack_into("<Q", data, 4, 7)
    struct.pack_into(">f", data, 28, 0.5)
    data[40:43] = b"\x01\x02\xff"
    shown = values(dtype, data)
    assert (shown["id"], shown["at[1].y"], shown["raw"]) == ("7", "0.5", "01 02 ff")


def test_a_declared_structure_is_packed_and_pads_are_left_out():
    declared = {"magic": "u32be", "_": "pad[3]", "flag": "bool", "name": "char[4]", "at": "f64[2]"}
    assert fields(declared) == {"magic": (0, 4), "flag": (7, 1), "name": (8, 4), "at": (12, 16)}
    shown = values(declared, struct.pack(">I3x?4s", 258, True, b"ab") + struct.pack("<2d", 1.5, -2))
    assert shown == {"magic": "258 (0x102)", "flag": "True", "name": "b'ab'", "at": "[1.5, -2]"}


def test_times_and_long_arrays_are_text():
    dtype = np.dtype([("at", "M8[s]"), ("many", "u1", (9,))])
    data = np.array([(np.datetime64("2024-02-03T04:05:06"), range(9))], dtype).tobytes()
    shown = values(dtype, data)
    assert shown == {"at": "2024-02-03T04:05:06", "many": "[0, 1, 2, 3, 4, 5, 6, 7, …]"}


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        (5, TypeError, "must be a ctypes.Structure"),
        (np.dtype("u4"), TypeError, "must be a ctypes.Structure"),
        ({"a": "u33"}, ValueError, "'u33'"),
        ({"a": 4}, ValueError, "types: u8"),
        ({}, ValueError, "no fields"),
        ({"a": "u8[0]"}, dgkit.BoundsError, "0 elements"),
        ({"a": "u64[600]"}, dgkit.BoundsError, "4,800 bytes"),
        (np.dtype([("a", "O")]), TypeError, "Python object"),
        (np.dtype([("a", [("b", "u1")], (MAX_FIELDS + 1,))]), dgkit.BoundsError, "256 fields"),
    ],
)
def test_what_is_no_structure_is_refused_in_words(source, error, words):
    with pytest.raises(error, match=words):
        parse_structure(source)


@pytest.fixture
def region(session):
    return session.empty(4096, name="page")


@pytest.fixture
def hexview(session, region, view):
    return view(dgkit.HexView(session))


def test_the_panel_lists_the_fields_and_reads_their_values(hexview, region):
    region.array[64:68] = [1, 2, 0, 0]
    hexview.panel.structure = {"low": "u16", "high": "u16"}
    hexview.panel.structure_offset = 62
    assert hexview.of("state")[-1]["structure"] == {
        "name": "structure", "size": 4, "at": 62,
        "fields": [["low", "u16", 0, 2], ["high", "u16", 2, 2]],
    }  # fmt: skip
    assert hexview.ask("fields")["values"] == ["0", "513 (0x201)"]
    hexview.ask("place_structure", offset=64)
    assert hexview.panel.structure_offset == 64
    assert hexview.ask("fields") == {
        "at": 64, "values": ["513 (0x201)", "0"], "targets": {}, "error": "", "buffers": [],
    }  # fmt: skip
    hexview.panel.structure = None
    assert hexview.of("state")[-1]["structure"] is None
    assert hexview.panel.structure is None


def test_live_values_follow_the_bytes_in_view(hexview, region):
    hexview.panel.structure = Point
    hexview.ask("fetch", view="one", at=0, n=64)
    hexview.ask("watch", on=True)
    region.array[:4] = np.frombuffer(np.float32(1.5).tobytes(), "u1")
    hexview.wait_for("fields", lambda fields: fields["values"] == ["1.5", "0"])
    hexview.ask("watch", on=False)


def test_a_structure_that_does_not_fit_is_refused_and_nothing_changes(hexview, session):
    hexview.panel.structure = Point
    with pytest.raises(PanelError, match="ends at 4,100: region 'page' has 4,096"):
        hexview.ask("place_structure", offset=4092)
    with pytest.raises(TraitError, match="structure_offset is -1"):
        hexview.panel.structure_offset = -1
    with pytest.raises(TraitError, match="structure is 7"):
        hexview.panel.structure = 7
    assert (hexview.panel.structure, hexview.panel.structure_offset) == (Point, 0)
    small = session.empty(4, name="small")
    hexview.ask("choose", number=small.id)
    assert hexview.ask("fields")["error"] == "Point has 8 bytes; there are fewer here."
