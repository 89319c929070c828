# SPDX-License-Identifier: Apache-2.0
"""Kernels of Numba that call the device header: compiled and linked, without a GPU."""

import re
from typing import Any

import pytest
from support.gpu import nvrtc

numba = pytest.importorskip("numba", reason="pip install '.[test]'; not for Python 3.15 yet")
cuda = pytest.importorskip("numba.cuda")
nvjitlink = pytest.importorskip("cuda.bindings.nvjitlink")
dg = pytest.importorskip("dgkit.gpu_initiated.numba_functions")

ARGUMENTS = {"i": numba.int32, "I": numba.uint32, "Q": numba.uint64}
# A prototype in PTX: parameters by type, without their names.
PROTOTYPE = re.compile(r"\.func\s*\(\.param (\.b\d+)[^)]*\)\s*dg_numba_(\w+)\s*\(([^)]*)\)")


def prototypes(ptx: str, kind: str) -> dict[str, tuple[str, ...]]:
    """Return the types of the result and the parameters of each shim."""
    found = PROTOTYPE.findall(ptx.replace(f"{kind} .func", "\0.func").replace("\n", " "))
    assert ptx.count(f"{kind} .func") >= len(found)
    return {name: (result, *re.findall(r"\.b\d+", rest)) for result, name, rest in found}


def compiled(kernel: Any, signature: Any, arch: int) -> str:
    return str(
        cuda.compile(kernel, sig=signature, cc=(arch // 10, arch % 10), abi="numba", output="ptx")[
            0
        ]
    )


def kernel_of(name: str) -> Any:
    """Return a kernel that passes its arguments to one function and stores the result."""
    count = len(dg.DECLARED[name]) - 1
    names = ", ".join(f"a{i}" for i in range(count))
    space = {"dg": dg}
    exec(f"def kernel(out, {names}):\n    out[0] = dg.{name}({names})\n", space)
    return space["kernel"]


def shims(arch: int) -> str:
    options = ["--std=c++17", "--device-c", f"-arch=compute_{arch}"]
    return nvrtc.compile_ptx(13, dg.SHIMS, options)


def link(arch: int, *modules: str) -> bytes:
    """Link PTX to a program for a GPU."""
    linker = nvjitlink.create(1, [f"-arch=sm_{arch}"])
    try:
        for i, ptx in enumerate(modules):
            data = ptx.encode()
            nvjitlink.add_data(linker, nvjitlink.InputType.PTX, data, len(data), f"module {i}")
        nvjitlink.complete(linker)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(linker))
        nvjitlink.get_linked_cubin(linker, cubin)
        return bytes(cubin)
    finally:
        nvjitlink.destroy(linker)


def test_numba_declares_exactly_the_functions_that_the_header_defines():
    assert prototypes(shims(90), ".visible").keys() == dg.DECLARED.keys()


def test_numbas_calls_have_the_prototypes_of_the_header():
    defined = prototypes(shims(90), ".visible")
    for name, (result, *arguments) in dg.DECLARED.items():
        types = [ARGUMENTS[each] for each in arguments]
        signature = numba.void(ARGUMENTS[result][::1], *types)
        ptx = compiled(kernel_of(name), signature, 90)
        assert prototypes(ptx, ".extern") == {name: defined[name]}, name


@pytest.mark.parametrize("arch", [75, 90])
def test_a_kernel_of_numba_links_with_the_header(arch: int):
    def kernel(queue, remote, local, signal, status):
        here = cuda.grid(1)
        ticket = dg.put_signal(queue, remote, here * 64, local, here * 64, 64, signal, 0, 1)
        status[here] = dg.wait(queue, ticket)

    signature = numba.void(numba.uint64, numba.uint32, numba.uint32, numba.uint32, numba.int32[::1])
    ptx = compiled(kernel, signature, arch)
    alone, whole = link(arch, ptx), link(arch, ptx, shims(arch))
    assert whole.startswith(b"\x7fELF")
    assert len(whole) > len(alone)
