"""Tests affected by a change: the stages, and the test files that import changed modules."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# Tests for changes that Python's imports do not reveal: prefix of the path, stages, test files.
RULES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("native/softdoca/", ("plain", "unit"), ("tests/unit/test_softdoca*.py",)),
    ("native/", ("plain", "unit"), ("tests/unit/test_dma*.py", "tests/unit/test_packaging.py")),
    ("tests/native/", ("plain",), ()),
    ("notebooks/labs/", ("labs",), ("tests/labs/test_*.py",)),
    ("notebooks/", ("widgets",), ("tests/notebooks/test_*.py",)),
    ("dgkit/teach/", ("labs",), ("tests/labs/test_*.py",)),
    ("binder/", ("widgets",), ("tests/notebooks/test_binder.py",)),
    ("README.md", ("unit",), ("tests/unit/test_packaging.py",)),
    ("dgkit/memory/README.md", ("cuda",), ("tests/cuda/test_session_gpu.py",)),
    ("pyproject.toml", ("unit",), ("tests/unit/test_packaging.py",)),
    (".ci/", ("unit",), ("tests/unit/test_packaging.py",)),
    (
        ".github/",
        ("unit",),
        ("tests/unit/test_contributing.py", "tests/unit/test_security_page.py"),
    ),
    ("dgkit/cli/", ("unit",), ("tests/unit/test_cli*.py", "tests/programs/test_cli*.py")),
    ("dgkit/fleet/", ("fleet",), ("tests/fleet/test_*.py",)),
    ("dgkit/doctor/", ("doctor",), ("tests/doctor/test_*.py",)),
    ("tests/support/fake_cuda/", ("cuda", "plain"), ("tests/cuda/test_*.py",)),
)
FOLDERS = (
    *("unit", "programs", "doctor", "safety", "stress", "cuda", "fleet", "widgets"),
    *("notebooks", "labs", "browser"),
)
STAGES_OF = {"notebooks": {"widgets"}, "browser": {"browser", "pages"}}  # others: as the folder


@dataclass(frozen=True)
class Touched:
    """What to run after a change: paths that changed, stages, test files."""

    changes: tuple[str, ...]
    stages: tuple[str, ...]
    files: tuple[str, ...]


def changes(root: Path, since: str) -> tuple[str, ...]:
    """Return the paths that differ from a revision, new files included."""

    def git(*arguments: str) -> list[str]:
        done = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    untracked = git("ls-files", "--others", "--exclude-standard")
    return tuple(sorted({*git("diff", "--name-only", since), *untracked}))


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules and names that a file imports, in full where the import is absolute."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def _module(path: str) -> str:
    """Return the dotted name by which tests import a file."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name.removeprefix("tests.")


def _uses(root: Path, modules: set[str]) -> set[str]:
    """Return the test files that import one of the modules, or a support module that does."""
    tests = [file for folder in FOLDERS for file in (root / "tests" / folder).glob("**/*.py")]
    support = list((root / "tests/support").glob("**/*.py"))
    wanted = set(modules)
    for file in support:
        if imports(file) & modules:
            wanted.add(_module(str(file.relative_to(root))))
    return {
        str(file.relative_to(root))
        for file in tests
        if file.name.startswith("test_") and imports(file) & wanted
    }


def touched(root: Path, since: str) -> Touched:
    """Return what to run for the changes since a revision. Lint is always part of it."""
    paths = changes(root, since)
    stages, files = {"lint"}, set()
    modules: set[str] = set()
    for path in paths:
        for start, names, patterns in RULES:
            if path.startswith(start):
                stages |= set(names)
                files |= {str(f.relative_to(root)) for each in patterns for f in root.glob(each)}
        if path.endswith(".py"):
            modules |= {_module(path), _module(path).rpartition(".")[0]} - {"dgkit", "support", ""}
        panel = Path(path).parts
        if panel[:2] == ("dgkit", "widgets") and len(panel) > 3:
            for folder in ("widgets", "browser"):
                found = (root / "tests" / folder).glob(f"test_{panel[2]}*.py")
                files |= {str(file.relative_to(root)) for file in found}
        if path.startswith("tests/") and Path(path).name.startswith("test_"):
            files |= {path} if path.endswith(".py") and (root / path).exists() else set()
    files |= _uses(root, modules)
    folders = {Path(file).parts[1] for file in files} & set(FOLDERS)
    stages = stages.union(*(STAGES_OF.get(folder, {folder}) for folder in folders))
    return Touched(paths, tuple(sorted(stages)), tuple(sorted(files)))
