# SPDX-License-Identifier: Apache-2.0
"""README of the GPU-initiated transfers: its examples run, or are Python over names that exist."""

import ast
import re
import subprocess
from pathlib import Path

import pytest
from support.processes.agents import python

from dgkit import gpu_initiated

README = Path(__file__).parents[2] / "dgkit/gpu_initiated/README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_first_example_runs_as_it_is() -> None:
    done = subprocess.run(
        python(BLOCKS[0]), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "b'hello' emulated GPU\n"


@pytest.mark.parametrize("library", ["cuda.core", "numba"])
def test_the_other_examples_use_what_there_is(library: str) -> None:
    (source,) = [block for block in BLOCKS if f"from {library} import" in block]
    tree = ast.parse(source)
    own = [
        name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "dgkit.gpu_initiated"
        for name in node.names
    ]
    assert "launching" in own
    for name in own:
        assert (
            hasattr(gpu_initiated, name)
            or (Path(gpu_initiated.__file__).parent / f"{name}.py").exists()
        ), name
    if library == "cuda.core":
        core = pytest.importorskip("cuda.core")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == library:
                assert [n.name for n in node.names if not hasattr(core, n.name)] == []
