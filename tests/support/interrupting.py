# SPDX-License-Identifier: Apache-2.0
"""KeyboardInterrupt at each bytecode of dgkit where a signal may be handled, and what is left."""

import contextlib
import dis
import functools
import gc
import os
import re
import sys
from collections import Counter
from pathlib import Path

PARTS = [
    f"{os.sep}dgkit{os.sep}{part}{os.sep}" for part in ("session", "wire", "dma", "dpu", "memory")
]
PARTS += [f"{os.sep}{name}.py" for name in ("dgkit/files", "threading", "contextlib")]  # and locks
POLLS = ("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE")


OPNAMES = dis.opname


@functools.cache
def table(code):
    return dis._parse_exception_table(code)


def handler(frame, offset):
    """Return the offset of the handler of an exception raised at this bytecode, or None."""
    entries = table(frame.f_code)
    return next((e.target for e in entries if e.start <= offset < e.end), None)


class Interrupting:
    """Raises KeyboardInterrupt at the n-th bytecode where CPython handles signals.

    These are the first of a function, and those after a call or a jump back; a signal that arrives
    elsewhere is handled at the next of them. A bytecode that follows a call but has another handler
    than the call is left out: CPython would raise in the call (so that `with` releases its lock).
    """

    def __init__(self, n):
        self.left = n
        self.before = {}

    def __call__(self, frame, event, _arg):
        name = frame.f_code.co_filename
        if not any(part in name for part in PARTS):
            return None
        frame.f_trace_opcodes = True
        if event == "call":
            self.before[frame.f_back] = "", 0  # to return from Python code handles no signal
            self.before[frame] = "RESUME", 0
        elif event == "return":
            self.before.pop(frame, None)
        elif event == "opcode":
            last, at = self.before.get(frame, ("", 0))
            self.before[frame] = OPNAMES[frame.f_code.co_code[frame.f_lasti]], frame.f_lasti
            if last.startswith(POLLS) and handler(frame, at) == handler(frame, frame.f_lasti):
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
        return self

    def __enter__(self):
        self.previous = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # or Python 3.12 traces opcodes only the next time
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(self.previous)
        self.before.clear()


def agents_hold(session):
    """Return what the agent has charged to the session, and to its user."""
    stats = session.stats()
    mine = {name: stats[f"your_{name}"] for name in ("regions", "monitors", "memory")}
    kinds = ("regions", "descriptors", "memory", "subscriptions")
    return mine | {f"user_{name}": stats[f"user_{name}"] for name in kinds}


def open_files():
    """Count the open descriptors by what they refer to, without numbers in names.

    Left out: what a connection opens at its first look at its memory.
    """
    names = Counter()
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the folder's own
            names[re.sub(r"\d+", "N", str(fd.readlink()))] += 1
    del names["/proc/N/statm"]
    return dict(names)


def held(session):
    """Return what each side holds for the session."""
    gc.collect()
    here = {"regions": len(session.regions), "monitors": len(list(session.monitors))}
    here |= {"files": open_files()}
    here |= {"device": len(session.device._regions), "queues": len(session.device._queues)}
    return here, agents_hold(session)
