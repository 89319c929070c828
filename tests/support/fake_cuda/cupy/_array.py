# SPDX-License-Identifier: Apache-2.0
"""`cupy.ndarray`, of the test double: NumPy over the addresses of the fake driver's GPU memory."""

import numpy as np

from cupy import cuda


class _Window:
    """Memory at an address, as NumPy reads it."""

    def __init__(self, address, size):
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _plain(value):
    return value._view if isinstance(value, ndarray) else value


class ndarray:
    """An array on a GPU. NumPy does not get at its bytes by itself: `get()` copies them."""

    __array_priority__ = 100
    __array_ufunc__ = None

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        dtype = np.dtype(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        size = int(np.prod(shape)) * dtype.itemsize
        self.data = cuda.alloc(size) if memptr is None else memptr
        window = np.asarray(_Window(self.data.ptr, self.data.left)) if size else np.empty(0, "u1")
        self._view = np.ndarray(shape, dtype, window, 0, strides, order)

    def _with(self, view):
        """Another array over the same memory."""
        made = object.__new__(ndarray)
        offset = view.__array_interface__["data"][0] - self.data.ptr if view.size else 0
        made.data, made._view = self.data + offset, view
        return made

    def __getattr__(self, name):
        if name in {"shape", "dtype", "nbytes", "size", "ndim", "strides", "itemsize", "flags"}:
            return getattr(self._view, name)
        raise AttributeError(name)

    @property
    def device(self):
        return self.data.device

    @property
    def __cuda_array_interface__(self):
        contiguous = self._view.flags.c_contiguous
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "descr": self.dtype.descr,
            "data": (self.data.ptr if self.size else 0, False),
            "strides": None if contiguous else self.strides,
            "stream": cuda.get_current_stream().ptr or 1,
            "version": 3,
        }

    def __array__(self, *_args, **_kwargs):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use `.get()`")

    def __dlpack_device__(self):
        return (2, self.device.id)

    def __dlpack__(self, **_):
        from cupy._dlpack import to_dlpack

        return to_dlpack(self)

    def get(self):
        """The bytes, copied by the driver on the current stream, as NumPy's."""
        stream = cuda.get_current_stream()
        if not self._view.flags.c_contiguous or not self.size:
            stream.synchronize()
            return self._view.copy()
        out = np.empty(self.shape, self.dtype)
        cuda.call("cuMemcpyDtoHAsync_v2", out.ctypes.data, self.data.ptr, self.nbytes, stream.ptr)
        stream.synchronize()
        return out

    def set(self, values):
        """Copies NumPy's bytes here, by the driver, on the current stream."""
        values = np.ascontiguousarray(values, self.dtype)
        stream = cuda.get_current_stream()
        if self.nbytes:
            cuda.call(
                "cuMemcpyHtoDAsync_v2", self.data.ptr, values.ctypes.data, self.nbytes, stream.ptr
            )
        stream.synchronize()

    def fill(self, value):
        self._view.fill(_plain(value))

    def item(self):
        return self.get().item()

    def copy(self):
        made = ndarray(self.shape, self.dtype)
        made._view[...] = self._view
        return made

    def astype(self, dtype):
        made = ndarray(self.shape, dtype)
        made._view[...] = self._view
        return made

    def view(self, dtype):
        return self._with(self._view.view(dtype))

    def reshape(self, *shape):
        return self._with(self._view.reshape(*shape))

    def ravel(self):
        return self.reshape(-1)

    def transpose(self):
        return self._with(self._view.T)

    T = property(transpose)

    def sum(self):
        return _result(self._view.sum())

    def all(self):
        return _result(self._view.all())

    def any(self):
        return _result(self._view.any())

    def max(self):
        return _result(self._view.max())

    def __getitem__(self, key):
        found = self._view[key]
        if not isinstance(found, np.ndarray):
            found = self._view[(*key, ...) if isinstance(key, tuple) else (key, ...)]
        shares = found.size == 0 or np.may_share_memory(found, self._view)
        return self._with(found) if shares else _result(found)

    def __setitem__(self, key, value):
        self._view[key] = _plain(value)

    def __len__(self):
        return len(self._view)

    def __bool__(self):
        return bool(self.get())

    def __int__(self):
        return int(self.get())

    def __float__(self):
        return float(self.get())

    def __repr__(self):
        return repr(self.get())

    __hash__ = None


def _result(value):
    """A new array of what NumPy computed."""
    value = np.asarray(value)
    made = ndarray(value.shape, value.dtype)
    made._view[...] = value
    return made


def _operator(name):
    def apply(self, other):
        found = getattr(self._view, name)(_plain(other))
        return self if found is self._view else _result(found)

    return apply


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor"):
    for _form in (f"__{_name}__", f"__i{_name}__", f"__r{_name}__"):
        setattr(ndarray, _form, _operator(_form))
for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(ndarray, _name, _operator(_name))
