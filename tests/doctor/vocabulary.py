# SPDX-License-Identifier: Apache-2.0
"""Words that the doctor looks for, and those that its list of words not to redact lacks.

`python tests/doctor/vocabulary.py` prints the words that the list lacks; `--add` adds them to
dgkit/doctor/redact/vocabulary.py: review the diff, for a host or a person may be called the same.
Only what is looked for counts: readings' keys, and texts without a space in `collect/` and
`facts/`. Sentences, docstrings, comments and names of variables do not.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

if __name__ == "__main__":  # run as a program
    sys.path[:0] = [str(Path(__file__).parents[2])]

import dgkit.doctor
from dgkit.doctor.redact import vocabulary
from dgkit.doctor.redact.vocabulary import WORDS

__all__ = ["looked_for", "missing", "module"]

_WORD = re.compile("[a-z]{3,}")
_KEY = re.compile("(?:text|raw|names|link|run|ask|probe) ")
_FOLDERS = ("collect", "facts")


def looked_for(source: str) -> Iterator[str]:
    """Yield the words of a module's texts that name something: keys, files, fields, options."""
    tree = ast.parse(source)
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if id(node) not in documents and (" " not in text.strip() or _KEY.match(text)):
                yield from _WORD.findall(text.lower())


def missing() -> list[str]:
    """Return the words that the doctor looks for and the list lacks, sorted."""
    folder = Path(dgkit.doctor.__file__).parent
    sources = (path for name in _FOLDERS for path in (folder / name).glob("*.py"))
    found = {word for path in sources for word in looked_for(path.read_text("utf-8"))}
    return sorted(found - WORDS)


def module(words: Iterable[str]) -> str:
    """Return the source of the module with these words instead of its own."""
    text = "\n".join(textwrap.wrap(" ".join(sorted(set(words))), 100))
    source = Path(vocabulary.__file__).read_text("utf-8")
    return re.sub(r'(?<=_TEXT = """\n).*?(?=\n""")', text, source, flags=re.DOTALL)


def main() -> int:
    """Print the words that the list lacks; with --add, add them."""
    found = missing()
    print("\n".join(found) or "nothing is missing")
    if "--add" in sys.argv[1:]:
        Path(vocabulary.__file__).write_text(module({*WORDS, *found}), "utf-8")
        return 0
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
