# SPDX-License-Identifier: Apache-2.0
"""Find the DOCA library, load it once per process, and turn its errors into exceptions."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from ..errors import DeviceUnavailable
from ..files import installed_softdoca
from .codes import Code
from .doca_errors import BadState, DocaError, NotSupported, error_class

TYPE_CHECKING = False  # importing typing takes longer than importing this whole module
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# Serializes control calls: DOCA's objects are not thread-safe. Reentrant, because a finalizer may
# run inside a call.
CONTROL = threading.RLock()

_KINDS = ("doca", "softdoca")
_PARTS = ("common", "dma")
# File names in DOCA 3.x, in 2.x and in a development package. The C core's provider tries them in
# the same order (native/src/providers/doca_api.c), so that both load the same library.
_SUFFIXES = (".so.3", ".so.2", ".so")
_FOLDERS = ("", f"/opt/mellanox/doca/lib/{os.uname().machine}-linux-gnu/")
_SOFTDOCA = "const char *softdoca_last_refusal(void); void *softdoca_share_pins(void *theirs);"
_SOFTWARE = "softdoca: software DOCA, no hardware"

_requested: str | None = None
_loaded: Library | None = None
_forked = False


class Library:
    """Functions of libdoca_common and libdoca_dma, loaded by cffi in ABI mode."""

    def __init__(self, ffi: Any, names: Sequence[str]) -> None:
        # RTLD_GLOBAL, so that libdoca_dma finds libdoca_common by SONAME, whatever its file name.
        found = [ffi.dlopen(name, os.RTLD_NOW | os.RTLD_GLOBAL) for name in names]
        self.ffi, self.path = ffi, names[0]
        if "DGKIT_TRACE" in os.environ:  # the recorder is preloaded: its functions are found first
            self._real, found = found, [ffi.dlopen(None)] * 2
        self.common, self.dma = found
        self._why = getattr(self.common, "softdoca_last_refusal", None)
        self.kind = "doca" if self._why is None else "softdoca"
        self.version = self.text(self.common.doca_version_runtime())
        from ..dma import _ffi as core

        # a function of dgkit's C core, which calls no Python
        address = int(core.ffi.cast("uintptr_t", core.ffi.addressof(core.lib, "dg_doca_note")))
        self.completion_callback = ffi.cast("doca_dma_task_memcpy_completion_cb_t", address)
        if hasattr(self.common, "softdoca_share_pins"):
            # softdoca and dgkit's C core share one record of memory pinned for the GPU
            address = int(ffi.cast("uintptr_t", ffi.addressof(self.common, "softdoca_share_pins")))
            core.lib.dg_softdoca_join(core.ffi.cast("void *", address))

    def text(self, chars: Any) -> str:
        """Return a C string as str."""
        return str(self.ffi.string(chars).decode(errors="replace"))

    def function(self, name: str) -> Any:
        """Return a DOCA function. Raises NotSupported if this version of DOCA lacks it."""
        home = self.dma if name.startswith("doca_dma_") else self.common
        try:
            return getattr(home, name)
        except AttributeError:
            text = f"{name}: {self.kind} {self.version} has no such function"
            raise NotSupported(text) from None

    def call(self, name: str, *args: Any) -> None:
        """Call a function that returns a doca_error_t; raise its error."""
        code = self.function(name)(*args)
        if code:
            raise self.error(code, name)

    def get(self, name: str, kind: str, *args: Any) -> Any:
        """Call a function whose last argument is an output pointer; return the output.

        Args:
            name: Function.
            kind: C type of the pointer.
            args: The other arguments.
        """
        out = self.ffi.new(kind)
        self.call(name, *args, out)
        return out[0]

    def error(self, code: int, what: str, why: str = "") -> DocaError:
        """Return the exception for an error code.

        Args:
            code: doca_error_t.
            what: What failed.
            why: Reason; by default softdoca's reason for the refusal, or DOCA's text for the code.
        """
        known = code in Code.__members__.values()
        name = f"DOCA_ERROR_{Code(code).name}" if known else f"error {code}"
        if not why and self._why is not None:
            why = self.text(self._why())
        why = why or self.text(self.common.doca_error_get_descr(code))
        return error_class(code)(f"{what}: {name}: {why}", Code(code) if known else code)


def use(kind: str) -> None:
    """Select which DOCA library this process uses.

    Call it before the first object is created. softdoca provides the same API in software on any
    machine. It is labelled as software everywhere, even if it replaces DOCA through LD_LIBRARY_PATH
    (`dgkit softdoca run`). Its libraries are loaded from `$SOFTDOCA_LIB` if that is set, otherwise
    from dgkit's installation.

    Args:
        kind: `"doca"` (NVIDIA's; the default) or `"softdoca"`.

    Raises:
        BadState: The process already uses the other kind; it can use only one.
    """
    global _requested
    if kind not in _KINDS:
        raise ValueError(f"kind is {kind!r}; it must be 'doca' or 'softdoca'")
    with CONTROL:
        if _loaded is not None and _loaded.kind != kind:
            raise BadState(_conflict(_loaded.kind, kind))
        _requested = kind


def library() -> Library:
    """Return the library; the first call loads it.

    Raises:
        DeviceUnavailable: The library is not installed, or this is a child of fork(), in which
            DOCA's (or softdoca's) threads and devices do not exist.
    """
    global _loaded
    if _forked:
        raise after_fork("DOCA")
    if _loaded is None:
        with CONTROL:
            if _loaded is None:
                _loaded = _load(_requested or "doca")
    return _loaded


def after_fork(what: str) -> DeviceUnavailable:
    """Return the error that any use of DOCA's objects raises in a child of fork()."""
    return DeviceUnavailable(
        errno.EOWNERDEAD,
        f"{what} was opened before fork() and does not work in the child: start a new process "
        "(multiprocessing: the method 'spawn')",
        check="",
    )


