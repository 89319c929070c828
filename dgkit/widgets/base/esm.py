# SPDX-License-Identifier: Apache-2.0
"""Link a panel's ES modules to the one module that anywidget takes, and its style sheets to one.

The modules on disk are real ones: an editor, a linter and Node see their imports. They keep to
forms that can be linked by lines, and `link` refuses all others:

- an import is `import { a, b } from "./path.js";`, above the code, without a cycle;
- an export stands before a `const`, a `function` or a `class` at the start of a line;
- a panel's own module has `export default`; if others import it, as its last line, with a name.

Each imported module becomes a function's body, so that what it does not export stays its own, as in
a page that loads the files; the panel's own module follows unchanged. A style sheet belongs to the
module beside it that has the same name. Its selectors match within the panel only, so that the
order in which a page gets the sheets of several panels does not matter.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|class|(?:async )?function\*?) (\w+))", re.MULTILINE)
_DEFAULT = re.compile(r"^export default [a-z]\w*;\n\Z", re.MULTILINE)
_OTHER_IMPORT = re.compile(r"^import\b[^\n]*", re.MULTILINE)
_PANEL = re.compile(r"(?<!has\()\.dgkit(?![\w-])")  # of any name; within :has(), it costs time
_OTHER = re.compile(r"^(?:import|export)\b[^\n]*", re.MULTILINE)


@cache
def link(entry: Path) -> tuple[str, str]:
    """Return the module and the style sheet of a panel.

    Args:
        entry: The panel's own module.

    Returns:
        The source text of both, of all modules that `entry` imports, in the order of their imports.

    Raises:
        ValueError: A module imports itself or what another one does not export, or has an import or
            an export in another form.
    """
    order: list[Path] = []
    _visit(entry.resolve(), order, ())
    modules = [_wrapped(path) for path in order[:-1]]
    sheets = [path.with_suffix(".css") for path in order]
    style = "".join(sheet.read_text(encoding="utf-8") for sheet in sheets if sheet.exists())
    panel = f".dgkit-{entry.stem}"
    style = _PANEL.sub(f".dgkit:where({panel}, {panel} *)", style)
    own = _checked(order[-1], _bound(order[-1]), _OTHER_IMPORT)
    return "".join([*modules, own]), style


def _visit(path: Path, order: list[Path], importers: tuple[Path, ...]) -> None:
    """Append a module to the order, behind those that it imports."""
    if path in importers:
        raise ValueError(f"{path} imports itself, by {', '.join(each.name for each in importers)}")
    if path in order:
        return
    for target in _imported(path):
        _visit(target, order, (*importers, path))
    order.append(path)


@cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def _imported(path: Path) -> list[Path]:
    return [(path.parent / target).resolve() for _, target in _IMPORT.findall(_text(path))]


@cache
def _exported(path: Path) -> list[str]:
    return _EXPORT.findall(_text(path))


def _name(path: Path) -> str:
    return f"{path.parent.name}_{path.stem}"


def _bound(path: Path) -> str:
    """Return a module whose imports are constants, taken from the functions' results."""
    targets = iter(_imported(path))

    def constants(found: re.Match[str]) -> str:
        target = next(targets)
        names = [each.strip() for each in found[1].split(",") if each.strip()]
        exported = _exported(target)
        if missing := {each.split(" as ")[0] for each in names}.difference(exported):
            raise ValueError(f"{path.name}: {target.name} does not export {missing.pop()}")
        return f"const {{ {', '.join(names).replace(' as ', ': ')} }} = {_name(target)};\n"

    return _IMPORT.sub(constants, _text(path))


@cache
def _wrapped(path: Path) -> str:
    """Return a module as the result of a function: an object of its exports."""
    text = _DEFAULT.sub("", _bound(path))
    exports = _EXPORT.findall(text)
    body = _checked(path, _EXPORT.sub("", text), _OTHER)
    return f"const {_name(path)} = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();\n"


def _checked(path: Path, text: str, forbidden: re.Pattern[str]) -> str:
    if found := forbidden.search(text):
        raise ValueError(f"{path.name}: {found[0]!r} cannot be linked")
    return text
