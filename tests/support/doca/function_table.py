"""The table of functions in softdoca's README, generated from the headers.

A header says which functions there are, and, in the comment above them, which are refused:
"Returns NOT_SUPPORTED.", or "Return BAD_STATE: the reason." for all declarations up to the next
comment. All other notes are remarks in the table itself: they are kept when it is generated again,
function by function. A function of which there is nothing to note has no row.
"""

import re
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

BEGIN, END = "<!-- functions -->\n", "\n<!-- end of functions -->"
RELEASES = ("<!-- releases -->\n", "<!-- end of releases -->\n")
_OF_RELEASES = re.compile(
    r"^#define DOCA_OF_(\w+) SOFTDOCA_(TO|FROM)_(\w+)(?: /\* (.*) \*/)?$", re.M
)
_FORMS = re.compile(r"^/\* (.*?) \*/\n#define DOCA_FORM_", re.M)
HEAD = "| function | note |\n|---|---|"
_ROW = re.compile(r"^\| `(doca_\w+(?:\{[\w, ]*\})?)` \| (.*?) \|$", re.M)
_DECLARED = re.compile(
    r"/\*(?P<comment>.*?)\*/|^DOCA_(?:STABLE|EXPERIMENTAL)\s+[^;()]*?\b(?P<name>doca_\w+)\(",
    re.S | re.M,
)
_REFUSED = re.compile(r"(Returns?) (NOT_SUPPORTED|BAD_STATE)(?:: ([^.]+)\.|\.|, as ([^.]+)\.)")
_CODE = re.compile(r"(NOT_SUPPORTED|BAD_STATE)(:|$)")  # of a function that is refused
_MOST_NAMES = 12  # of one row


class Row(NamedTuple):
    """What the table says of a function."""

    header: str
    name: str
    note: str


def generate(readme: str, include: Path) -> str:
    """Return the README with the table of these headers."""
    before, _, rest = readme.partition(BEGIN)
    table, _, after = rest.partition(END)
    rows = [row for row in rows_of(table, include) if row.note]
    return before + BEGIN + "\n".join([HEAD, *map(_line, _grouped(rows))]) + END + after


def releases(readme: str, header: str) -> str:
    """Return the README with the table of the names that not all releases have."""
    lines = ["| name | releases | otherwise |", "|---|---|---|"]
    for name, side, release, instead in _OF_RELEASES.findall(header):
        prefix = "DOCA_" if name.isupper() else "doca_"
        number = release.replace("_", ".")
        span = f"up to {number}" if side == "TO" else f"from {number} on"
        lines.append(f"| `{prefix}{name}` | {span} | {instead} |")
    forms = [f"- {text}" for text in _FORMS.findall(header)]
    before, _, rest = readme.partition(RELEASES[0])
    after = rest.partition(RELEASES[1])[2]
    return "\n".join([before + RELEASES[0] + "\n".join(lines), "", *forms, RELEASES[1]]) + after


def rows_of(table: str, include: Path) -> list[Row]:
    """Return a row for each function of the headers, with the remarks of a table."""
    kept = {name: note for names, note in _ROW.findall(table) for name in _expanded(names)}
    return [
        Row(header, name, refused or _remark(kept.get(name, "")))
        for header, name, refused in declared(include)
    ]


def declared(include: Path) -> list[tuple[str, str, str]]:
    """Return header, name and, if it is refused, code and reason of each function."""
    found = []
    for path in sorted(include.glob("*.h")):
        comment, is_first = "", False
        for match in _DECLARED.finditer(path.read_text("utf-8")):
            if match["comment"] is not None:
                comment, is_first = " ".join(re.sub(r"\n \*", " ", match["comment"]).split()), True
            else:
                found.append((path.name, match["name"], _refusal(comment, is_first)))
                is_first = False
    return found


def _refusal(comment: str, is_first: bool) -> str:
    """Return code and reason if a comment says that a function is refused."""
    refused = _REFUSED.match(comment)
    if not refused or not (is_first or refused[1] == "Return"):
        return ""
    reason = refused[3] or refused[4]
    return f"{refused[2]}: {reason}" if reason else refused[2]


def _remark(note: str) -> str:
    """Return a note of the table, unless it is of a refusal that the header no longer has."""
    return "" if _CODE.match(note) else note


def _expanded(names: str) -> list[str]:
    begin, _, ends = names.rstrip("}").partition("{")
    return [begin + end.strip() for end in ends.split(",")]


def _grouped(rows: list[Row]) -> list[Row]:
    """Join functions of a header with the same remarks to a row: doca_x_{a, b}."""
    groups: dict[tuple[str, str], list[list[str]]] = {}
    for header, name, note in rows:
        parts = groups.setdefault((header, note), [[]])
        if len(parts[-1]) == _MOST_NAMES:
            parts.append([])
        parts[-1].append(name)
    return [
        Row(header, _joined(names), note)
        for (header, note), parts in groups.items()
        for names in parts
    ]


def _joined(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    begin = "".join(letters[0] for letters in same)
    begin = begin[: begin.rindex("_") + 1]
    return f"{begin}{{{', '.join(name.removeprefix(begin) for name in names)}}}"


def _line(row: Row) -> str:
    return f"| `{row.name}` | {row.note} |"
