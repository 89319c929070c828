# SPDX-License-Identifier: Apache-2.0
"""Linking a panel's modules: the one module that anywidget takes behaves as the files do."""

import json

import pytest
from support.jupyter.node import WIDGETS, run_node

from dgkit.widgets.base.esm import link

PANELS = sorted(
    path.parent.name for path in WIDGETS.glob("*/*.js") if path.stem == path.parent.name
)
_REAL = """
globalThis.window = globalThis;
const load = (source) => import(`data:text/javascript,${encodeURIComponent(source)}`);
const names = (module) => Object.keys(module).sort();
"""


def written(folder, **modules):
    for name, text in modules.items():
        (folder / f"{name}.js").write_text(text)
    return folder / "main.js"


def test_there_are_panels():
    assert {"hexview", "latency", "transfer", "allocate", "doctor", "dashboard"} <= {*PANELS}


@pytest.mark.parametrize("name", PANELS)
def test_a_panel_s_linked_module_exports_what_its_file_does(name):
    entry = WIDGETS / name / f"{name}.js"
    module, _ = link(entry)
    assert "import " not in module.split("export default")[0].replace("important", "")
    program = f"""{_REAL}
      const real = await import({entry.as_uri()!r}), linked = await load({json.dumps(module)});
      console.log(JSON.stringify([names(real), names(linked), typeof linked.default.render]));
    """
    real, linked, render = json.loads(run_node("--input-type=module", "-", program=program))
    assert real == linked
    assert render == "function"


def test_modules_run_once_in_the_order_of_their_imports_and_keep_their_own_names(tmp_path):
    entry = written(
        tmp_path,
        log='export const log = [];\nlog.push("log");\n',
        left='import { log } from "./log.js";\n\nconst own = "left";\nlog.push(own);\n'
        "export class Left {\n  name = own;\n}\n",
        right='import { log } from "./log.js";\n\nconst own = "right";\nlog.push(own);\n'
        "export async function right() {\n  return own;\n}\n"
        "export function* count() {\n  yield 1;\n}\n",
        main='import { Left } from "./left.js";\nimport { log } from "./log.js";\n'
        'import { count, right as other } from "./right.js";\n\nconst own = "main";\n'
        "export default async () => [...log, own, new Left().name, await other(), ...count()];\n",
    )
    module, _ = link(entry)
    program = f"""{_REAL}
      const real = await import({entry.as_uri()!r}), linked = await load({json.dumps(module)});
      console.log(JSON.stringify([await real.default(), await linked.default()]));
    """
    real, linked = json.loads(run_node("--input-type=module", "-", program=program))
    assert real == linked == ["log", "left", "right", "main", "left", "right", 1]


def test_a_style_sheet_comes_with_the_module_of_its_name_once_and_in_order(tmp_path):
    entry = written(
        tmp_path,
        below="export const a = 1;\n",
        middle='import { a } from "./below.js";\n\nexport const b = a;\n',
        main='import { a } from "./below.js";\nimport { b } from "./middle.js";\n\n'
        "export default { a, b };\n",
    )
    for name in ("below", "main", "other"):
        (tmp_path / f"{name}.css").write_text(f".dgkit .{name}, .dgkit-{name} {{}}\n")
    panel = ".dgkit:where(.dgkit-main, .dgkit-main *)"
    below, main = f"{panel} .below, .dgkit-below", f"{panel} .main, .dgkit-main"
    assert link(entry)[1] == f"{below} {{}}\n{main} {{}}\n"


@pytest.mark.parametrize(
    "other",
    [
        'import all from "./x.js";\n', 'import * as all from "./x.js";\n', 'import "./x.js";\n',
        "export let count = 0;\n", "export { count };\n", 'export * from "./x.js";\n',
        "export var count = 0;\n", "export default 1;\n", 'import {a} from "https://x/y.js";\n',
    ],
)  # fmt: skip
def test_what_cannot_be_linked_is_refused(tmp_path, other):
    entry = written(
        tmp_path, part=other, main='import { a } from "./part.js";\n\nexport default a;\n'
    )
    with pytest.raises(ValueError, match=r"part\.js.* cannot be linked"):
        link(entry)


def test_a_panel_s_own_module_is_held_to_the_same_forms(tmp_path):
    with pytest.raises(ValueError, match=r"main\.js.* cannot be linked"):
        link(written(tmp_path, main='import "./part.js";\nexport default 1;\n'))


def test_a_cycle_is_refused(tmp_path):
    entry = written(
        tmp_path,
        part='import { a } from "./main.js";\n\nexport const b = a;\n',
        main='import { b } from "./part.js";\n\nexport const a = b;\n',
    )
    with pytest.raises(ValueError, match=r"main\.js imports itself"):
        link(entry)


def test_a_name_that_is_not_exported_is_refused(tmp_path):
    entry = written(
        tmp_path,
        part="export const a = 1,\n  b = 2;\n",
        main='import { b } from "./part.js";\n\nexport default b;\n',
    )
    with pytest.raises(ValueError, match=r"main\.js: part\.js does not export b"):
        link(entry)
