# SPDX-License-Identifier: Apache-2.0
"""Exit code and one-line message of an exception."""

from __future__ import annotations

from .. import errors
from .._version import DISTRIBUTION

OK, FAILED, USAGE, NO_DEVICE, NO_PEER, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143

EXIT_CODES = """\
0         success
1         failure, or bytes that differ between the two sides
2         wrong usage
3         the provider is not usable on this machine
4         the other side is lost, refuses, does not answer, or has another version
5, 6      doctor: works with warnings; unknown whether it works
70        serve: a thread of the agent failed, which the log explains
130, 143  ended by Ctrl-C; by SIGTERM (serve ends with 0 on both)"""

_HINTS: tuple[tuple[type[BaseException], int, str], ...] = (
    (errors.DeviceUnavailable, NO_DEVICE, "`dgkit doctor` finds the reason"),
    (errors.Unsupported, NO_DEVICE, "`dgkit info` lists the providers"),
    (errors.PeerRefused, NO_PEER, "`dgkit keys list` shows the keys of this side"),
    (errors.PeerTimeout, NO_PEER, "check the address, and that `dgkit serve` runs there"),
    (errors.PeerLost, NO_PEER, "check that `dgkit serve` runs there, then connect again"),
    (errors.PeerError, NO_PEER, "install the same dgkit on both sides"),
    (errors.OutOfMemory, FAILED, "use less memory or free some (`free -h`, `nvidia-smi`)"),
    (errors.LimitReached, FAILED, "raise the limit (`ulimit -n`) or keep fewer objects open"),
    (errors.DgkitError, FAILED, ""),
    (OSError, FAILED, ""),
    (ImportError, FAILED, f"reinstall {DISTRIBUTION}: `pip install --force-reinstall`"),
    (MemoryError, FAILED, "use less memory or free some (`free -h`, `nvidia-smi`)"),
)


def exit_code(error: BaseException) -> int:
    """Return the exit code of an exception."""
    return next((code for kind, code, _ in _HINTS if isinstance(error, kind)), FAILED)


def explain(error: BaseException) -> str:
    """Return a one-line message: what went wrong and, if known, what to do about it."""
    for kind, _, hint in _HINTS:
        if isinstance(error, kind):
            message = _message(error)
            if check := getattr(error, "way_out", ""):  # the doctor's check that explains it
                return f"{message}. Hint: {check}"
            has_command = "`" in message  # the message itself already says what to do
            return message if has_command or not hint else f"{message}. Hint: {hint}"
    return f"{type(error).__name__}: {_message(error)}. Hint: --traceback shows where"


def _message(error: BaseException) -> str:
    """Return the message without the `[Errno 12]` that Python adds to a system error."""
    text = str(getattr(error, "words", error))
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(text.split()).rstrip(".") or type(error).__name__
