# SPDX-License-Identifier: Apache-2.0
"""The stub of the C core, by which mypy checks its calls, declares what the core has."""

import ast
from pathlib import Path

import pytest

from dgkit.dma._ffi import ffi, lib

ROOT = Path(__file__).parents[2]
STUB = ROOT / "dgkit" / "_native.pyi"

pytestmark = pytest.mark.skipif(not STUB.exists(), reason="needs an installation in place")


def declared(name):
    """The body of a class of the stub."""
    module = ast.parse(STUB.read_text())
    (found,) = [
        node for node in module.body if isinstance(node, ast.ClassDef) and node.name == name
    ]
    return found.body


def test_the_stub_has_each_constant_and_each_function_with_its_parameters():
    functions = {node.name: node for node in declared("Lib") if isinstance(node, ast.FunctionDef)}
    constants = [node.target.id for node in declared("Lib") if isinstance(node, ast.AnnAssign)]
    assert sorted([*functions, *constants]) == sorted(dir(lib))
    for name, node in functions.items():
        kind = ffi.typeof(getattr(lib, name))
        assert len(node.args.posonlyargs) == 1 + len(kind.args), name
        assert (ast.unparse(node.returns) == "None") == (kind.result.kind == "void"), name


@pytest.mark.parametrize("name", ["dg_caps", "dg_memory", "dg_ring_config", "dg_wc", "dg_wr"])
def test_the_stub_has_each_field_of_a_struct(name):
    fields = {node.target.id: ast.unparse(node.annotation) for node in declared(name)}
    assert list(fields) == [field for field, _ in ffi.typeof(name).fields]
    for field, kind in ffi.typeof(name).fields:
        assert (fields[field] == "int") == (kind.type.kind == "primitive"), field
