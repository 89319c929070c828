"""Prose is plain technical English: no banned words, and docstrings open with a summary."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from support.source import prose

ROOT = Path(__file__).parents[2]
READERS: dict[str, tuple[Callable[[str], Iterable[prose.Piece]], tuple[str, ...]]] = {
    "python": (prose.python, ("dgkit/**/*.py", "native/**/*.py")),
    "c": (prose.c, ("native/**/*.[ch]", "native/**/*.cu*", "dgkit/**/*.css")),
    "javascript": (prose.javascript, ("dgkit/**/*.js",)),
    "markdown": (prose.markdown, ("**/*.md",)),
    "notebooks": (prose.notebook, ("notebooks/**/*.ipynb",)),
    "messages": (prose.plain, ("tests/unit/approved/*.txt",)),
}


@pytest.mark.parametrize("kind", READERS)
def test_no_banned_word_is_used(kind: str) -> None:
    read, patterns = READERS[kind]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in prose.files(ROOT, *patterns)
        for piece in read(path.read_text(encoding="utf-8"))
        for line, word in prose.banned(piece)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", ["python", "notebooks"])
def test_docstrings_open_with_a_summary(kind: str) -> None:
    read, patterns = READERS[kind]
    wrong = [
        f"{path.relative_to(ROOT)}:{piece.line}: {found[0]}"
        for path in prose.files(ROOT, *patterns)
        for piece in read(path.read_text(encoding="utf-8"))
        if piece.docstring and (found := prose.OPENINGS.match(prose.opening(piece)))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("it is told so, and\nnobody knows", [(1, "told"), (2, "nobody")]),
        ("a socket of\nits own", [(1, "of its own")]),
        ("if it is no\nfile", [(1, "is no file")]),
        ("there is no file, and it is no longer known", []),
        ("`told` is a name", []),
        ("it goes on; unrelated: untold, folies", []),
    ],
)
def test_the_words_are_found_where_they_are(text: str, words: list[tuple[int, str]]) -> None:
    assert list(prose.banned(prose.Piece(1, text))) == words


def test_comments_and_docstrings_are_found_with_their_lines() -> None:
    source = '"""A."""\n\n# b\n# c\nx = "#"  # d\n\n\ndef f():\n    """E."""\n'
    found = sorted((p.line, p.text) for p in prose.python(source))
    assert found == [(1, '"""A."""'), (3, " b\n c\n d"), (9, '"""E."""')]
    source = '/* a */ char *s = "// no"; // b\n// c\nint x = \'"\'; /* d\n * e */\n'
    assert [(p.line, p.text.split()) for p in prose.c(source)] == [
        (1, ["a"]),
        (1, ["b", "c"]),
        (3, ["d", "e"]),
    ]
    source = 'const a = b.replace(/"/g, "x") / 2; // c\n'
    assert [(p.line, p.text) for p in prose.javascript(source)] == [(1, " c")]
