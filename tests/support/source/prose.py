"""Prose in the repository, piece by piece with its line, and the words that it must not contain."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.source.c_like import comments, tokens

# Each is wrong in technical prose wherever it occurs. Words that also have a technical use (goes,
# tell, stand, own) cannot be listed.
BANNED = re.compile(
    r"""\b(
    told | tells | stands | lies | whoever | somebody | nobody
    | of\s+(?:its|his|her|their|one's)\s+own
    | (?<!there\s)is\s+no\s+(?!longer\b|more\b|less\b|\w+er\b)\w+
    | it\s+none
    | again:\s+nothing
    )\b""",
    re.VERBOSE | re.IGNORECASE,
)
# A summary says what a thing is or does: it is no answer to a question, and no half sentence.
OPENINGS = re.compile(
    r"(What|Which|Whether|Who|Whose|Whom|Where|How|That|So|Of|Again)\b(?!-)", re.IGNORECASE
)
_CODE_SPAN = re.compile(r"``.+?``|`[^`]*`", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_MARKDOWN_NOISE = re.compile(r"<!--.*?-->|\]\([^)]*\)|https?://\S+", re.DOTALL)


class Piece(NamedTuple):
    """A comment, docstring, string or document, and the line where it begins."""

    line: int
    text: str
    docstring: bool = False


def _blank(found: re.Match[str]) -> str:
    """Return white space of the same lines."""
    return re.sub(r"\S", " ", found[0])


def banned(piece: Piece) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each banned word in a piece."""
    text = _CODE_SPAN.sub(_blank, piece.text)
    for found in BANNED.finditer(text):
        yield piece.line + text.count("\n", 0, found.start()), " ".join(found[0].split())


def python(source: str) -> Iterator[Piece]:
    """Yield the docstrings, the comments and the strings of three words or more."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            docstring = id(node) in docstrings
            written = ast.get_source_segment(source, node) if docstring else None
            if docstring or len(node.value.split()) >= 3:
                yield Piece(node.lineno, written or node.value, docstring)
    yield from _python_comments(source)


def _python_comments(source: str) -> Iterator[Piece]:
    """Yield the comments, those of consecutive lines as one."""
    found = [
        (token.start[0], token.string.lstrip("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    block: list[str] = []
    for i, (line, text) in enumerate(found):
        block.append(text)
        if i + 1 == len(found) or found[i + 1][0] != line + 1:
            yield Piece(line - len(block) + 1, "\n".join(block))
            block = []


def c(source: str) -> Iterator[Piece]:
    """Yield the comments of C or CSS."""
    yield from (Piece(*found) for found in comments(source))


def javascript(source: str) -> Iterator[Piece]:
    """Yield the comments, and the strings of three words or more."""
    yield from (Piece(*found) for found in comments(source, regex=True))
    for token in tokens(source, regex=True):
        if token.kind == "string" and len(token.text.split()) >= 3:
            yield Piece(token.line, re.sub(r"\$\{[^}]*\}", "", token.text).replace("`", " "))


def markdown(source: str) -> Iterator[Piece]:
    """Yield a document without its code, comments and links."""
    yield Piece(1, _MARKDOWN_NOISE.sub(_blank, _FENCE.sub(_blank, source)))


def notebook(source: str) -> Iterator[Piece]:
    """Yield the prose of a notebook's cells, with the lines of its file."""
    raw, at = source.splitlines(), 0
    for cell in json.loads(source)["cells"]:
        lines = []  # of the file, for each line of the cell
        for text in cell["source"]:
            written = json.dumps(text, ensure_ascii=False)
            at = next(i for i in range(at, len(raw)) if raw[i].strip().rstrip(",") == written) + 1
            lines.append(at)
        text = "".join(cell["source"])
        for piece in markdown(text) if cell["cell_type"] == "markdown" else _code(text):
            for line, part in enumerate(piece.text.splitlines() or [""], piece.line):
                place = lines[min(line, len(lines)) - 1] if lines else at
                yield Piece(place, part, piece.docstring and line == piece.line)


def _code(text: str) -> list[Piece]:
    """Return the prose of a code cell, without its magics."""
    source = re.sub(r"^[ \t]*[%!].*$", _blank, text, flags=re.MULTILINE)
    try:
        return list(python(source))
    except (SyntaxError, tokenize.TokenError):  # a magic in an expression
        return [Piece(1, "\n".join(re.findall(r"#.*|^$", source)))]


def plain(source: str) -> Iterator[Piece]:
    """Yield a text as it is."""
    yield Piece(1, source)


def opening(piece: Piece) -> str:
    """Return a docstring without its quotes."""
    return re.sub(r'^[rRuUbBfF]*("""|\'\'\'|"|\')\s*', "", piece.text)


def files(root: Path, *patterns: str) -> Iterator[Path]:
    """Yield the files of the repository that match, without build output and dependencies."""
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            parts = path.relative_to(root).parts
            hidden = any(part.startswith(".") and part != ".github" for part in parts)
            if not hidden and not {"_softdoca", "node_modules", "build"} & {*parts}:
                yield path
