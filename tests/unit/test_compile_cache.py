# SPDX-License-Identifier: Apache-2.0
"""The cache of compiled kernels, whose files are executed."""

import os
import shutil
import subprocess

import pytest

from dgkit.errors import AccessDenied
from dgkit.gpu_initiated import compiler

SOURCE = "__global__ void kernel() {}"
# Writes a program for each call, and counts the calls: three for a source. Preprocessing prints the
# headers.
FAKE = """#!/bin/sh
case " $* " in *" -E "*) cat >/dev/null; exec cat "{headers}"/*.cuh;; esac
while [ "$1" != -o ]; do shift; done
echo >> "{log}"
printf '#!/bin/sh\\necho compiled' > "$2"
chmod 755 "$2"
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the cache's folder, which does not exist; a fake compiler fills it."""
    program = tmp_path / "cxx"
    program.write_text(FAKE.format(log=tmp_path / "log", headers=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("CXX", str(program))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/dgkit/emulated_gpu"


def _compiled(cache):
    return (cache.parents[2] / "log").read_text().count("\n") // 3


def _output(program):
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def test_a_source_is_compiled_once(cache):
    before = os.umask(0)
    try:
        first = compiler.compile_program(SOURCE)
        assert compiler.compile_program(SOURCE) == first
    finally:
        os.umask(before)
    assert compiler.compile_program(f"{SOURCE} ") != first
    assert _compiled(cache) == 2
    assert cache.stat().st_mode & 0o777 == first.stat().st_mode & 0o777 == 0o700
    assert len([*cache.iterdir()]) == 2


def test_a_source_is_compiled_again_once_a_header_of_its_options_has_changed(cache, tmp_path):
    header = tmp_path / "some.cuh"
    options = [f"-I{tmp_path}"]
    for text in ("int one;", "int one;", "int two;"):
        header.write_text(text)
        compiler.compile_program(SOURCE, options=options)
    assert _compiled(cache) == 2


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_to_is_refused(cache, mode):
    compiler.compile_program(SOURCE)
    cache.chmod(mode)
    with pytest.raises(AccessDenied, match=r"emulated_gpu is writable by other users, or not"):
        compiler.compile_program(SOURCE)


def test_a_folder_of_another_user_is_refused(cache, monkeypatch):
    compiler.compile_program(SOURCE)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(AccessDenied, match="not yours"):
        compiler.compile_program(SOURCE)


def _appended(program):
    program.write_text(f"{program.read_text()}; echo changed")


def _truncated(program):
    os.truncate(program, 10)


def _a_link(program):
    other = program.with_name("other")
    program.rename(other)
    program.symlink_to(other)


def _with_a_second_name(program):
    program.with_name("other").hardlink_to(program)


def _writable_by_others(program):
    program.chmod(0o777)


CHANGES = [_appended, _truncated, _a_link, _with_a_second_name, _writable_by_others]


@pytest.mark.parametrize("change", CHANGES)
def test_a_program_that_is_not_as_it_was_compiled_is_compiled_again(cache, change):
    change(compiler.compile_program(SOURCE))
    program = compiler.compile_program(SOURCE)
    assert _output(program) == "compiled\n"
    assert _compiled(cache) == 2
    assert compiler.compile_program(SOURCE) == program
    assert _compiled(cache) == 2


def test_a_program_under_the_name_of_another_source_is_not_run(cache):
    """Whoever could once write to the folder could rename what lies in it."""
    first = compiler.compile_program(SOURCE)
    second = compiler.compile_program(f"{SOURCE} ")
    stolen = second.with_name(f"{second.name.partition('-')[0]}-{first.name.partition('-')[2]}")
    second.unlink()
    shutil.copy(first, stolen)
    assert compiler.compile_program(f"{SOURCE} ") == second
    assert not stolen.exists()
