# SPDX-License-Identifier: Apache-2.0
"""Folders of native/ call down only, and no two of its files have one name."""

import re
from collections import Counter, defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"

# A function with its body, a variable with its value, and what base/base.h's macros define. The
# linker's symbols would tell the same, but need a build.
_DEFINED = re.compile(
    r"""^(?!static\b|typedef\b|extern\b|return\b|else\b|goto\b|\#)
    (?: (?:GETTER|AS_MEMBER)\((?P<macro>\w+)
      | (?:[A-Za-z_]\w*[\s*]+)+? (?P<function>\w+)\([^;{}]*?\)[^;{}()]*?\n\{
      | (?:[A-Za-z_]\w*[ *]+)+? (?P<variable>\w+)(?:\[[^\]]*\])*\ =\  )""",
    re.MULTILINE | re.VERBOSE,
)
_NAME = re.compile(r"(?<![.>\w])[A-Za-z_]\w*")  # not a member of a struct
_INCLUDE = re.compile(r'^#include "(?:\w+/)*(\w+\.h)"', re.MULTILINE)


def _definitions(code: str) -> set[str]:
    """Return the names that other files may link."""
    found = (m[m.lastgroup or 0] for m in _DEFINED.finditer(code))
    return set(found) - {"GETTER", "AS_MEMBER"}


def _code(path: Path) -> str:
    """Return a file without its comments, and without strings but for names of headers."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r'(?<!include )"(?:\\.|[^"\\\n])*"', " ", text)


def _uses(root: Path) -> dict[str, dict[str, set[str]]]:
    """Return for each folder the folders that it uses, with the files and names that do so."""
    folders = {p: p.parent.relative_to(root).as_posix() for p in sorted(root.rglob("*/*.[ch]"))}
    # softdoca is a program of its own, whose libraries the core loads by name.
    text = {path: _code(path) for path in folders if not folders[path].startswith("softdoca")}
    headers = {path.name: folders[path] for path in text if path.suffix == ".h"}
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for path in text:
        if path.suffix == ".c" and path.name != "preload.c":  # that has names of the C library
            for name in _definitions(text[path]):
                owners[name].add(folders[path])
    uses: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, code in text.items():
        folder = folders[path]
        for header in set(_INCLUDE.findall(code)) & headers.keys():
            if headers[header] != folder:
                uses[folder][headers[header]].add(f"{path.name} includes {header}")
        for name in set(_NAME.findall(code)):
            # A name of two libraries (DOCA 1.3 and 2.5) says nothing.
            if len(owners[name]) == 1:
                (used,) = owners[name]
                if used != folder:
                    uses[folder][used].add(f"{path.name} calls {name}")
    return uses


def _circle(uses: dict[str, dict[str, set[str]]]) -> list[str]:
    """Return the steps of a circle of folders; empty if there is none."""
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        ring = error.args[1][::-1]
        return [f"{a} -> {b}: {sorted(uses[a][b])}" for a, b in pairwise(ring)]
    return []


@pytest.mark.parametrize(
    ("root", "upper", "lower"),
    [
        ("", "src", "src/providers"),
        ("", "src/providers", "src/share"),
        ("softdoca/src", "memory", "gpu"),
        ("softdoca/src", "dma", "copy"),
    ],
)
def test_folders_call_down_only(root: str, upper: str, lower: str) -> None:
    uses = _uses(NATIVE / root)
    assert uses[upper][lower]
    assert not _circle(uses)


@pytest.mark.parametrize(
    "up", ["int up(void)\n{\n\treturn down();\n}\n", '#include "a/a.h"\n'], ids=("call", "include")
)
def test_a_circle_of_folders_is_found(tmp_path: Path, up: str) -> None:
    for folder, code in (("a", '#include "b/b.h"\nint down(void)\n{\n\treturn 0;\n}\n'), ("b", up)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{folder}.c").write_text(code)
        (tmp_path / folder / f"{folder}.h").touch()
    assert len(_circle(_uses(tmp_path))) == 2


def test_no_two_files_have_one_name() -> None:
    # Names that DOCA, rdma-core and CUDA give their headers may be those of several releases.
    given = ("softdoca/include/", "gpu_initiated/emulated/")
    names = Counter(
        path.name
        for path in sorted(NATIVE.rglob("*"))
        if path.suffix in (".c", ".h", ".cu", ".cuh", ".cpp")
        and not path.relative_to(NATIVE).as_posix().startswith(given)
    )
    assert [name for name, n in names.items() if n > 1] == []
