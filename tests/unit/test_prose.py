"""A docstring opens with a summary: what a thing is or does, not a question or half a sentence."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPENINGS = re.compile(
    r"(What|Which|Whether|Who|Whose|Whom|Where|How|That|So|Of|Again)\b(?!-)", re.IGNORECASE
)
HEADING = "(?:Args|Attributes|Returns|Yields|Raises):"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def sources() -> Iterator[tuple[Path, str]]:
    for folder in ("dgkit", "native"):
        for path in (ROOT / folder).glob("**/*.py"):
            yield path, path.read_text(encoding="utf-8")
    for path in (ROOT / "notebooks").glob("**/*.ipynb"):
        if ".ipynb_checkpoints" in path.parts:
            continue
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                yield path, re.sub(r"^[ \t]*[%!].*$", "", "".join(cell["source"]), flags=re.M)


@cache
def documented(source: str) -> list[ast.AST]:
    """Return the modules, classes and functions of a source; none where it has magics."""
    try:
        return [node for node in ast.walk(ast.parse(source)) if isinstance(node, DOCUMENTED)]
    except SyntaxError:
        return []


def wrong(source: str) -> list[str]:
    """Return the docstrings that open as no summary does."""
    docstrings = [ast.get_docstring(node) or "" for node in documented(source)]  # type: ignore[arg-type]
    return [text for text in docstrings if OPENINGS.match(text)]


def broken(source: str) -> list[str]:
    """Return lines of docstrings with text behind a heading, or with parameters before one."""
    return [line for node in documented(source) for line in _broken_lines(node)]


def _broken_lines(node: ast.AST) -> Iterator[str]:
    lines = (ast.get_docstring(node) or "").splitlines()  # type: ignore[arg-type]
    if not any(":" in line for line in lines):
        return
    names = [arg.arg for arg in ast.walk(node) if isinstance(arg, ast.arg)]
    headings = [number for number, line in enumerate(lines) if re.fullmatch(HEADING, line)]
    described = len(lines) if not headings else headings[0]
    yield from (line for line in lines if re.match(rf"({HEADING}) +\S", line))
    parameters = (re.match(r" *(\w+): ", line) for line in lines[:described])
    yield from (match.string for match in parameters if match and match[1] in names)


def test_each_section_of_a_docstring_has_its_heading_on_a_line_of_its_own() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}" for path, code in sources() for text in broken(code)
    ]
    assert not found, "\n".join(found)


def test_a_broken_section_is_found() -> None:
    lost = 'def f(depth):\n    """Open it.\n\n    depth: Limit.\n            16,384.\n    """\n'
    joined = 'def f(keys):\n    """Open it.\n\n    Args: keys: Number.\n    """\n'
    right = 'def f(keys):\n    """Open it.\n\n    Args:\n        keys: Number.\n    """\n'
    assert [broken(text) for text in (lost, joined, right)] == [
        ["depth: Limit."], ["Args: keys: Number."], [],
    ]  # fmt: skip


def test_docstrings_open_with_a_summary() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}" for path, code in sources() for text in wrong(code)
    ]
    assert not found, "\n".join(found)


def test_an_opening_that_is_no_summary_is_found() -> None:
    source = 'def f():\n    """Whether it is open."""\n\n\nclass A:\n    """Where-clause."""\n'
    assert wrong(source) == ["Whether it is open."]
