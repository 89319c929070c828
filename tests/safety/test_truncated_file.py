# SPDX-License-Identifier: Apache-2.0
"""A mapped file that somebody truncates: an error, and no SIGBUS."""

import mmap
import os
import resource

import pytest
from support.dma import rig

from dgkit import Status
from dgkit.errors import TransferError

SIZE = 1 << 20


@pytest.fixture
def mapped(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"f" * SIZE)
    with path.open("r+b") as file:
        view = mmap.mmap(file.fileno(), SIZE)
        yield file, view
        view.close()


@pytest.mark.parametrize("path", ["auto", "inline", "worker"])
@pytest.mark.parametrize("op", ["write", "read"])
def test_a_remote_file_truncated_is_a_remote_access_error(mapped, path, op):
    file, view = mapped
    with rig(path=path, size=SIZE) as r, r.device.register(view) as target:
        remote = r.device.import_region(target.export())
        post = getattr(r.queue, op)
        assert post(r.local, remote, size=64).wait(5).status is Status.OK
        file.truncate(4096)
        assert post(r.local, remote, size=4096).wait(5).status is Status.OK
        with pytest.raises(TransferError) as info:
            post(r.local, remote).wait(5)
        assert info.value.completion.status is Status.REMOTE_ACCESS_ERROR
        rows = {"size": 4, "rows": 3, "local_stride": 4, "remote_stride": 8192}
        with pytest.raises(TransferError):
            r.queue.write_2d(r.local, remote, **rows).wait(5)
        remote.close()


def test_a_file_truncated_under_a_running_copy_gives_an_error_or_all_of_it(tmp_path):
    path, size = tmp_path / "large", 1 << 27
    with path.open("w+b") as file:
        file.truncate(size)
        with (
            mmap.mmap(file.fileno(), size) as view,
            rig(size=size, path="worker") as r,
            r.device.register(view) as local,
        ):
            transfer = r.queue.read(local, r.remote)
            file.truncate(0)
            with pytest.raises(TransferError, match="LOCAL_ERROR"):
                transfer.wait(30)


def test_a_copy_without_a_free_descriptor_is_no_access_error(mapped):
    """The kernel refused it and a pipe, which shows why, cannot be opened: the cause is unknown."""
    file, view = mapped
    with rig(size=SIZE) as r, r.device.register(view) as local:
        statuses = []

        def write():
            try:
                statuses.append(r.queue.write(local, r.remote, size=64).wait(5).status)
            except TransferError as error:
                statuses.append(error.completion.status)

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            write()
            file.truncate(0)
            write()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        write()
        assert statuses == [Status.OK, Status.IO_FAILED, Status.LOCAL_ERROR]
