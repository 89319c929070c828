# SPDX-License-Identifier: Apache-2.0
"""register() without `access`: what the object allows, and the region says it."""

import mmap

import numpy as np
import pytest
from support.dma import keep
from support.interrupting import held

import dgkit
from dgkit import Access
from dgkit.errors import AccessDenied, Unsupported


def frozen():
    made = np.arange(8, dtype="u1")
    made.flags.writeable = False
    return made


def mapped_for_reading(folder):
    path = folder / "mapped"
    path.write_bytes(bytes(range(8)))
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)


class OnlyDlpack:
    """Host memory that is exposed by DLPack alone, as PyTorch's and JAX's."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class Tensor:
    """A tensor that requires grad: it refuses each access to its bytes, as PyTorch's does."""

    requires_grad = True

    def _refuse(self, *_, **__):
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )

    __array__ = __dlpack__ = _refuse
    __cuda_array_interface__ = property(_refuse)

    def __dlpack_device__(self):
        return (1, 0)


READ_ONLY = {
    "NumPy": lambda _: frozen(),
    "bytes": lambda _: bytes(range(8)),
    "a view": lambda _: memoryview(bytearray(range(8))).toreadonly(),
    "mmap": mapped_for_reading,
    "DLPack": lambda _: OnlyDlpack(frozen()),
    "wrapped": lambda _: dgkit.wrap(bytes(range(8))),
}
WRITABLE = {
    "NumPy": lambda: np.arange(8, dtype="u1"),
    "bytearray": lambda: bytearray(range(8)),
    "DLPack": lambda: OnlyDlpack(np.arange(8, dtype="u1")),
    "dgkit.empty": lambda: dgkit.empty(8),
    "to be exported for reading": lambda: dgkit.empty(8, readonly_export=True),
}


@pytest.fixture
def device():
    with dgkit.Device() as opened:
        yield keep(opened)


@pytest.fixture(scope="module")
def session():
    with dgkit.connect() as made:
        yield made


@pytest.mark.parametrize("kind", READ_ONLY)
def test_a_read_only_object_gives_a_region_to_read(device, tmp_path, kind):
    obj = READ_ONLY[kind](tmp_path)
    region = device.register(obj)
    assert region.access == Access.READ
    assert repr(region).endswith(", r>")
    assert device.import_region(region.export()).access == Access.READ
    for wider in ("w", "rw", Access.RW):
        with pytest.raises(AccessDenied, match="register it with access='r'"):
            device.register(obj, wider)


@pytest.mark.parametrize("kind", WRITABLE)
def test_a_writable_object_gives_a_region_to_read_and_write(device, kind):
    region = device.register(WRITABLE[kind]())
    assert region.access == Access.RW
    assert repr(region).endswith(", rw>")


@pytest.mark.parametrize("kind", READ_ONLY)
def test_a_session_registers_what_is_read_only_and_says_so(session, tmp_path, kind):
    obj = READ_ONLY[kind](tmp_path)
    with session.register(obj, name="mine") as region:
        assert region.access == Access.READ
        assert repr(region) == "<SessionRegion 'mine' on host, 8 bytes, r>"
        assert session.read(region, 8) == bytes(range(8))
        with pytest.raises(AccessDenied):
            session.write(region, b"x")
        with pytest.raises(AccessDenied):
            session.register(obj, access="rw")


def test_a_session_writes_to_what_is_writable(session):
    array = np.zeros(8, "u1")
    with session.register(array) as region, session.register(OnlyDlpack(array)) as same:
        assert region.access == same.access == Access.RW
        session.write(region, b"ab")
        session.write(same, b"cd", offset=2)
        assert bytes(array) == b"abcd\0\0\0\0"


def test_dlpack_that_numpy_cannot_take_is_unsupported_and_named(device):
    class Strange(OnlyDlpack):
        def __dlpack__(self, **_):
            raise BufferError("bfloat16 is not known")

    with pytest.raises(Unsupported, match=r"this Strange by DLPack: bfloat16 is not known"):
        device.register(Strange(frozen()))


@pytest.mark.parametrize("use", ["session", "device", "wrap"])
def test_a_tensor_that_requires_grad_is_refused_with_the_remedy(session, device, use):
    call = {"session": session.register, "device": device.register, "wrap": dgkit.wrap}[use]
    before = held(session)
    with pytest.raises(Unsupported, match=r"Tensor requires grad, .* tensor\.detach\(\)"):
        call(Tensor())
    assert held(session) == before
