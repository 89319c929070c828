"""Which DOCA this process uses: found, loaded once, and called with its errors as exceptions."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from ..errors import DeviceUnavailable
from .codes import Code
from .errors import BadState, DocaError, NotSupported, error_class

TYPE_CHECKING = False  # typing's own costs more to import than all of this
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["CONTROL", "Library", "after_fork", "forked", "label", "library", "use", "version"]

# One control call at a time, of whatever thread: DOCA's objects are not for several at once. A
# finalizer may come inside one, so its thread may enter again.
CONTROL = threading.RLock()

_KINDS = ("doca", "softdoca")
_PARTS = ("common", "dma")
# The names of 3.x, of 2.x, and that of a development package; as the C core's provider takes them
# (native/src/providers/doca_api.c), so that both have the same library.
_SUFFIXES = (".so.3", ".so.2", ".so")
_FOLDERS = ("", f"/opt/mellanox/doca/lib/{os.uname().machine}-linux-gnu/")
_SOFTDOCA = "const char *softdoca_last_refusal(void); void *softdoca_share_pins(void *theirs);"
_SOFTWARE = "softdoca: software DOCA, no hardware"

_asked: str | None = None
_loaded: Library | None = None
_forked = False


class Library:
    """libdoca_common and libdoca_dma, as cffi's ABI mode gives them."""

    def __init__(self, ffi: Any, names: Sequence[str]) -> None:
        # Global: libdoca_dma finds its libdoca_common by SONAME, whatever this one's name is.
        found = (ffi.dlopen(name, os.RTLD_NOW | os.RTLD_GLOBAL) for name in names)
        self.ffi, self.where = ffi, names[0]
        self.common, self.dma = found
        self._why = getattr(self.common, "softdoca_last_refusal", None)
        self.kind = "doca" if self._why is None else "softdoca"
        self.version = self.text(self.common.doca_version_runtime())
        self.note = _note(ffi)
        if hasattr(self.common, "softdoca_share_pins"):
            _join(ffi, self.common)

    def text(self, chars: Any) -> str:
        """A C string."""
        return str(self.ffi.string(chars).decode(errors="replace"))

    def function(self, name: str) -> Any:
        """A function of DOCA. NotSupported if this version has none of that name."""
        home = self.dma if name.startswith("doca_dma_") else self.common
        try:
            return getattr(home, name)
        except AttributeError:
            text = f"{name}: {self.kind} {self.version} has no such function"
            raise NotSupported(text) from None

    def call(self, name: str, *args: Any) -> None:
        """Calls a function that answers with a doca_error_t; its error as an exception."""
        code = self.function(name)(*args)
        if code:
            raise self.error(code, name)

    def get(self, name: str, kind: str, *args: Any) -> Any:
        """What such a function stores through its last argument, a pointer of that C type."""
        out = self.ffi.new(kind)
        self.call(name, *args, out)
        return out[0]

    def error(self, code: int, what: str, why: str = "") -> DocaError:
        """The exception of a code, in DOCA's words, or in softdoca's, which know what was wrong."""
        known = code in Code.__members__.values()
        name = f"DOCA_ERROR_{Code(code).name}" if known else f"error {code}"
        if not why and self._why is not None:
            why = self.text(self._why())
        why = why or self.text(self.common.doca_error_get_descr(code))
        return error_class(code)(f"{what}: {name}: {why}", Code(code) if known else code)


def use(kind: str) -> None:
    """Says which DOCA this process uses: `"doca"`, the real one, or `"softdoca"`.

    Once, before the first object is made; without it the real one is used. softdoca does the same
    in software, on any machine; all that it shows is labelled so, also where it takes the real
    one's place by LD_LIBRARY_PATH (`dgkit softdoca run`). Its libraries are those in
    `$SOFTDOCA_LIB`, else those that came with dgkit. BadState if the process uses the other one
    already: one kind a process.
    """
    global _asked
    if kind not in _KINDS:
        raise ValueError(f"kind is {kind!r}; it must be 'doca' or 'softdoca'")
    with CONTROL:
        if _loaded is not None and _loaded.kind != kind:
            raise BadState(_one_kind(_loaded.kind, kind))
        _asked = kind


def library() -> Library:
    """The library, loaded at the first call. DeviceUnavailable if it is not there, or after fork().

    After fork(): neither DOCA nor softdoca has its threads and its devices in the child.
    """
    global _loaded
    if _forked:
        raise after_fork("DOCA")
    if _loaded is None:
        with CONTROL:
            if _loaded is None:
                _loaded = _load(_asked or "doca")
    return _loaded


