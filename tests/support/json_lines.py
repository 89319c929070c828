# SPDX-License-Identifier: Apache-2.0
"""Figures as JSON with one record a line, so that a diff names the records that changed."""

import json
from pathlib import Path
from typing import Any

LONGEST = 3000  # characters of a record; a longer object has one line for each of its members


def dumps(document: Any) -> str:
    """Return JSON of a document: one line for each member, and for each record of its lists."""
    return _broken(document) if isinstance(document, (dict, list)) and document else _text(document)


def write(path: Path, document: Any) -> None:
    """Write a document to a file as dumps() returns it."""
    path.write_text(dumps(document) + "\n", encoding="utf-8")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(value: Any) -> str:
    """Return one line for a record and for a list of numbers, else one line for each member."""
    if not isinstance(value, (dict, list)) or not value:
        return _text(value)
    members = [*value.values()] if isinstance(value, dict) else value
    records = isinstance(value, list) and any(isinstance(each, (dict, list)) for each in value)
    inner = any("\n" in _lines(each) for each in members)
    return _broken(value) if records or inner or len(_text(value)) > LONGEST else _text(value)


def _broken(value: Any) -> str:
    if isinstance(value, dict):
        members = [f"{_text(key)}: {_lines(each)}" for key, each in value.items()]
        return "\n".join(["{", ",\n".join(members), "}"])
    return "\n".join(["[", ",\n".join(map(_lines, value)), "]"])
