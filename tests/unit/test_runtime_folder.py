# SPDX-License-Identifier: Apache-2.0
"""The runtime folder: what Python and the C core, which both have sockets there, take for it."""

import os
import tempfile
from pathlib import Path

import pytest

from dgkit.dma._ffi import check, ffi, lib
from dgkit.errors import NativeError, PeerRefused
from dgkit.runtime_folder import runtime_dir


def _of_the_core() -> Path:
    text = ffi.new("char[]", 256)
    check(lib.dg_runtime_dir(text, 256))
    return Path(ffi.string(text).decode())


@pytest.fixture(params=[runtime_dir, _of_the_core], ids=["python", "core"])
def folder(request, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return request.param


def test_it_is_ours_alone(folder, tmp_path):
    found = folder()
    assert found == tmp_path / "dgkit"
    assert found.stat().st_mode & 0o777 == 0o700
    assert folder() == found


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_one_that_others_may_enter_is_refused(folder, mode):
    folder().chmod(mode)
    with pytest.raises(PeerRefused, match="must be a folder of this user with mode 0700"):
        folder()


def test_one_that_is_not_utf_8_is_refused(tmp_path, monkeypatch):
    """Addresses of sockets are text of messages."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", os.fsdecode(bytes(tmp_path) + b"/\xff"))
    with pytest.raises(NativeError, match=r"XDG_RUNTIME_DIR is b'.*/\\xff', which is not UTF-8"):
        runtime_dir()


def test_a_link_is_refused(folder, tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "dgkit").symlink_to(tmp_path / "real")
    with pytest.raises(PeerRefused, match=str(tmp_path / "dgkit")):
        folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_in_one_of_another_user_is_refused(folder, tmp_path):
    folder()
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(PeerRefused, match=f"XDG_RUNTIME_DIR is {tmp_path}, which belongs to user"):
        folder()


def test_a_file_is_refused(folder, tmp_path):
    (tmp_path / "dgkit").touch(mode=0o600)
    with pytest.raises(PeerRefused, match=str(tmp_path / "dgkit")):
        folder()


def test_one_that_cannot_be_created_is_an_error_that_says_what_to_set(folder, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/no-such-folder")
    with pytest.raises(NativeError, match=r"cannot create the runtime folder.*set XDG_"):
        folder()


@pytest.mark.parametrize("base", [None, "", "relative"])
def test_without_xdg_runtime_dir_it_is_a_folder_of_the_user_under_tmp(folder, monkeypatch, base):
    for name in ("XDG_RUNTIME_DIR", "TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    if base is not None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", base)
    monkeypatch.setattr(tempfile, "tempdir", None)  # what it found before
    assert str(folder()) == f"{tempfile.gettempdir()}/dgkit-{os.geteuid()}"
