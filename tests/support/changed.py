# SPDX-License-Identifier: Apache-2.0
"""Tests affected by a change: the stages, and the test files that import changed modules."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable
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
    ("dgkit/fleet/", ("fleet",), ("tests/fleet/test_*.py",)),
    ("dgkit/doctor/", ("doctor",), ("tests/doctor/test_*.py",)),
    ("tests/support/fake_cuda/", ("cuda", "plain"), ("tests/cuda/test_*.py",)),
)
FOLDERS = (
    *("unit", "programs", "doctor", "safety", "stress", "cuda", "fleet", "widgets"),
    *("notebooks", "labs", "mlx5", "browser"),
)
STAGES_OF = {"notebooks": ("widgets",), "browser": ("browser", "pages")}  # others: as the folder


@dataclass(frozen=True)
class Touched:
    """What to run after a change: paths that changed; stages and test files, the nearest first."""

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


@cache
def _exports(root: Path, module: str) -> bool:
    """Return whether the package of a module imports it, as for the names that it exports."""
    package, _, name = module.rpartition(".")
    init = root / package.replace(".", "/") / "__init__.py"
    return init.exists() and name in {each.rpartition(".")[2] for each in imports(init)}


def _importers(root: Path, paths: Iterable[str]) -> set[str]:
    """Return the test files that import a changed module, or a support module that does."""
    modules: set[str] = set()
    for path in paths:
        module = _module(path)
        modules |= {module, module.rpartition(".")[0]} if _exports(root, module) else {module}
    modules -= {"dgkit", "support", ""}
    wanted = set(modules)
    for file in (root / "tests/support").glob("**/*.py"):
        if imports(file) & modules:
            wanted.add(_module(str(file.relative_to(root))))
    return {
        str(file.relative_to(root))
        for folder in FOLDERS
        for file in (root / "tests" / folder).glob("**/test_*.py")
        if imports(file) & wanted
    }


def _of_command(root: Path, path: str) -> set[str]:
    """Return the test files that have the name of a changed command as a word of their own."""
    match = re.fullmatch(r"dgkit/cli/(\w+)_command\.py", path)
    quoted = f'"{match[1]}"' if match else ""
    return {
        str(file.relative_to(root))
        for folder in FOLDERS
        if quoted
        for file in (root / "tests" / folder).glob("test_cli*.py")
        if quoted in file.read_text(encoding="utf-8") or match[1] in file.stem.split("_")
    }


def _words(path: str) -> set[str]:
    """Return the words of a file's name, and of its folder's."""
    return {*Path(path).stem.split("_"), Path(path).parent.name} - {"test", "command", "init"}


def touched(root: Path, since: str) -> Touched:
    """Return what to run for the changes since a revision. Lint is always part of it."""
    paths = changes(root, since)
    stages, files = {"lint"}, set()
    for path in paths:
        for start, names, patterns in RULES:
            if path.startswith(start):
                stages |= set(names)
                files |= {str(f.relative_to(root)) for each in patterns for f in root.glob(each)}
        files |= _of_command(root, path)
        panel = Path(path).parts
        if panel[:2] == ("dgkit", "widgets") and len(panel) > 3:
            for folder in ("widgets", "browser"):
                found = (root / "tests" / folder).glob(f"test_{panel[2]}*.py")
                files |= {str(file.relative_to(root)) for file in found}
        if re.fullmatch(rf"tests/({'|'.join(FOLDERS)})/(.*/)?test_\w+\.py", path):
            files |= {path} if (root / path).exists() else set()
    files |= _importers(root, (path for path in paths if path.endswith(".py")))

    # A test is near whose name has the words of a changed file.
    def distance(file: str) -> tuple[int, int, str]:
        common = max(len(_words(file) & _words(path)) for path in paths)
        return -common, FOLDERS.index(Path(file).parts[1]), file

    nearest = sorted(files, key=distance)
    folders = [Path(file).parts[1] for file in nearest]
    order = [name for folder in folders for name in STAGES_OF.get(folder, (folder,))]
    return Touched(paths, tuple(dict.fromkeys([*order, *sorted(stages)])), tuple(nearest))
