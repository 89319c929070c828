"""A docstring opens with a summary: what a thing is or does, not a question or half a sentence."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPENINGS = re.compile(
    r"(What|Which|Whether|Who|Whose|Whom|Where|How|That|So|Of|Again)\b(?!-)", re.IGNORECASE
)
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


def wrong(source: str) -> list[str]:
    """Return the docstrings that open as no summary does; none where the source has magics."""
    try:
        nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, DOCUMENTED)]
    except SyntaxError:
        return []
    return [text for node in nodes if OPENINGS.match(text := ast.get_docstring(node) or "")]


def test_docstrings_open_with_a_summary() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}" for path, code in sources() for text in wrong(code)
    ]
    assert not found, "\n".join(found)


def test_an_opening_that_is_no_summary_is_found() -> None:
    source = 'def f():\n    """Whether it is open."""\n\n\nclass A:\n    """Where-clause."""\n'
    assert wrong(source) == ["Whether it is open."]
