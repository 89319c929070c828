# SPDX-License-Identifier: Apache-2.0
"""What a page of documentation names: paths, links and commands, to check that they exist."""

import re
import shlex
from collections.abc import Iterator

_FOLDERS = r"(?:dgkit|native|tests|notebooks|\.ci|\.github)/"


def paths(text: str) -> list[str]:
    """Return the paths of the repository in code spans."""
    return sorted(set(re.findall(rf"`({_FOLDERS}[\w./-]*)`", text)) - {"tests/run"})


def links(text: str) -> list[str]:
    """Return the relative links, without anchors."""
    return sorted(set(re.findall(r"\]\(((?:\.\./)*[\w.-][\w./-]*)\)", text)))


def anchors(text: str) -> set[str]:
    """Return the links to headings of the same page."""
    return set(re.findall(r"\]\(#([\w-]+)\)", text))


def headings(text: str) -> set[str]:
    """Return the anchors of the headings."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in found}


def commands(text: str, program: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield subcommands (or arguments) and options of each call of a program in a code span."""
    for call in sorted(set(re.findall(rf"`{re.escape(program)} ([^`]+)`", text))):
        words = shlex.split(call)
        plain = [word for word in words if re.fullmatch(r"[a-z]+", word)]
        yield plain, [word for word in words if word.startswith("--")]
