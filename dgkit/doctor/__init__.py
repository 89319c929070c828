"""Why GPU and DPU do not talk, and what to do. `dgkit.doctor()` reads this machine and judges it.

The data flows one way: one of the `readers` looks at files, commands and the system, or at a
snapshot of them; `facts` parse what it gave; `checks` judge the facts; `diagnosis` runs the checks
and puts together what they found, `ways` which ways of moving bytes that leaves; `faces`, the
command line and a panel show it. Nothing is ever changed, and no rights are needed.

The module itself is a function: `dgkit.doctor(...)` is `asking.ask(...)`.
"""

from __future__ import annotations

import sys

from .api import Callable, record
from .collect.snapshot import load
from .diagnosis import Diagnosis, diagnose
from .finding import Finding, Verdict
from .goals import Goal

__all__ = ["Diagnosis", "Finding", "Goal", "Verdict", "diagnose", "load", "record"]

sys.modules[__name__].__class__ = Callable
