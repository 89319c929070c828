# SPDX-License-Identifier: Apache-2.0
"""Functions of dgkit_device.cuh, declared for kernels of `numba.cuda`.

    from numba import cuda
    from dgkit.gpu_initiated import launching, numba_functions as dg

    @cuda.jit
    def kernel(queue, remote, local, status):
        status[0] = dg.wait(queue, dg.put(queue, remote, 0, local, 0, 4096))

    with launching(queue) as address:
        kernel[1, 1](address, remote.id, local.id, status)

Each function has the name of its C form without `dg_`, and the same arguments, with these
exceptions: `put_inline_u64(queue, remote, remote_offset, value)` puts the 8 bytes of an integer;
`received(queue, ticket)`, after `recv_wait(queue, ticket)`, returns `size << 32 | immediate`;
`next_place(queue)` returns the first word that `dg_queue_info` stores. A ticket is a uint64.
Importing this module needs numba-cuda, but no GPU.
"""

from __future__ import annotations

from numba import cuda, types

from .compiler import include_dir

_TYPES = {"i": types.int32, "I": types.uint32, "Q": types.uint64}
_COPY = "QIQIQQ"  # queue, remote and its offset, local and its offset, size
_POSTED = {
    "put": _COPY, "get": _COPY, "put_signal": _COPY + "IQQ", "signal": "QIQQ",
    "put_counter": _COPY + "QQ", "put_immediate": _COPY + "I", "send": "QIQQI", "recv": "QIQQ",
    "put_inline_u64": "QIQQ", "fence": "Q", "commit": "Q",
}  # fmt: skip

# Result and arguments of each function; the queue is an address.
DECLARED = {
    **{name: "Q" + arguments for name, arguments in _POSTED.items()},
    **{f"{name}_weak": "QQQ" + arguments[1:] for name, arguments in _POSTED.items()},
    "wait": "iQQ", "get_wait": "iQQ", "recv_wait": "iQQ", "test": "iQQ", "quiet": "iQ",
    "received": "QQQ", "hole": "QQQ", "next_place": "QQ",
}  # fmt: skip

# Source of the C functions, which Numba compiles with NVRTC and links to each kernel that calls
# them. Warning 177 reports functions without a caller; NVRTC suppresses it in headers only.
SHIMS = "#define DG_NUMBA\n#pragma nv_diag_suppress 177\n"
SHIMS += (include_dir() / "dgkit_device.cuh").read_text(encoding="utf-8")

_source = cuda.CUSource(SHIMS, name="dgkit_device.cu")
for _name, _letters in DECLARED.items():
    _result, *_arguments = [_TYPES[letter] for letter in _letters]
    globals()[_name] = cuda.declare_device(f"dg_numba_{_name}", _result(*_arguments), link=_source)
