"""Each DeviceUnavailable and ExportError names the check that explains it, or that none does."""

import ast
import errno
import pickle
import re
from pathlib import Path

import pytest

import dgkit
from dgkit import errors
from dgkit.cli import exit_codes
from dgkit.dma import _ffi
from dgkit.doctor.registry import checks
from dgkit.memory import cuda_errors
from dgkit.widgets.base.error_hints import hint_for
from dgkit.wire import messages
from dgkit.wire.error_codec import to_exception, to_wire

PACKAGE = Path(dgkit.__file__).parent
NATIVE = Path(__file__).parents[2] / "native" / "src"
KINDS = {"DeviceUnavailable": errors.DeviceUnavailable, "ExportError": errors.ExportError}
EXPLAINED = sorted(KINDS.values(), key=str)
# Where the check is worked out: the tests below hold what comes of it.
TABLES = {"memory/cuda_errors.py", "memory/dmabuf.py", "dma/_ffi.py", "wire/error_codec.py"}

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


def strings(path):
    """The string constants of a file of C, those that stand in a row put together."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r'"\s*INSTALL', '"', text)
    return re.sub(r'"\s+"', "", text)


def refused(number):
    """Each sentence with which the core refuses by this errno, in whatever file."""
    pattern = rf'fail\(\s*{number},\s*(?:[a-z_]+,\s*)?"((?:[^"\\]|\\.)*)"'
    for path in sorted(NATIVE.rglob("*.c")):
        for match in re.finditer(pattern, strings(path)):
            yield f"{path.name}: {match[1]}"


@pytest.mark.skipif(not NATIVE.exists(), reason="the core's source lies in the source tree")
@pytest.mark.parametrize("number", ["ENODEV", "EOWNERDEAD", "EMEDIUMTYPE"])
def test_each_sentence_of_the_core_is_in_the_table(number):
    found = [words for words in refused(number) if not words.endswith(": %s")]
    assert found
    for words in found:
        assert _ffi.check_of(words) is not None, words


def test_the_table_of_the_core_names_checks_that_there_are():
    assert {check for _, check in _ffi._EXPLAINED} <= KNOWN | {""}


@pytest.mark.parametrize(
    ("words", "check"),
    [
        ("this device was opened before fork(): open one in the child", ""),
        ("no GPU can be used: the NVIDIA driver's library was not found (x)", "driver-loaded"),
        ("no GPU can be used: CUDA_ERROR_NO_DEVICE (100): there is no GPU", "cuda-driver"),
        ("there is no GPU 7: this process sees 2, counted from 0", "gpu-present"),
        ("no GPU can be used: CUDA_ERROR_UNKNOWN (999): check nvidia-smi", "cuda-driver"),
        ("DOCA's libraries were not found (tried x)", "doca-libraries"),
        ("there is no DOCA device: check that there is a BlueField", "bluefield-present"),
        ("a sentence that nobody foresaw", ""),
    ],
)
def test_an_error_of_the_core_names_the_check_by_its_sentence(words, check, monkeypatch):
    monkeypatch.setattr(_ffi, "last_error", lambda: words)
    error = _ffi.error_of(-errno.ENODEV)
    assert error.check == check
    assert str(error).endswith(f"`dgkit doctor {check}` explains it" if check else words)


@pytest.mark.parametrize(
    ("first", "check"),
    [
        ("the driver of the adapter, or this kernel, takes none", "rdma-dmabuf"),
        ("the installed rdma-core is older than 34, the first with it", "rdma-core"),
        ("the NVIDIA driver does not export this memory (CUDA_ERROR_X)", "dmabuf-gpu"),
        ("this process sees no GPU with the UUID of this memory", "dmabuf-gpu"),
    ],
)
def test_gpu_memory_that_an_adapter_refuses_names_the_check_of_the_first_way(
    first, check, monkeypatch
):
    second = "by its address, with nvidia-peermem: the module is not loaded"
    words = f"mlx5_0 cannot be given this GPU memory: as a dma-buf: {first}; {second}"
    monkeypatch.setattr(_ffi, "last_error", lambda: words)
    error = _ffi.error_of(-errno.EMEDIUMTYPE)
    assert isinstance(error, errors.ExportError)
    assert error.check == check
    assert error.words == words


def test_each_result_of_cuda_that_makes_a_gpu_unusable_names_a_check():
    for code in cuda_errors._UNAVAILABLE:
        check = cuda_errors.error_of("cuInit", code, "CUDA_ERROR").check
        assert check in KNOWN if code not in cuda_errors._OWN else check == "", code


def test_a_lost_context_is_explained_by_no_check():
    assert {cuda_errors.check_of(code) for code in cuda_errors._LOSSES} == {""}


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
