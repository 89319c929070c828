# SPDX-License-Identifier: Apache-2.0
"""No expression of the doctor takes more than linear time on long malformed text.

What a command prints may be 4 MiB, and `re` lets no other thread run: neither a deadline nor
Ctrl-C would end it.
"""

import ast
import importlib
import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dgkit.doctor
from dgkit.doctor.redact import patterns

LONG = 3_000
# How much slower than a look at each letter: a row of alternatives is, and a bounded repetition.
# What begins anew at each letter, and goes to the end, is LONG / 2 times as slow.
SLOWER = LONG // 16
Look = tuple[re.Pattern[str], str]
PLAIN = re.compile(r"(?:[^\0])*\0")


# What is looked at in a short text alone.
SHORT = {"_VERSION_BEFORE", "_ADDRESS_BEFORE"}  # 64 letters before an address
ROOT = Path(dgkit.doctor.__file__).parent
HOW = "(search|match|fullmatch|findall|finditer|split|sub)"


def written() -> Iterator[tuple[str, Look]]:
    """Each as it is used: constants by name, and those that are written in the call."""
    program = {path: path.read_text("utf-8") for path in sorted(ROOT.rglob("*.py"))}
    whole = "\n".join(program.values())
    for path, text in program.items():
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for what, value in vars(importlib.import_module(f"dgkit.doctor.{name}")).items():
            values = value.values() if isinstance(value, dict) else [value]
            for number, one in enumerate(values):
                if isinstance(one, re.Pattern) and what not in SHORT:
                    for how in set(re.findall(rf"\b{what}\.{HOW}\(", whole)) or {"search"}:
                        yield f"{what}.{number}.{how}", (one, how)
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and re.fullmatch(rf"re\.{HOW}", ast.unparse(call.func)):
                found = call.args[0]
                if isinstance(found, ast.Constant) and isinstance(found.value, str):
                    flags = re.MULTILINE if "MULTILINE" in ast.unparse(call) else 0
                    how = ast.unparse(call.func).removeprefix("re.")
                    yield f"{name}:{call.lineno}", (re.compile(found.value, flags), how)


def odd_texts(pattern: str, long: int = LONG) -> Iterator[str]:
    """Each word of an expression, and then one thing without end, which is no end of a match."""
    words = ["", *dict.fromkeys(re.findall(r"[A-Za-z]{2,}", pattern))]
    ends = ("\n", " ", "a", "A_", "1.", "0:", "-")
    for word, cut, again in itertools.product(words, ("", ": a"), ends):
        yield word + cut + again * (long // len(again)) + "!"
    for word, cut in itertools.product(words, ("", "-", "=", ": ")):
        again = word + cut
        if again:
            yield again * (long // len(again)) + "!"


def cost(look: Callable[[str], object], text: str) -> float:
    start = time.thread_time()
    look(text)
    return time.thread_time() - start


@pytest.mark.parametrize("look", [pytest.param(look, id=name) for name, look in written()])
def test_it_takes_a_long_text_at_one_go(look: Look) -> None:
    pattern, how = look
    plain = min(cost(PLAIN.match, "a" * LONG) for _ in range(5))
    asked = {"finditer": "findall", "sub": "findall"}.get(how, how)
    for text in odd_texts(pattern.pattern):
        if cost(getattr(pattern, asked), text) > SLOWER * plain:
            again = min(cost(getattr(pattern, asked), text) for _ in range(20))
            assert again <= SLOWER * plain, text[:40]


def test_what_finds_secrets_takes_four_times_as_long_for_four_times_the_text() -> None:
    """It looks for many things at each letter; 16 times as long would be anew at each letter."""
    names = ["rack7-gx"], ["acme.corp"], ["alice"], ["1654922000123"]
    find = patterns.build(*names)
    both = (odd_texts(find.pattern, size) for size in (LONG // 3, 4 * LONG // 3))
    pairs = zip(*both, strict=True)
    for short, long in pairs:
        if cost(find.findall, long) > 10 * cost(find.findall, short):
            one, four = (min(cost(find.findall, t) for _ in range(5)) for t in (short, long))
            assert four <= 10 * one, short[:40]
