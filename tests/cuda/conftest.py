"""Require the fake CUDA driver (tests/support/fake_cuda) for every test of this folder."""

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from support.dma import keep

import dgkit

HOW = """the tests in tests/cuda need the fake CUDA driver, but found {found}:
    python tests/support/fake_cuda/build.py .cache/fake_cuda
    LD_LIBRARY_PATH=.cache/fake_cuda PYTHONPATH=tests/support/fake_cuda pytest tests/cuda
(tests/run cuda does all of it)"""


class FakeCuda:
    """Fake driver of this process: its knobs and the calls that it received."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.dgkitFakeCudaCalls.restype = ctypes.c_ulong

    def order(self, knobs: str) -> None:
        """Set the knobs (gate.c) and reset the counts of calls."""
        self._library.dgkitFakeCuda(knobs.encode())

    def calls(self, name: str) -> int:
        """Return how often a driver function was called since."""
        return int(self._library.dgkitFakeCudaCalls(name.encode()))


def _fake_cuda() -> FakeCuda:
    """Return the fake driver; UsageError says what was found instead and how to run the tests."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise pytest.UsageError(HOW.format(found=f"none ({error})")) from None
    if not hasattr(library, "dgkitFakeCuda"):
        raise pytest.UsageError(HOW.format(found="a real driver"))
    try:
        import cupy
    except ImportError:
        raise pytest.UsageError(HOW.format(found="one, but no CuPy beside it")) from None
    if "test double" not in (cupy.__doc__ or ""):
        raise pytest.UsageError(HOW.format(found=f"one, but the real CuPy ({cupy.__file__})"))
    return FakeCuda(library)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[KEY] = _fake_cuda()


KEY = pytest.StashKey[FakeCuda]()


@pytest.fixture
def fake_cuda(pytestconfig: pytest.Config) -> Iterator[FakeCuda]:
    """Fake driver without knobs, also after the test."""
    it = pytestconfig.stash[KEY]
    it.order("")
    yield it
    it.order("")


@pytest.fixture
def device(fake_cuda: FakeCuda) -> Iterator[dgkit.Device]:
    """Device of the first GPU, which holds what it creates until it is closed."""
    with dgkit.Device("cuda") as opened:
        yield keep(opened)


@pytest.fixture
def gpu(fake_cuda: FakeCuda) -> Iterator[Any]:
    """1 MiB of zeros on the first GPU."""
    with dgkit.empty(1 << 20, on="gpu") as memory:
        memory.array.fill(0)
        yield memory
