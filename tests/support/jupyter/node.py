# SPDX-License-Identifier: Apache-2.0
"""Node, which Playwright brings along: it runs the panels' modules without a browser."""

import json
import subprocess

from playwright._impl._driver import compute_driver_executable

from dgkit.widgets.base import esm

__all__ = ["NODE", "WIDGETS", "run_module", "run_node"]

NODE = str(compute_driver_executable()[0])
WIDGETS = esm.Path(esm.__file__).parent.parent


def run_node(*command, program=""):
    """Run Node, which must succeed, with a program at its standard input; return its output."""
    done = subprocess.run(
        [NODE, *command], input=program, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_module(module, names, program, given=None, *, before=""):
    """Run a program that imports names from an installed module of a panel.

    Args:
        module: The module, such as `base/units.js`.
        names: The names, separated by commas.
        program: The program; `print(value)` prints JSON.
        given: What the program finds in `given`.
        before: A program that runs before the module is loaded.

    Returns:
        The output.
    """
    head = (
        f"{before}\nconst {{{names}}} = await import({(WIDGETS / module).as_uri()!r});\n"
        f"const given = {json.dumps(given)};\n"
        "const print = (value) => console.log(JSON.stringify(value));\n"
    )
    return run_node("--input-type=module", "-", program=head + program)
