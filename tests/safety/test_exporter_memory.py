"""Copies hit the exporter's memory alone, and memory that it unmapped ends as an error."""

import contextlib
import ctypes
import errno
import mmap
import os
import signal

import pytest

import dgkit
from dgkit import Status

SIZE = 1 << 20
CLONE3 = 435  # on every architecture
libc = ctypes.CDLL(None, use_errno=True)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@contextlib.contextmanager
def exporter(memory, then=lambda: None):
    """Run a child that exports `memory`; yield its pid, the token and a function that goes on."""
    out, gone = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            device = dgkit.Device("soft")
            region = device.register(memory)
            os.write(out[1], region.export())
            os.read(gone[0], 1)
            then()
            os.write(out[1], b"!")
            signal.pause()
        os._exit(3)

    def go_on():
        os.write(gone[1], b"x")
        assert os.read(out[0], 1) == b"!"

    try:
        yield pid, os.read(out[0], 4096), go_on
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for fd in (*out, *gone):
            os.close(fd)


def status_of(post):
    try:
        return post.wait(10).status
    except dgkit.DgkitError as error:
        return error.completion.status


@pytest.mark.parametrize("way", ["vm", "proxy"])
@pytest.mark.parametrize("how", ["munmap", "mprotect"])
@pytest.mark.parametrize("size", [64, SIZE])
def test_memory_unmapped_behind_a_region_ends_as_an_error_and_nobody_dies(
    monkeypatch, way, how, size
):
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def spoil():
        call = libc.munmap if how == "munmap" else lambda *span: libc.mprotect(*span, 0)
        assert call(at, SIZE) == 0

    if way == "proxy":
        monkeypatch.setenv("DGKIT_NO_PROCESS_VM", "1")
    with (
        exporter(memory, spoil) as (pid, token, go_on),
        dgkit.Device("soft") as device,
        device.import_region(token) as remote,
        device.register(bytearray(SIZE)) as local,
    ):
        if str(remote.method) != way:
            pytest.skip(f"the method is {remote.method}")
        with device.queue(depth=4) as queue:
            assert status_of(queue.write(local, remote, size=size)) is Status.OK
            go_on()
            for post in (queue.write, queue.read):
                status = status_of(post(local, remote, size=size))
                assert status is Status.REMOTE_ACCESS_ERROR
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)


def successor(pid):
    """Fork a child with the process id `pid`, by clone3 with set_tid.

    Returns:
        False if another process took the id first.

    Raises:
        OSError: process ids cannot be chosen here.
    """
    wanted = ctypes.c_int32(pid)
    arguments = (ctypes.c_uint64 * 11)()  # struct clone_args of linux/sched.h
    arguments[4], arguments[8], arguments[9] = signal.SIGCHLD, ctypes.addressof(wanted), 1
    python = ctypes.PyDLL(None, use_errno=True)
    child = python.syscall(CLONE3, arguments, ctypes.c_size_t(ctypes.sizeof(arguments)))
    if child == 0:
        signal.pause()
        os._exit(0)
    if child < 0 and ctypes.get_errno() != errno.EEXIST:
        raise OSError(ctypes.get_errno(), "clone3 with set_tid")
    return child == pid


def test_a_process_that_got_the_exporters_pid_is_never_written():
    memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    reused = 0
    for number in range(24):
        size = (4096, SIZE)[number % 2]
        with (
            exporter(memory) as (pid, token, _),
            dgkit.Device("soft") as device,
            device.import_region(token) as remote,
            device.register(bytearray(b"x") * SIZE) as local,
        ):
            if str(remote.method) != "vm":
                pytest.skip(f"the method is {remote.method}")
            with device.queue(depth=64, path="worker") as queue:
                posted = [queue.write(local, remote, size=size) for _ in range(60)]
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                try:
                    same = successor(pid)
                except OSError:
                    pytest.skip("process ids cannot be chosen here")
                with contextlib.suppress(dgkit.DgkitError):
                    posted += [queue.write(local, remote, size=size) for _ in range(4)]
                assert {status_of(post) for post in posted} <= {Status.OK, Status.PEER_LOST}
                if same:
                    reused += 1
                    with open(f"/proc/{pid}/mem", "rb") as file:  # noqa: PTH123
                        file.seek(at)
                        assert file.read(SIZE) == bytes(SIZE)
    assert reused > 0
