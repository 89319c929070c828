# SPDX-License-Identifier: Apache-2.0
"""Damaged key files from hypothesis: only typed errors, and a change never loses a key."""

from __future__ import annotations

import contextlib
import os
from unittest.mock import patch

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from dgkit.errors import DgkitError
from dgkit.wire import keys

KEY = "ab" * 32
pieces = st.one_of(
    st.sampled_from(
        [KEY, KEY.upper(), "cd" * 32, "ef" * 31, "\n", "\r\n", " ", "\0", "# ", "\u2028"]
    ),
    st.text(max_size=12),
)
texts = st.one_of(
    st.binary(max_size=200),
    st.lists(pieces, max_size=12).map(lambda parts: "".join(parts).encode("utf-8", "replace")),
)


def batch(number: int, examples: int) -> None:
    """Write damaged files, then read and change them."""

    @seed(number)
    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(listed=texts, secret=st.one_of(st.none(), texts), public=st.one_of(st.none(), texts))
    def damage(listed: bytes, secret: bytes | None, public: bytes | None) -> None:
        where = keys.folder()
        for path in where.iterdir():
            path.unlink()
        for name, data in (("allowed", listed), ("x.secret", secret), ("x.public", public)):
            if data is not None:
                (where / name).touch(0o600)
                (where / name).write_bytes(data)
        for read in (lambda: keys.load("x"), keys.listing, lambda: keys.make("y")):
            with contextlib.suppress(DgkitError, ValueError):
                read()
        with contextlib.suppress(DgkitError, ValueError, FileExistsError):
            keys.make("x")
        try:
            before = keys.allowed()
        except ValueError:  # not UTF-8
            return
        keys.allow("12" * 32, "new")
        assert keys.allowed() == before | {"12" * 32: "new"}
        keys.remove("12" * 32)
        assert keys.allowed() == before

    with patch.object(os, "fsync"):  # it takes most of the time
        damage()
