"""Error texts as they are written in the source of dgkit and of native."""

import ast
import builtins
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from support.source.c_like import Token, tokens

CLICK = {"BadParameter", "ClickException", "UsageError"}
# Functions of native/ that take the text of an error: dg_fail, refuse, softdoca_log and more.
SETTERS = re.compile(r"(?i)\w*(fail|refus|reject|invalid|wrong|error)\w*|softdoca_log")


def _name(node: ast.expr) -> str:
    """Return the last part of a dotted name, or ""."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def exception_names(trees: list[ast.Module]) -> set[str]:
    """Return the names of builtin exceptions, click's, and those that the modules define."""
    known = {name for name, kind in vars(builtins).items() if isinstance(kind, type)}
    known = {name for name in known if issubclass(getattr(builtins, name), BaseException)} | CLICK
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while found := {
        node.name
        for node in classes
        if node.name not in known and any(_name(base) in known for base in node.bases)
    }:
        known |= found
    return known


def templates(node: ast.expr) -> list[str]:
    """Return the alternatives of a string expression, with its fields in braces."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return ["".join(part for value in node.values for part in templates(value)[:1])]
    if isinstance(node, ast.FormattedValue):
        return [f"{{{ast.unparse(node.value)}}}"]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [a + b for a in templates(node.left) for b in templates(node.right)]
    if isinstance(node, ast.IfExp) and _has_text(node):
        return [text for text in templates(node.body) + templates(node.orelse) if text]
    return [f"{{{ast.unparse(node)}}}"]


def _has_text(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(node))


def _assigned(function: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yield the string expressions that a function assigns to a local variable."""
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AugAssign) else targets
        if any(_name(target) == name for target in targets) and _has_text(node.value):
            yield node.value


def _texts(call: ast.Call, function: ast.AST) -> Iterator[str]:
    """Yield the templates of an exception's message: of its arguments, those that are text."""
    found = [argument for argument in call.args if _has_text(argument)]
    for argument in call.args:
        if isinstance(argument, ast.Name) and not found:
            found = list(_assigned(function, argument.id))
    for argument in found or call.args[-1:]:
        yield from templates(argument)


def _calls(node: ast.AST, function: ast.AST) -> Iterator[tuple[ast.Call, ast.AST]]:
    """Yield each call with the innermost function around it."""
    for child in ast.iter_child_nodes(node):
        inner = child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(child, ast.Call):
            yield child, inner
        yield from _calls(child, inner)


def python_messages(tree: ast.Module, exceptions: set[str]) -> Iterator[str]:
    """Yield `Class: text` of each exception that a module makes."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    others = {c.name for c in classes if not exceptions & {_name(base) for base in c.bases}}
    for call, function in _calls(tree, tree):
        if _name(call.func) in exceptions - others:
            yield from (f"{_name(call.func)}: {text}" for text in _texts(call, function))


def _arguments(found: list[Token], start: int) -> list[list[Token]]:
    """Return the tokens of each argument of the call whose parenthesis is at `start`."""
    depth, arguments = 0, [[]]
    for token in found[start:]:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0:
            break
        if token.text == "," and depth == 1:
            arguments.append([])
        elif not (token.text == "(" and depth == 1):
            arguments[-1].append(token)
    return arguments


def _literals(argument: list[Token]) -> Iterator[str]:
    """Yield each run of adjacent string literals as one string."""
    run = ""
    for token in argument:
        if token.kind == "string" and token.text.startswith('"'):
            run += token.text[1:-1]
        elif token.kind == "name" and token.text.startswith("PRI"):
            run += token.text[3].replace("u", "llu")
        elif run:
            yield run
            run = ""
    if run:
        yield run


def c_messages(text: str) -> Iterator[str]:
    """Yield `CODE: text` of each call of an error-setting function in C source."""
    found = [token for token in tokens(text) if token.kind != "comment"]
    for i, (name, mark) in enumerate(pairwise(found)):
        if name.kind != "name" or mark.text != "(" or not SETTERS.fullmatch(name.text):
            continue
        arguments = _arguments(found, i + 1)
        arguments = arguments[1:] if name.text == "REFUSE_FOR" else arguments
        code = next(
            (t.text for t in arguments[0] if re.fullmatch(r"E[A-Z0-9]+|DG_REASON_\w+", t.text)), ""
        )
        code = code or next((t.text for t in arguments[0] if t.text.startswith("DOCA_")), name.text)
        with_text = next((list(_literals(a)) for a in arguments if list(_literals(a))), [])
        yield from (f"{code}: {literal}" for literal in with_text)


def all_messages(root: Path) -> str:
    """Return the error texts of dgkit/ and native/, sorted by file, each once per file."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((root / "dgkit").rglob("*.py"))
    }
    exceptions = exception_names(list(trees.values()))
    found = {path: list(python_messages(tree, exceptions)) for path, tree in trees.items()}
    sources = [path for path in (root / "native").rglob("*") if path.suffix in (".c", ".h")]
    found |= {path: list(c_messages(path.read_text(encoding="utf-8"))) for path in sorted(sources)}
    blocks = [
        "\n  ".join(
            [path.relative_to(root).as_posix(), *dict.fromkeys(_one_line(m) for m in lines)]
        )
        for path, lines in found.items()
        if lines
    ]
    return "\n\n".join(blocks) + "\n"


def _one_line(message: str) -> str:
    return message.replace("\\n", "\n").replace("\n", "\\n")
