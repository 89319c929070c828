# SPDX-License-Identifier: Apache-2.0
"""Text and JSON that a hostile peer, snapshot, notebook or page may send."""

from __future__ import annotations

import math
from typing import Any

MARK = "dgkitOwned"  # what a script of HOSTILE_TEXTS sets in a page

# Each leaves another context: an element, an attribute, a script, a style, Python, a terminal.
HOSTILE_TEXTS = {
    "element": f"<img src=x onerror='window.{MARK}=1'>",
    "attribute": f"\"'><svg onload=window.{MARK}=1>",
    "event": f'x" onmouseover="window.{MARK}=1" \'',
    "script": f"</script><script>window.{MARK}=1</script><!--",
    "style": "</style><style>*{display:none}</style>",
    "url": f"javascript:window.{MARK}=1",
    "tex": f"$$\\href{{javascript:window.{MARK}=1}}{{x}}$$",
    "bokeh": "@{x}{safe} @$name <br>",
    "python": '\'); import os; os.abort()  # """\n',
    "escape": "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b1m",
    "bidi": "\u202egnp.exe\u2066\u200b",
    "separators": "a\x00b\r\n\x0b\x0c\x85\u2028\u2029c",
    "prototype": "__proto__",
    "markup": "[link=https://example.com]x[/link] [red]",
    "long": "x" * 100_000,
}


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


# No view sends these as a field of its own accord; JSON can hold each of them.
HOSTILE_JSON: list[Any] = [
    *(None, True, -1, 2**53, 10**400, 1.5, 1e308, math.nan, -math.inf),
    *("", "x", "\ud800", "9" * 5000, "NaN", "1e999", "0x", "²", *HOSTILE_TEXTS.values()),
    *([], [None], {}, {"__proto__": {"x": 1}}, _nested(900)),
]
