# SPDX-License-Identifier: Apache-2.0
"""A docstring opens with a summary: what a thing is or does, not a question or half a sentence."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.source.python import statements

ROOT = Path(__file__).parents[2]
OPENINGS = re.compile(
    r"(What|Which|Whether|Who|Whose|Whom|Where|How|That|So|Of|Again)\b(?!-)", re.IGNORECASE
)
HEADING = "(?:Args|Attributes|Returns|Yields|Raises):"
CALLED = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *CALLED)


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
def docstrings(source: str) -> list[tuple[str, set[str]]]:
    """Return each docstring with the parameters of the functions that it is on or contains.

    None of a source that has magics.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    nodes = [tree, *statements(tree)]
    parameters = [(node.lineno, parameters_of(node)) for node in nodes if isinstance(node, CALLED)]
    found = []
    for node in nodes:
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            last = len(source) if isinstance(node, ast.Module) else node.end_lineno or 0
            lines = range(getattr(node, "lineno", 0), last + 1)
            found.append((text, set().union(*(of for line, of in parameters if line in lines))))
    return found


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of a function's parameters."""
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def wrong(source: str) -> list[str]:
    """Return the docstrings that open as no summary does."""
    return [text for text, _ in docstrings(source) if OPENINGS.match(text)]


def broken(source: str) -> list[str]:
    """Return lines of docstrings with text behind a heading, or with parameters before one."""
    return [line for text, names in docstrings(source) for line in _broken_lines(text, names)]


def _broken_lines(text: str, names: set[str]) -> Iterator[str]:
    lines = text.splitlines()
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
