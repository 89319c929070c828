# SPDX-License-Identifier: Apache-2.0
"""Let a signal handler raise an exception in a process whose coverage is measured.

At each function that begins, coverage's tracer takes a lock by a method in Python. Python runs the
handlers of signals between any two of its bytecodes, so one that raises there (Ctrl-C does) leaves
the lock held, and the next function that begins waits for it for ever: coverage 7.17,
collector.py's lock_data() and ctracer/tracer.c's CTracer_handle_call(). The lock's own methods are
C functions, within which no handler runs.
"""

import sys


def mend():
    """Replace the tracer's lock methods in this process, if it measures coverage."""
    module = sys.modules.get("coverage.collector")
    if module is None:
        return
    collector = module.Collector
    collector.lock_data = property(lambda self: self.data_lock.acquire)
    collector.unlock_data = property(lambda self: self.data_lock.release)
    for running in collector._collectors:
        for tracer in running.tracers:
            tracer.lock_data, tracer.unlock_data = running.lock_data, running.unlock_data
