# SPDX-License-Identifier: Apache-2.0
"""Each DeviceUnavailable and ExportError names the check that explains it, or that none does."""

import ast
import errno
import pickle
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import dgkit
from dgkit import errors
from dgkit.cli import exit_codes
from dgkit.dma import _ffi
from dgkit.doctor.registry import checks
from dgkit.memory import libcuda
from dgkit.widgets.base.error_text import hint_for
from dgkit.wire import messages
from dgkit.wire.error_codec import to_exception, to_wire

PACKAGE = Path(dgkit.__file__).parent
HEADER = Path(__file__).parents[2] / "native" / "dgkit.h"
MAX_ERRNO = 4095  # of Linux
KINDS = {"DeviceUnavailable": errors.DeviceUnavailable, "ExportError": errors.ExportError}
EXPLAINED = sorted(KINDS.values(), key=str)
# Where the check is worked out: the tests below hold what comes of it.
TABLES = {"memory/libcuda.py", "memory/dmabuf.py", "dma/_ffi.py", "wire/error_codec.py"}

KNOWN = {one.name for one in checks()}


def calls():
    """Each call that makes one of the two: the file, the line and what it gives as `check`."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in KINDS:
                given = [word.value for word in node.keywords if word.arg == "check"]
                yield path.relative_to(PACKAGE).as_posix(), node.lineno, given


def test_each_place_that_makes_one_names_a_check_that_there_is_or_says_that_none_explains_it():
    made = list(calls())
    assert len(made) > 12
    for file, line, given in made:
        assert given, f"{file}:{line} names no check"
        if isinstance(given[0], ast.Constant):
            assert given[0].value in KNOWN | {""}, f"{file}:{line}"
        else:
            assert file in TABLES, f"{file}:{line} works its check out and no test holds it"


@pytest.mark.skipif(not HEADER.exists(), reason="the header is in the source tree only")
def test_each_reason_of_the_core_has_a_text_and_an_error_and_no_other_has_one():
    (body,) = re.findall(r"enum dg_reason \{(.*?)\};", HEADER.read_text(), re.DOTALL)
    texts = re.findall(r"/\* (E[A-Z]+): .*?\. \*/\s+(DG_REASON_\w+)", body, re.DOTALL)
    names = [name for _, name in texts]
    assert names == re.findall(r"\b(DG_REASON_\w+)[ ,\n]", body)
    by_number = {getattr(_ffi.lib, name): number for number, name in texts}
    assert set(by_number) == {reason for reason in _ffi._ERRORS if reason > MAX_ERRNO}
    for reason, number in by_number.items():
        kind = _ffi._ERRORS[reason][0]
        assert kind in (errors.LimitReached, _ffi._ERRORS[getattr(errno, number)][0])


def test_only_the_two_kinds_have_checks_and_these_are_there():
    for reason, (kind, check) in _ffi._ERRORS.items():
        assert not check or kind in EXPLAINED, reason
        assert check in KNOWN | {""}, reason
        # an errno says the same; the error of a limit names the limit
        assert check or reason <= MAX_ERRNO or kind is errors.LimitReached, reason


@pytest.mark.parametrize("name", [name for name in dir(_ffi.lib) if name.startswith("DG_REASON_")])
def test_an_error_of_the_core_names_the_check_of_its_reason(name, monkeypatch):
    reason = getattr(_ffi.lib, name)
    kind, check = _ffi._ERRORS[reason]
    monkeypatch.setattr(_ffi, "last_error", lambda: "any sentence at all")
    monkeypatch.setattr(_ffi, "lib", SimpleNamespace(dg_last_reason=lambda rc: reason))
    error = _ffi.error_of(-errno.ENODEV)
    assert (type(error), getattr(error, "check", "")) == (kind, check)
    explained = f". `dgkit doctor {check}` explains it" if check else ""
    assert str(error).endswith(f"any sentence at all{explained}")


def test_an_error_of_the_core_carries_its_reason():
    with pytest.raises(errors.DeviceUnavailable, match="'nonesuch'") as info:
        dgkit.Device("nonesuch")
    assert info.value.check == "dgkit-providers"


def test_a_reason_is_of_the_errno_that_was_returned():
    lib = _ffi.lib
    assert lib.dg_provider_probe(b"nonesuch", 0) == -errno.ENODEV
    assert lib.dg_last_reason(-errno.ENODEV) == lib.DG_REASON_UNKNOWN_PROVIDER
    assert lib.dg_last_reason(-errno.EINVAL) == errno.EINVAL


def test_each_result_of_cuda_that_makes_a_gpu_unusable_names_a_check():
    for code in libcuda._UNAVAILABLE:
        check = libcuda.error_of("cuInit", code, "CUDA_ERROR").check
        assert check in KNOWN if code not in libcuda._OWN else check == "", code


def test_a_lost_context_is_explained_by_no_check():
    assert {libcuda.check_of(code) for code in libcuda._LOSSES} == {""}


def test_each_check_that_a_refused_dma_buf_names_is_there():
    source = (PACKAGE / "memory/dmabuf.py").read_text(encoding="utf-8")
    (cause,) = [
        node for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "_cause"
    ]  # fmt: skip
    named = [
        node.value.elts[1].value for node in ast.walk(cause)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple)
    ]  # fmt: skip
    assert len(named) == len([node for node in ast.walk(cause) if isinstance(node, ast.Return)])
    assert set(named) <= KNOWN | {""}
    assert "driver-flavour" in named


def made(kind, check="bar1-size"):
    words = (errno.ENODEV, "what is wrong.") if issubclass(kind, OSError) else ("what is wrong.",)
    return kind(*words, check=check)


@pytest.mark.parametrize("kind", EXPLAINED)
def test_the_message_ends_with_the_way_out_once(kind):
    assert str(made(kind)).endswith("what is wrong. `dgkit doctor bar1-size` explains it")
    assert made(kind).words == "what is wrong."
    assert str(made(kind, "")).endswith("what is wrong.")


@pytest.mark.parametrize("kind", EXPLAINED)
@pytest.mark.parametrize("check", ["", "bar1-size"])
def test_the_check_and_the_words_survive_the_wire_and_pickling(kind, check):
    error = made(kind, check)
    sent = messages.decode_reply(messages.encode(to_wire(error, 3)))
    for other in (to_exception(sent), pickle.loads(pickle.dumps(error))):
        assert type(other) is kind
        assert (other.check, other.words, str(other)) == (check, error.words, str(error))
        assert getattr(other, "errno", None) == getattr(error, "errno", None)


def test_an_answer_of_a_side_that_knows_no_checks_has_none():
    import msgspec

    old = msgspec.msgpack.encode([127, 1, "ExportError", "no", 0, None])
    assert to_exception(messages.decode_reply(old)).check == ""


@pytest.mark.parametrize("kind", EXPLAINED)
def test_the_command_line_and_the_panels_show_the_check_as_the_way_out(kind):
    assert hint_for(made(kind)) == "`dgkit doctor bar1-size` explains it."
    text = exit_codes.explain(made(kind))
    assert text == "what is wrong. Hint: `dgkit doctor bar1-size` explains it"


def test_a_device_that_no_check_explains_still_has_a_way_out():
    error = made(errors.DeviceUnavailable, "")
    assert "`dgkit doctor`" in exit_codes.explain(error)
    assert "`dgkit doctor`" in hint_for(error)
