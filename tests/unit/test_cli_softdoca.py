# SPDX-License-Identifier: Apache-2.0
"""`dgkit softdoca`: what a shell gets, programs run in its environment, the samples' sources."""

import importlib.util
import json
import os
import resource
import signal
import subprocess
from pathlib import Path

import pytest
from support.doca.libraries import HOME
from support.processes import cli

from dgkit.cli import main


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("SOFTDOCA_SIDE", "SOFTDOCA_LIB", "PKG_CONFIG_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)


def in_a_shell(text, *, before="", after="env"):
    """What `after` prints once a shell has evaluated the text, as its users do."""
    script = f'{before}\neval "$TEXT"\n{after}'
    done = subprocess.run(
        ["sh", "-eu", "-c", script], env={"TEXT": text, "PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_env_gives_a_shell_all_it_needs_and_says_that_it_is_software(capsys):
    assert main(["softdoca", "env"]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert "no BlueField" in out.splitlines()[0]
    lines = in_a_shell(out).splitlines()
    assert f"PKG_CONFIG_PATH={HOME}/lib/pkgconfig" in lines
    assert f"LD_LIBRARY_PATH={HOME}/lib:{HOME}/lib/ibverbs" in lines
    assert f"DOCA_SDK_LIB_PATH={HOME}/lib/sdk" in lines
    assert "SOFTDOCA_SIDE=both" in lines


def test_env_keeps_what_the_paths_held_behind_its_own(capsys):
    main(["softdoca", "env"])
    before = "export LD_LIBRARY_PATH='/a b:/c' PKG_CONFIG_PATH=/d"
    lines = in_a_shell(capsys.readouterr().out, before=before).splitlines()
    assert f"LD_LIBRARY_PATH={HOME}/lib:{HOME}/lib/ibverbs:/a b:/c" in lines
    assert f"PKG_CONFIG_PATH={HOME}/lib/pkgconfig:/d" in lines


@pytest.mark.parametrize("api", ["1.3", "2.2"])
def test_env_finds_the_modules_of_a_release(api, capsys):
    assert main(["softdoca", "env", "--api", api]) == 0
    lines = in_a_shell(capsys.readouterr().out).splitlines()
    assert f"PKG_CONFIG_PATH={HOME}/lib/doca-{api}/pkgconfig" in lines
    main(["softdoca", "env", "--api", api, "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["environment"]["PKG_CONFIG_PATH"].startswith(f"{HOME}/lib/doca-{api}/pkgconfig")
    assert facts["include"] == f"{HOME}/include/workq"


@pytest.mark.parametrize("side", ["host", "dpu", "both"])
def test_env_names_the_side(side, capsys):
    assert main(["softdoca", "env", "--side", side]) == 0
    assert f"SOFTDOCA_SIDE={side}\n" in in_a_shell(capsys.readouterr().out)


def test_the_side_comes_from_the_environment_where_none_is_said(monkeypatch, capsys):
    monkeypatch.setenv("SOFTDOCA_SIDE", "dpu")
    main(["softdoca", "env"])
    assert "SOFTDOCA_SIDE=dpu\n" in capsys.readouterr().out


def test_a_side_that_there_is_not_is_wrong_usage(monkeypatch, capsys):
    assert main(["softdoca", "env", "--side", "gpu"]) == 2
    monkeypatch.setenv("SOFTDOCA_SIDE", "gpu")
    assert main(["softdoca", "env"]) == 2
    assert capsys.readouterr().err.count("'gpu' is not one of") == 2


def test_a_folder_with_a_quote_and_a_space_in_its_name_comes_whole(tmp_path, monkeypatch, capsys):
    odd = tmp_path / "it's $HOME"
    (odd / "lib").mkdir(parents=True)
    (odd / "lib/libdoca_common.so.3").touch()
    monkeypatch.setenv("SOFTDOCA_LIB", str(odd / "lib"))
    assert main(["softdoca", "env"]) == 0
    assert f"LD_LIBRARY_PATH={odd}/lib:{odd}/lib/ibverbs\n" in in_a_shell(capsys.readouterr().out)


def test_json_is_nothing_but_json_and_the_same_environment(monkeypatch, capsys):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    assert main(["softdoca", "env", "--json", "--side", "host"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["provider"] == "softdoca"
    assert facts["side"] == facts["environment"]["SOFTDOCA_SIDE"] == "host"
    assert facts["environment"]["LD_LIBRARY_PATH"] == "{0}:{0}/ibverbs:/mine".format(facts["lib"])
    assert (Path(facts["include"]) / "doca_dma.h").exists()


def test_an_installation_without_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr("dgkit.files.__file__", str(tmp_path / "files.py"))
    assert main(["softdoca", "env"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert f"softdoca is not in {tmp_path}" in err
    assert "pip install" in err


def test_a_folder_without_it_is_named_with_its_variable(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SOFTDOCA_LIB", str(tmp_path))
    assert main(["softdoca", "env"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert f"SOFTDOCA_LIB is '{tmp_path}'" in err


def test_run_gives_the_program_its_arguments_and_the_environment(tmp_path):
    devices = tmp_path / "devices.conf"
    devices.touch()
    given = ["--side", "dpu", "--devices", "devices.conf", "--faults", "error every=10"]
    shown = 'echo "$SOFTDOCA_SIDE|$SOFTDOCA_DEVICES|$SOFTDOCA_FAULTS|$LD_LIBRARY_PATH|$*"'
    done = cli.run(
        tmp_path, "softdoca", "run", *given, "--", "sh", "-c", shown, "sh", "--side", "-x", "a b",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    paths = f"{HOME}/lib:{HOME}/lib/ibverbs"
    assert done.stdout == f"dpu|{devices}|error every=10|{paths}|--side -x a b\n"


@pytest.mark.parametrize("code", [0, 1, 77])
def test_run_ends_with_the_program_s_exit_code(code, tmp_path):
    done = cli.run(tmp_path, "softdoca", "run", "--", "sh", "-c", f"exit {code}")
    assert done.returncode == code


def test_run_is_the_program_s_own_process_so_signals_reach_it(tmp_path):
    script = "echo $$; exec cat"
    with cli.started(
        tmp_path, "softdoca", "run", "--", "sh", "-c", script, stdin=subprocess.PIPE
    ) as process:
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM


def test_run_hands_on_no_signal_that_python_ignores(tmp_path):
    done = cli.run(tmp_path, "softdoca", "run", "--", "grep", "SigIgn", "/proc/self/status")
    ignored = int(done.stdout.split()[1], 16)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        assert not ignored >> (number - 1) & 1


def test_a_program_that_is_not_there_is_127(tmp_path):
    done = cli.run(tmp_path, "softdoca", "run", "--", "./nowhere")
    assert done.returncode == 127
    assert done.stderr == "dgkit: ./nowhere: no such program\n"


def test_a_program_of_this_folder_without_its_folder_is_127_and_named_right(tmp_path):
    (tmp_path / "mine").touch(mode=0o755)
    done = cli.run(tmp_path, "softdoca", "run", "--", "mine", cwd=tmp_path)
    assert done.returncode == 127
    assert done.stderr == "dgkit: mine: no such program on PATH; did you mean ./mine?\n"


def test_a_file_that_cannot_be_run_is_126(tmp_path):
    (tmp_path / "data").write_text("no program")
    done = cli.run(tmp_path, "softdoca", "run", "--", "./data", cwd=tmp_path)
    assert done.returncode == 126
    assert done.stderr == "dgkit: ./data: Permission denied\n"
    (tmp_path / "data").chmod(0o700)
    done = cli.run(tmp_path, "softdoca", "run", "--", "./data", cwd=tmp_path)
    assert done.returncode == 126
    assert done.stderr == "dgkit: ./data: not a program for this machine\n"


@pytest.mark.parametrize("args", [[], ["--"], ["--devices", "/nowhere", "--", "true"]])
def test_run_without_a_program_or_with_no_such_file_is_wrong_usage(args, capsys):
    assert main(["softdoca", "run", *args]) == 2
    assert "--help`" in capsys.readouterr().err


def test_samples_are_copied_whole(tmp_path, capsys):
    folder = tmp_path / "new" / "samples"
    assert main(["softdoca", "samples", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{folder}\n"
    assert "make -C" in err
    names = {path.name for path in folder.iterdir()}
    assert {"Makefile", "sample.h", "local_copy.c", "remote_copy_sender.c"} <= names
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert folder / "doca-1.3" / "dma_local_copy.c" in files
    for path in files:
        assert path.read_bytes() == (HOME / "samples" / path.relative_to(folder)).read_bytes()


def test_samples_overwrite_nothing(tmp_path, capsys):
    (tmp_path / "local_copy.c").write_text("mine")
    assert main(["softdoca", "samples", str(tmp_path)]) == 2
    assert "local_copy.c" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["local_copy.c"]
    assert (tmp_path / "local_copy.c").read_text() == "mine"


@pytest.mark.parametrize("exists", [True, False])
def test_samples_that_cannot_be_written_leave_nothing(exists, tmp_path, capsys):
    folder = tmp_path / "samples"
    if exists:
        folder.mkdir()
        (folder / "mine").touch()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))  # an error as of a full disk
    try:
        assert main(["softdoca", "samples", str(folder)]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "File too large" in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["samples", "mine"] * exists
    assert main(["softdoca", "samples", str(folder)]) == 0
