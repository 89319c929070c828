# SPDX-License-Identifier: Apache-2.0
"""GPU code over the fake CUDA driver (tests/support/fake_cuda), or with --require=gpu on a GPU.

Tests with the marker `any_gpu` run on both, those with `gpu` on a GPU only, all others over the
fake driver only, as does each test that uses the fixture `fake_cuda`.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest
from support.dma import keep
from support.gpu.memory import allocator
from support.gpu.queue_rig import Kernels

import dgkit
from dgkit import memory

HOW = """the tests in tests/cuda need the fake CUDA driver, but found {found}:
    python tests/support/fake_cuda/build.py .cache/fake_cuda
    LD_LIBRARY_PATH=.cache/fake_cuda PYTHONPATH=tests/support/fake_cuda pytest tests/cuda
(tests/run cuda does all of it), or with --require=gpu a real GPU"""


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


def _require_gpu() -> None:
    if why := memory.why_no_gpu():
        raise pytest.UsageError(f"a GPU is required: {why}")
    if any("fake" in gpu.name for gpu in memory.gpus()):
        raise pytest.UsageError("a GPU is required, but the driver is the tests' fake CUDA driver")


KEY = pytest.StashKey[FakeCuda | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--require", choices=["gpu"], help="run the tests of a real GPU")


def pytest_configure(config: pytest.Config) -> None:
    real = config.getoption("--require") == "gpu"
    config.stash[KEY] = _require_gpu() if real else _fake_cuda()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    real = config.stash[KEY] is None

    def is_selected(item: pytest.Item) -> bool:
        if item.get_closest_marker("gpu"):
            return real
        on_both = item.get_closest_marker("any_gpu") and "fake_cuda" not in item.fixturenames
        return not real or bool(on_both)

    left_out = [item for item in items if not is_selected(item)]
    items[:] = [item for item in items if is_selected(item)]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def knobs(pytestconfig: pytest.Config) -> FakeCuda | None:
    """Fake driver, for what a test that also runs on a GPU asserts of its calls; else None."""
    return pytestconfig.stash[KEY]


@pytest.fixture(autouse=True)
def _no_knobs(knobs: FakeCuda | None) -> Iterator[None]:
    """Reset the knobs of the fake driver before and after each test."""
    if knobs:
        knobs.order("")
    yield
    if knobs:
        knobs.order("")


@pytest.fixture
def fake_cuda(knobs: FakeCuda) -> FakeCuda:
    """Fake driver without knobs, also after the test."""
    return knobs


@pytest.fixture
def device() -> Iterator[dgkit.Device]:
    """Device of the first GPU, which holds what it creates until it is closed."""
    with dgkit.Device("cuda") as opened:
        yield keep(opened)


@pytest.fixture
def gpu() -> Iterator[Any]:
    """1 MiB of zeros on the first GPU."""
    with dgkit.empty(1 << 20, on="gpu") as memory:
        memory.array.fill(0)
        yield memory


@pytest.fixture
def cuda_memory() -> Iterator[Any]:
    """Functions that allocate by the driver; the memory is freed at the end."""
    with allocator() as made:
        yield made


@pytest.fixture(scope="session")
def kernels(pytestconfig: pytest.Config) -> Kernels:
    """Kernels that post to a GPU queue, for the GPU or the emulated one."""
    return Kernels(real=pytestconfig.stash[KEY] is None)
