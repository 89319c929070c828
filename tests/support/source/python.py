# SPDX-License-Identifier: Apache-2.0
"""Statements of Python sources, without the expressions in them, which are most of the nodes."""

import ast
from collections.abc import Iterator


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements below a node, those of functions and classes included."""
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, block, ()):
            if isinstance(child, ast.stmt):
                yield child
            yield from statements(child)
