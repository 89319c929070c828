"""The cffi module that native/build_ffi.py makes from native/dgkit.h."""

from typing import Any

ffi: Any
lib: Any