def after_fork(what: str) -> DeviceUnavailable:
    """What everything of DOCA's answers in a child of fork()."""
    return DeviceUnavailable(
        errno.EOWNERDEAD,
        f"{what} was opened before fork(), and does not work in the child: start a new process "
        "(multiprocessing: the method 'spawn')",
        check="",
    )


def forked() -> bool:
    """Whether this is the child of a process that had DOCA loaded."""
    return _forked


def version() -> str:
    """The version that the library itself gives (`doca_version_runtime`): `"3.0.0058"`."""
    return library().version


def label() -> str:
    """What objects say of the library that they are of, in a repr or on a badge."""
    found = library()
    return _SOFTWARE if found.kind == "softdoca" else f"DOCA {found.version}"


def _one_kind(there: str, asked: str) -> str:
    return f"this process uses {there} already, so it cannot use {asked}: one kind a process"


def _new_ffi() -> Any:
    from cffi import FFI

    from ._declarations import CDEF

    ffi = FFI()
    ffi.cdef(CDEF + _SOFTDOCA)
    return ffi


def _note(ffi: Any) -> Any:
    """The completion callback: a function of dgkit's own core, so that no Python runs in it."""
    from ..dma import _ffi as core

    address = int(core.ffi.cast("uintptr_t", core.ffi.addressof(core.lib, "dg_doca_note")))
    return ffi.cast("doca_dma_task_memcpy_completion_cb_t", address)


def _join(ffi: Any, softdoca: Any) -> None:
    """Has softdoca and dgkit's core know of the memory that either has pinned for the GPU."""
    from ..dma import _ffi as core

    address = int(ffi.cast("uintptr_t", ffi.addressof(softdoca, "softdoca_share_pins")))
    core.lib.dg_softdoca_join(core.ffi.cast("void *", address))


def _load(kind: str) -> Library:
    ffi = _new_ffi()
    there = _there(ffi)
    if there is not None and there != kind:
        raise BadState(_one_kind(there, kind))
    return _load_softdoca(ffi) if kind == "softdoca" else _load_doca(ffi)


def _there(ffi: Any) -> str | None:
    """Which kind somebody else in this process, dgkit's provider for one, has loaded already."""
    # Not by RTLD_NOLOAD: of a file that is there and not loaded dlerror() has no text for cffi.
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if path.rpartition("/")[2].startswith("libdoca_common.so"):
            found = ffi.dlopen(f"/{path}", os.RTLD_NOW)
            return "softdoca" if hasattr(found, "softdoca_last_refusal") else "doca"
    return None


def _load_softdoca(ffi: Any) -> Library:
    given = os.environ.get("SOFTDOCA_LIB")
    if given and not given.startswith("/"):
        text = f"SOFTDOCA_LIB is {given!r}; it must be an absolute path"
        raise DeviceUnavailable(errno.ENODEV, text, check="dgkit-providers")
    folder = Path(given) if given else Path(__file__).resolve().parent.parent / "_softdoca/lib"
    try:
        return Library(ffi, [str(folder / f"libdoca_{part}.so.3") for part in _PARTS])
    except OSError as error:
        where = "where $SOFTDOCA_LIB points" if given else "beside dgkit"
        text = f"softdoca is not {where}: {_first(error)}"
        raise DeviceUnavailable(errno.ENODEV, text, check="dgkit-providers") from None


def _first(error: OSError) -> str:
    """What the loader said; cffi adds what ctypes found, which is another search."""
    return str(error).partition(".  Additionally,")[0]


def _load_doca(ffi: Any) -> Library:
    failures = []
    for folder in _FOLDERS:
        for suffix in _SUFFIXES:
            try:
                return Library(ffi, [f"{folder}libdoca_{part}{suffix}" for part in _PARTS])
            except OSError as error:
                failures.append(_first(error))
    raise DeviceUnavailable(
        errno.ENODEV,
        f"DOCA is not here: {failures[0]}. Install NVIDIA's DOCA (on a BlueField it is part of the "
        "image, on the host the package doca-sdk-dma or doca-all), or use software DOCA: "
        "dgkit.doca.use('softdoca') before anything else",
        check="doca-libraries",
    )


def _in_child() -> None:
    global _forked, CONTROL
    _forked = _loaded is not None
    CONTROL = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_in_child)
