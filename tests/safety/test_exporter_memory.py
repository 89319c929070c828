# SPDX-License-Identifier: Apache-2.0
"""Copies hit the exporter's memory alone, also where another process has got its id."""

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


@contextlib.contextmanager
def exporter(memory):
    """Run a child that exports `memory`; yield its pid and the token."""
    out = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            device = dgkit.Device("soft")
            region = device.register(memory)
            os.write(out[1], region.export())
            signal.pause()
        os._exit(3)

    try:
        yield pid, os.read(out[0], 4096)
    finally:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for fd in out:
            os.close(fd)


def status_of(post):
    try:
        return post.wait(10).status
    except dgkit.DgkitError as error:
        return error.completion.status


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
            exporter(memory) as (pid, token),
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
