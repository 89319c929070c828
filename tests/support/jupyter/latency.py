# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests of LatencyPlot: measured samples, and blocks without a DPU."""

import numpy as np
from support.processes.waiting import until

from dgkit.report import Machine
from dgkit.schema import Sampled
from dgkit.widgets.latency.run import RunConfig

MACHINE = Machine(cpu="a cpu", cpus=4, arch="x86_64", kernel="6.1", page_size=4096, virtual=False)
GPU = Machine("a cpu", 4, "x86_64", "6.1", 4096, False, engine="GPU 0")
SECOND = 10**9


def config(**changes):
    known = {
        "size": 64, "op": "write", "path": "inline", "provider": "soft", "machine": MACHINE,
        "where": "here", "spinning": True, "count": 50, "every_s": 0.05,
    }  # fmt: skip
    return RunConfig(**known | changes)


def block(number, ns=100, count=50, t_s=None, **about):
    samples = np.full(count, ns, np.uint64).tobytes()
    at = number / 20 if t_s is None else t_s
    known = {"provider": "soft", "op": "write", "size": 64, "path": "inline"} | about
    t_ns = int((1 + at) * SECOND)
    return Sampled(number=number, t_ns=t_ns, source="monitor", samples=samples, **known)


def taken(plot):
    return plot._view_model.run.history.samples if plot._view_model.run else 0


def measured(plot, samples=200):
    until(lambda: taken(plot) >= samples, f"{samples} samples", timeout=20)
    return plot
