# SPDX-License-Identifier: Apache-2.0
"""Documents on which the checks are based, read from documents.txt."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec


class Source(msgspec.Struct, frozen=True):
    """Section of a document."""

    document: str
    section: str
    url: str

    def __str__(self) -> str:
        return f"{self.document}, {self.section}" if self.section else self.document


class Document:
    """Document; calling it with the title of a section returns a Source."""

    def __init__(self, title: str, url: str = "") -> None:
        self.title, self.url = title, url

    def __call__(self, section: str = "") -> Source:
        """Return the Source of a section."""
        return Source(self.title, section, self.url)


_LINE = re.compile(r"^([A-Z][A-Z0-9_]*) (.+?)(?: <(https://\S+)>)?$", re.MULTILINE)
_TEXT = Path(__file__).with_name("documents.txt").read_text("utf-8")
_DOCUMENTS = {name: Document(title, url) for name, title, url in _LINE.findall(_TEXT)}


def __getattr__(name: str) -> Document:
    """Return the document with this name."""
    try:
        return _DOCUMENTS[name]
    except KeyError:
        raise AttributeError(f"documents.txt has no {name}") from None
