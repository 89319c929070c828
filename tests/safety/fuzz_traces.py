# SPDX-License-Identifier: Apache-2.0
"""Damage a trace of DOCA's calls at random, and compare each: no crash, only typed errors.

.cache/venv/bin/python tests/safety/fuzz_traces.py TRACE --rounds 1000 --seed 1
"""

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from dgkit.doca_trace import TraceError, compare
from dgkit.errors import DgkitError

NUMBERS = [-1, 0, 1, 2, 7, 64, 4096, 1 << 20, 1 << 31, 1 << 32, (1 << 63) - 1, (1 << 64) - 1]


def values(lines):
    """Return every value of an argument or a result in the lines."""
    return [v for line in lines for v in (*line.get("args", []), *line.get("out", []))]


def damaged(lines, choose):
    """Change one to three places of the lines."""
    known = values(lines)
    lines = json.loads(json.dumps(lines))
    for _ in range(choose.randint(1, 3)):
        line = choose.choice(lines[1:])
        key = choose.choice(list(line))
        what = choose.randrange(20)
        if what == 0:
            lines.insert(choose.randrange(1, len(lines)), line)
        elif what == 1:
            line[key] = choose.choice([None, "", [], {}, "doca_dma_create", *NUMBERS])
        elif what < 5:
            lines.remove(line)
        elif "memory" in line:
            line["size"] = choose.choice(NUMBERS)
        elif line.get("args"):
            at = choose.randrange(len(line["args"]))
            line["args"][at] = forged(line["args"][at], known, choose)
    return lines


def forged(value, known, choose):
    """Return another value, mostly of the same kind."""
    if not choose.randrange(20):
        return choose.choice([None, True, *NUMBERS, *known])
    if isinstance(value, int) and value is not True:
        return choose.choice(NUMBERS)
    if isinstance(value, str):
        kind = value.partition(":")[0]
        same = [other for other in known if isinstance(other, str) and other.startswith(kind + ":")]
        if kind == "mem":
            same += [f"mem:1+{abs(number)}" for number in NUMBERS] + ["addr:1", "mem:2+0"]
        return choose.choice([*same, None])
    return choose.choice([None, True])


def main():
    """Print how the comparisons ended; exit with 1 after a crash or an error that is not typed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.trace.read_text().splitlines()]
    ends = Counter()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        for seed in range(options.seed, options.seed + options.rounds):
            changed = damaged(lines, random.Random(seed))
            path.write_text("".join(json.dumps(line) + "\n" for line in changed))
            try:
                found = compare([path]).differences
            except TraceError:
                ends["refused"] += 1
                continue
            except DgkitError as error:
                print(f"seed {seed}: {error}")
                ends["failed"] += 1
                continue
            crashes = [each for each in found if "signal" in each.replayed]
            if crashes:
                print(f"seed {seed}: {crashes}")
            ends["crashed" if crashes else "differs" if found else "same"] += 1
    print(dict(ends))
    return bool(ends["crashed"] or ends["failed"])


if __name__ == "__main__":
    sys.exit(main())
