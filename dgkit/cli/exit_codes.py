"""What an exception means to a script (an exit code) and to a person (one line and a way out)."""

from __future__ import annotations

from .. import errors

__all__ = ["EXIT_CODES", "exit_code", "explain"]

OK, FAILED, USAGE, NO_DEVICE, NO_PEER, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 4, 130, 143

EXIT_CODES = """\
0  it worked
1  the job failed, or bytes were not the same on both sides
2  wrong usage
3  the device (provider) cannot be used here
4  the other side is lost, refused, silent, or of another version
5, 6  doctor: it works with warnings; something cannot be told
130, 143  ended by Ctrl-C, by SIGTERM (serve: 0, it was told to end)"""

_WAYS_OUT: tuple[tuple[type[BaseException], int, str], ...] = (
    (errors.DeviceUnavailable, NO_DEVICE, "`dgkit doctor` says what works here and what does not"),
    (errors.Unsupported, NO_DEVICE, "`dgkit info` says what each provider can do"),
    (errors.PeerRefused, NO_PEER, "`dgkit keys list` shows the keys that are known here"),
    (errors.PeerTimeout, NO_PEER, "is `dgkit serve` running there, and is the address right?"),
    (errors.PeerLost, NO_PEER, "start `dgkit serve` there, or connect again"),
    (errors.PeerError, NO_PEER, "install the same dgkit on both sides"),
    (errors.OutOfMemory, FAILED, "use less memory, or free some (`free -h`, `nvidia-smi`)"),
    (errors.LimitReached, FAILED, "raise the limit (`ulimit -n`) or open less at a time"),
    (errors.DgkitError, FAILED, ""),
    (OSError, FAILED, ""),
    (ImportError, FAILED, "dgkit is not installed as a whole: `pip install .` in its folder"),
    (MemoryError, FAILED, "use less memory, or free some (`free -h`, `nvidia-smi`)"),
)


def exit_code(error: BaseException) -> int:
    """The exit code that stands for this exception."""
    return next((code for kind, code, _ in _WAYS_OUT if isinstance(error, kind)), FAILED)


def explain(error: BaseException) -> str:
    """One line: what went wrong, then what to do, if that is known."""
    for kind, _, way_out in _WAYS_OUT:
        if isinstance(error, kind):
            words = _words(error)
            if explained := getattr(error, "way_out", ""):  # the check that can say more
                return f"{words}. Way out: {explained}"
            known = "`" in words or not way_out  # what is written like this is a command to give
            return words if known else f"{words}. Way out: {way_out}"
    return f"{type(error).__name__}: {_words(error)}. Way out: --traceback shows where"


def _words(error: BaseException) -> str:
    """Without the `[Errno 12]` that Python writes before a system error."""
    text = str(getattr(error, "words", error))
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(text.split()).rstrip(".") or type(error).__name__
