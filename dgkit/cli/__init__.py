# SPDX-License-Identifier: Apache-2.0
"""The `dgkit` command.

app.py           entry point: command group, signals and exit codes
exit_codes.py    exit code and one-line message of an exception
console.py       stdout, stderr and progress bars
options.py       parsers and options that several commands share
*_command.py     one command each, imported when it is called
demo_run.py      steps of demo, its source file, and the bytes of its regions
sweep_command.py, tables.py
                measurements of demo and bench, and their tables
"""

from .app import main

__all__ = ["main"]
