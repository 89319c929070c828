# SPDX-License-Identifier: Apache-2.0
"""What the driver refuses, at each step: a typed error that names it, and nothing is left."""

import errno
import gc
from collections import Counter

import pytest
from support.gpu.remote_region import HOST, MIB, free
from support.processes.children import child, run
from support.processes.waiting import held, until

import dgkit
from dgkit import Device
from dgkit.errors import NativeError, OutOfMemory

PAIRS = {
    "cuMemImportFromShareableHandle": "cuMemRelease",
    "cuMemAddressReserve": "cuMemAddressFree",
    "cuMemMap": "cuMemUnmap",
    "cuIpcOpenMemHandle": "cuIpcCloseMemHandle",
    "cuMemHostAlloc": "cuMemFreeHost",
    "cuMemHostRegister": "cuMemHostUnregister",
    "cuStreamCreate": "cuStreamDestroy",
    "cuDevicePrimaryCtxRetain": "cuDevicePrimaryCtxRelease",
}


@pytest.fixture(scope="module")
def tokens():
    """A host that lends memory of both kinds: a descriptor each, writable and read-only."""
    with child(HOST, MIB, "vmm", "rw") as vmm, child(HOST, 3000, "ipc", "rw") as ipc:
        lent = {"vmm": vmm.line(), "ipc": ipc.line()}
        vmm.line()  # its fd
        lent["vmm, read-only"] = vmm.ask("region.export('r').hex()")
        yield {kind: bytes.fromhex(token) for kind, token in lent.items()}


def state():
    gc.collect()
    return held(), free()


def balance(fake_cuda):
    """How many more of each thing were made than given back."""
    calls = fake_cuda.calls
    made = Counter({name: calls(name) - calls(end) for name, end in PAIRS.items()})
    handles = made.pop("cuMemImportFromShareableHandle") + calls("cuMemCreate")
    return made + Counter({"handles": handles})


def refused(fake_cuda, order, use):
    """The error of a use that the driver refuses; after it all is as it was before."""
    before = state()
    fake_cuda.order(order)
    with pytest.raises(NativeError) as caught:
        use()
    name = order.partition("=")[0]
    handles = ("cuMemCreate", "cuMemImportFromShareableHandle")
    refusal = Counter(["handles" if name in handles else name])
    assert not balance(fake_cuda) - refusal
    fake_cuda.order("")
    until(
        lambda: state() == before,
        "all is as it was: the share server closes its end in its own time",
    )
    return caught.value


IMPORTS = [
    ("vmm", "cuMemImportFromShareableHandle=999", "cuMemImportFromShareableHandle"),
    ("vmm", "cuMemAddressReserve=1", "cuMemAddressReserve"),
    ("vmm", "cuMemMap=1", "cuMemMap"),
    ("vmm", "cuMemMap=1@2", "cuMemMap"),
    ("vmm", "cuMemSetAccess=1", "cuMemSetAccess"),
    ("vmm, read-only", "cuMemSetAccess=1@2", "cuMemSetAccess"),
    ("ipc", "cuIpcOpenMemHandle=1", "cuIpcOpenMemHandle"),
]


@pytest.mark.parametrize(("kind", "order", "name"), IMPORTS)
def test_an_import_that_fails_leaves_nothing_mapped(tokens, fake_cuda, kind, order, name):
    with Device("cuda") as device, device.import_region(tokens[kind], timeout=5) as kept:
        error = refused(fake_cuda, order, lambda: device.import_region(tokens[kind], timeout=5))
        assert error.errno == errno.EIO
        assert f"{name}: CUDA_ERROR_" in str(error)
        with (
            device.import_region(tokens[kind], timeout=5) as again,
            device.queue() as queue,
            device.register(bytearray(64)) as local,
        ):
            assert queue.read(local, again, size=64).wait(5).size == 64
            assert queue.read(local, kept, size=64).wait(5).size == 64


@pytest.mark.parametrize("function", ["cuMemMap", "cuMemImportFromShareableHandle"])
def test_an_import_into_a_full_gpu_is_out_of_memory(tokens, fake_cuda, function):
    with Device("cuda") as device, device.import_region(tokens["vmm"], timeout=5):
        error = refused(
            fake_cuda, f"{function}=2", lambda: device.import_region(tokens["vmm"], timeout=5)
        )
        assert isinstance(error, OutOfMemory)
        assert "the GPU is out of memory" in str(error)


@pytest.mark.parametrize(
    "order",
    ["cuMemHostAlloc=2", "cuStreamCreate=999", "cuStreamCreate=999@2"],
)
def test_a_queue_that_cannot_be_opened_leaves_nothing(fake_cuda, order):
    with Device("cuda") as device:
        device.queue(64).close()  # its pinned memory is kept, and too small for the next one
        error = refused(fake_cuda, order, device.queue)
        assert isinstance(error, OutOfMemory) == order.endswith("=2")
        assert "CUDA_ERROR_" in str(error)
        device.queue().close()


