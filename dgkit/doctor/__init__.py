# SPDX-License-Identifier: Apache-2.0
"""Diagnosis of why a GPU and a DPU cannot exchange data, and the commands that fix it.

The module is callable: `dgkit.doctor(...)` is `api.examine(...)`. README.md is the manual.

    api, goals          arguments, goals
    runner, executor    concurrent run of the checks under a deadline
    collect             readers: files, commands and the system, live or from a snapshot
    record, redact      recording of this machine, with pseudonyms
    machine             a reader, and facts computed once
    facts               parsed readings
    registry, checks    the checks; a module per family
    finding, references verdict, evidence, remedy and sources of a finding
    data_paths          verdicts on the data paths of data_path_specs
    symptoms            error texts of symptom_table, explained by the findings; others by names
    experiments         what --try runs; its results overrule inferences
    finding_order       findings: causes before consequences, what only dgkit needs last
    snapshot_comparison comparison of two recordings
    program_needs       what a program needs on a machine that is fine
    diagnosis, format   the result, and its text, HTML and summary

Readings become facts, facts become findings, and findings become verdicts on data paths. The doctor
changes nothing on the machine and does not need root.
"""

from __future__ import annotations

import sys

from .api import CallableModule, record, report
from .collect.snapshot import load
from .diagnosis import Diagnosis, register_formatters
from .finding import Finding, Verdict
from .format import notebook as _notebook
from .goals import Goal
from .runner import diagnose

__all__ = ["Diagnosis", "Finding", "Goal", "Verdict", "diagnose", "load", "record", "report"]

register_formatters(text=_notebook.text, html=_notebook.html)
sys.modules[__name__].__class__ = CallableModule
