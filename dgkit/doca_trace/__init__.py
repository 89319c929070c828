# SPDX-License-Identifier: Apache-2.0
"""Traces of the calls that a program makes of DOCA: recorded, and replayed against softdoca.

recording.py     runs a program with the recorder
functions.py     what is known of each function: the kinds of its parameters
trace_file.py    a trace, read and checked
replay.py        replays the calls of one trace, in a process of its own
trace_values.py  values of a trace, in that process
replay_peers.py  what the replays of several traces tell each other
comparison.py    replays traces, and collects the differences
"""

from __future__ import annotations

from .comparison import Comparison, Difference, compare
from .recording import record
from .trace_file import TraceError

__all__ = ["Comparison", "Difference", "TraceError", "compare", "record"]