@pytest.mark.parametrize(
    "order",
    [
        "cuDevicePrimaryCtxRetain=2",
        "cuDevicePrimaryCtxRetain=999",
        "cuMemGetAllocationGranularity=1",
        "cuMemCreate=2",
        "cuDeviceGetAttribute=1",
        "cuDeviceGet=101",
    ],
)
def test_a_device_that_cannot_be_opened_leaves_nothing(fake_cuda, order):
    Device("cuda").close()
    error = refused(fake_cuda, order, lambda: Device("cuda"))
    assert isinstance(error, OutOfMemory) == order.endswith("=2")
    Device("cuda").close()


def test_a_full_gpu_has_no_room_for_a_device():
    program = """
import dgkit
try:
    dgkit.Device("cuda")
except dgkit.OutOfMemory as error:
    print(error)
"""
    assert "the GPU is out of memory" in run(program, DGKIT_FAKE_CUDA="total=1048576")


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("cuInit=100", "CUDA_VISIBLE_DEVICES"),
        ("cuInit=34", "stub"),
        ("cuInit=802", "nvidia-fabricmanager"),
        ("cuInit=803", "have different versions"),
        ("cuInit=804", "compatibility package"),
        ("cuInit=999", "dmesg"),
        ("cuDeviceGetCount=999", "CUDA_ERROR_UNKNOWN"),
        ("missing=cuMemcpy2DAsync", "has no cuMemcpy2DAsync of CUDA 3.2"),
        ("missing=cuStreamWriteValue32", "too old"),
    ],
)
def test_a_driver_that_cannot_be_used_says_what_to_do(order, words):
    program = """
import dgkit
from dgkit.dma import providers
try:
    dgkit.Device("cuda")
except dgkit.DeviceUnavailable as error:
    print(error)
found = {p.name: p for p in providers()}
print(found["cuda"].usable, found["cuda"].why)
with dgkit.Device() as device:
    print(device.provider)
"""
    said, listed, soft = run(program, DGKIT_FAKE_CUDA=order).splitlines()
    assert "no GPU can be used" in said
    assert words in said
    assert listed.startswith("False no GPU can be used")
    assert soft == "soft"


def test_memory_of_a_gpu_that_this_one_does_not_reach_is_named():
    other = """
import sys, dgkit
memory = dgkit.empty(4096, on="cuda:1")
with dgkit.Device() as device, device.register(memory) as region:
    print(region.export().hex(), flush=True)
    sys.stdin.readline()
"""
    program = """
import sys, dgkit
with dgkit.Device("cuda", gpu=0) as device:
    try:
        device.import_region(bytes.fromhex(sys.argv[1]), timeout=5)
    except dgkit.DgkitError as error:
        print(type(error).__name__, error)
"""
    with child(other, DGKIT_FAKE_CUDA="gpus=2") as host:
        said = run(program, host.line(), DGKIT_FAKE_CUDA="gpus=2,peer=0")
        assert said.startswith("Unsupported")
        assert "another GPU than this device's (GPU 0), which has no peer access to it" in said


@pytest.mark.parametrize("failing", ["cuStreamWriteValue32=1", "cuStreamQuery=999,copy_us=3000"])
@pytest.mark.parametrize("size", [8, 40_000])
def test_a_call_that_fails_beside_the_copies_loses_none_of_them(tokens, fake_cuda, failing, size):
    with (
        Device("cuda") as device,
        device.queue() as queue,
        device.import_region(tokens["vmm"], timeout=5) as remote,
        device.register(bytearray(b"z" * MIB)) as local,
        device.register(bytearray(MIB)) as back,
    ):
        for order in (failing, ""):
            fake_cuda.order(order)
            posted = [queue.write(local, remote, size=size, remote_offset=i) for i in range(10)]
            assert [t.wait(20).size for t in posted] == [size] * 10
            queue.read(back, remote, size=size, remote_offset=9).wait(20)
            assert back.memory[:size] == b"z" * size
            back.memory[:size] = bytes(size)
        queue.write(local, remote, size=8).wait(20)


def test_a_copy_that_is_refused_fails_alone(fake_cuda, tokens):
    with (
        Device("cuda") as device,
        device.queue() as queue,
        device.import_region(tokens["vmm"], timeout=5) as remote,
        device.register(bytearray(64)) as local,
    ):
        fake_cuda.order("cuMemcpyDtoHAsync=2")
        with pytest.raises(dgkit.TransferError, match="IO_FAILED"):
            queue.read(local, remote, size=64).wait(5)
        fake_cuda.order("")
        assert queue.read(local, remote, size=64).wait(5).size == 64


def test_a_sleeper_that_cannot_be_woken_looks_by_itself(fake_cuda, tokens):
    with (
        Device("cuda") as device,
        device.queue(spin_us=0) as queue,
        device.import_region(tokens["vmm"], timeout=5) as remote,
        device.register(bytearray(64)) as local,
    ):
        for order in ("cuLaunchHostFunc=999", "cuStreamWaitValue32=801"):
            fake_cuda.order(f"{order},copy_us=10000")
            assert queue.read(local, remote, size=64).wait(5).size == 64
