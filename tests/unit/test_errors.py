# SPDX-License-Identifier: Apache-2.0
"""The exception tree, and which exception each errno of the C core becomes."""

import errno
import os
import re
from pathlib import Path

import pytest

import dgkit
from dgkit import errors
from dgkit.dma import _ffi

HEADER = Path(__file__).parents[2] / "native" / "dgkit.h"

TABLE = {
    "ERANGE": (errors.BoundsError, ValueError),
    "EACCES": (errors.AccessDenied, PermissionError),
    "EAGAIN": (errors.QueueFull, OSError),
    "EALREADY": (errors.QueueInUse, OSError),
    "EBUSY": (errors.RegionBusy, OSError),
    "EOPNOTSUPP": (errors.Unsupported, OSError),
    "ENODEV": (errors.DeviceUnavailable, OSError),
    "ESTALE": (errors.ClosedError, ValueError),
    "EBADMSG": (errors.DescriptorError, ValueError),
    "EPROTONOSUPPORT": (errors.PeerVersion, errors.PeerError),
    "EXDEV": (errors.Unsupported, OSError),
    "ENOKEY": (errors.DescriptorError, ValueError),
    "ENOTCONN": (errors.PeerLost, ConnectionError),
    "ETIMEDOUT": (errors.PeerTimeout, TimeoutError),
    "EPERM": (errors.PeerRefused, PermissionError),
    "EOWNERDEAD": (errors.DeviceUnavailable, OSError),
    "EMEDIUMTYPE": (errors.ExportError, errors.DgkitError),
    "ENOMEM": (errors.OutOfMemory, MemoryError),
    "ENOSPC": (errors.OutOfMemory, MemoryError),
    "EMFILE": (errors.LimitReached, OSError),
    "ENFILE": (errors.LimitReached, OSError),
}
OSERRORS_WITHOUT_ERRNO = (
    errors.AccessDenied,
    errors.PeerLost,
    errors.PeerTimeout,
    errors.PeerRefused,
)


@pytest.fixture
def said(monkeypatch):
    monkeypatch.setattr(_ffi, "last_error", lambda: "what went wrong")


@pytest.mark.parametrize("name", TABLE)
def test_each_errno_becomes_its_own_error_with_the_cores_sentence(name, said):
    kind, builtin = TABLE[name]
    with pytest.raises(kind, match="what went wrong") as info:
        _ffi.check(-getattr(errno, name))
    assert type(info.value) is kind
    assert isinstance(info.value, (builtin, errors.DgkitError))
    assert isinstance(info.value, builtin)
    if isinstance(info.value, OSError) and kind not in OSERRORS_WITHOUT_ERRNO:
        assert info.value.errno == getattr(errno, name)


def test_einval_is_pythons_value_error(said):
    with pytest.raises(ValueError, match="what went wrong") as info:
        _ffi.check(-errno.EINVAL)
    assert type(info.value) is ValueError


def test_an_errno_that_nobody_foresaw_is_a_native_error_with_it(said):
    with pytest.raises(errors.NativeError, match="what went wrong") as info:
        _ffi.raise_for(-errno.EXFULL)
    assert type(info.value) is errors.NativeError
    assert info.value.errno == errno.EXFULL


def test_a_signal_is_pythons_interrupted_error(said):
    with pytest.raises(InterruptedError, match="what went wrong"):
        _ffi.check(-errno.EINTR)


def test_results_that_are_no_errors_pass():
    assert _ffi.check(0) == 0
    assert _ffi.check(7) == 7


@pytest.mark.skipif(not HEADER.exists(), reason="the header is in the source tree only")
def test_the_table_is_the_headers():
    text = HEADER.read_text().split("errno values of control calls:", 1)[1].split("*/", 1)[0]
    pythons = {"EINVAL", "EINTR"}  # Python's own exceptions, tested above
    assert set(re.findall(r"\bE[A-Z]{3,}\b", text)) == set(TABLE) | pythons


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_a_dgkit_error_and_is_exported_at_the_top(name):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.DgkitError)
    assert kind.__doc__
    assert getattr(dgkit, name) is kind


def test_errors_of_the_system_show_the_systems_text():
    assert os.strerror(errno.EMFILE) in str(errors.LimitReached(errno.EMFILE, os.strerror(24)))


@pytest.mark.parametrize(
    ("seconds", "ns"),
    [(0, 0), (1, 10**9), (0.5, 5 * 10**8), (1e-9, 1), (None, _ffi.FOREVER),
     (float("inf"), _ffi.FOREVER), (1e11, _ffi.FOREVER), (True, 10**9)],
)  # fmt: skip
def test_seconds_become_whole_nanoseconds(seconds, ns):
    assert _ffi.nanoseconds(seconds) == ns


@pytest.mark.parametrize("seconds", [-1, -1e-9, float("nan"), float("-inf")])
def test_negative_or_undefined_seconds_are_a_value_error_that_names_them(seconds):
    with pytest.raises(ValueError, match=r"op_timeout is .* s; it must be 0 or more"):
        _ffi.nanoseconds(seconds, "op_timeout")


def test_seconds_that_are_no_number_are_a_type_error():
    with pytest.raises(TypeError):
        _ffi.nanoseconds("1")


@pytest.mark.parametrize("error", [
    dgkit.PeerLost("the agent is gone"),
    dgkit.errors.RegionBusy(errno.EBUSY, "in flight"),
    dgkit.errors.DeviceUnavailable(errno.ENODEV, "no GPU", check="cuda"),
    dgkit.TransferError("read failed", "a completion"),
    dgkit.ExportError("memory cannot be exported", check="dmabuf"),
    OSError(errno.EIO, "failed", "a file"),
], ids=lambda error: type(error).__name__)  # fmt: skip
def test_an_error_that_is_raised_again_is_equal_and_keeps_nothing_of_its_caller(error):
    error.__cause__ = ValueError("why")
    with pytest.raises(type(error)) as raised:
        raise errors.copy_of(error)
    assert raised.value is not error
    assert (str(raised.value), raised.value.args) == (str(error), error.args)
    assert vars(raised.value) == vars(error)
    assert raised.value.__cause__ is error.__cause__
    assert error.__traceback__ is None
