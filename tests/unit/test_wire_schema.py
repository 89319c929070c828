# SPDX-License-Identifier: Apache-2.0
"""The fields of all messages, in order, are approved together with the protocol's version.

An array carries its fields by position, so a peer with another order reads one field as another.
`python -m pytest tests/unit/test_wire_schema.py --approve` writes the approved file again: raise
VERSION if a line has changed, and review the diff.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any, get_type_hints

import msgspec
import pytest

from dgkit import schema
from dgkit.wire import messages

STRUCTS: list[Any] = sorted(
    (
        known
        for module in (schema, messages)
        for known in vars(module).values()
        if isinstance(known, type) and issubclass(known, msgspec.Struct)
        if known.__module__ == module.__name__ and known.__struct_fields__
    ),
    key=lambda cls: cls.__name__,
)


def _layout(cls: Any) -> str:
    """Return the place of each field in the bytes of a message: by position, or by name."""
    body = msgspec.msgpack.encode(cls(**{name: name for name in cls.__struct_fields__}))
    fields = msgspec.msgpack.decode(body)
    return str(fields if isinstance(fields, list) else dict(sorted(fields.items())))


def test_the_fields_of_all_messages_are_the_approved_ones(
    approved: Callable[[str, str], None],
) -> None:
    lines = [f"{cls.__name__}: {_layout(cls)}\n" for cls in STRUCTS]
    approved("messages.txt", f"version {messages.VERSION}\n{''.join(lines)}")


@pytest.mark.parametrize("cls", STRUCTS, ids=lambda cls: cls.__name__)
def test_a_swap_of_two_fields_of_one_type_is_harmless_or_not_approved(cls: Any) -> None:
    hints, config = get_type_hints(cls), cls.__struct_config__
    for pair in combinations(cls.__struct_fields__, 2):
        if hints[pair[0]] != hints[pair[1]]:
            continue  # the decoder refuses it
        swap = dict(zip(pair, reversed(pair), strict=True))
        order = [(swap.get(name, name), Any) for name in cls.__struct_fields__]
        swapped = msgspec.defstruct(
            cls.__name__, order, tag=config.tag, array_like=config.array_like, kw_only=True
        )
        assert (_layout(swapped) != _layout(cls)) == config.array_like, pair


def test_no_message_can_be_made_of_values_without_names() -> None:
    for cls in STRUCTS:
        with pytest.raises(TypeError, match="positional"):
            cls(1)