def forked() -> bool:
    """Return whether this is a child of a process that had loaded DOCA."""
    return _forked


def version() -> str:
    """Return the library's version (`doca_version_runtime`), such as `"3.0.0058"`."""
    return library().version


def label() -> str:
    """Return the name of the library for reprs and badges."""
    found = library()
    return _SOFTWARE if found.kind == "softdoca" else f"DOCA {found.version}"


def _conflict(loaded: str, requested: str) -> str:
    return f"this process already uses {loaded}, so it cannot use {requested}: one kind per process"


def _new_ffi() -> Any:
    from cffi import FFI

    from ._declarations import CDEF

    ffi = FFI()
    ffi.cdef(CDEF + _SOFTDOCA)
    return ffi


def _load(kind: str) -> Library:
    ffi = _new_ffi()
    loaded = _loaded_kind(ffi)
    if loaded is not None and loaded != kind:
        raise BadState(_conflict(loaded, kind))
    return _load_softdoca(ffi) if kind == "softdoca" else _load_doca(ffi)


def _loaded_kind(ffi: Any) -> str | None:
    """Return the kind already loaded in this process, for example by a provider, or None."""
    # RTLD_NOLOAD cannot be used: if the file exists but is not loaded, dlerror() returns no text.
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
    folder = Path(given) if given else installed_softdoca() / "lib"
    try:
        return Library(ffi, [str(folder / f"libdoca_{part}.so.3") for part in _PARTS])
    except OSError as error:
        place = "in the folder of $SOFTDOCA_LIB" if given else "installed with dgkit"
        text = f"softdoca is not {place}: {_first(error)}"
        raise DeviceUnavailable(errno.ENODEV, text, check="dgkit-providers") from None


def _first(error: OSError) -> str:
    """Return the loader's message without the sentence that cffi adds about ctypes."""
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
        f"DOCA is not installed: {failures[0]}. Install NVIDIA's DOCA (on a BlueField it is part "
        "of the image, on the host the package doca-sdk-dma or doca-all), or use software DOCA: "
        "dgkit.doca.use('softdoca') before anything else",
        check="doca-libraries",
    )


def _reset_after_fork() -> None:
    global _forked
    _forked = _loaded is not None
    CONTROL._at_fork_reinit()  # type: ignore[attr-defined] # a thread of the parent may hold it


os.register_at_fork(after_in_child=_reset_after_fork)
