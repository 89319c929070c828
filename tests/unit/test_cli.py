# SPDX-License-Identifier: Apache-2.0
"""The `dgkit` command: help, exit codes, one line for an error, nothing odd in a pipe."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from support.processes import cli

import dgkit
from dgkit import errors
from dgkit.cli import app, exit_codes, main

COMMANDS = ["demo", "info", "doctor", "serve", "lab", "bench", "keys", "softdoca"]


def failing(monkeypatch, error):
    """Makes `dgkit info` raise."""

    @click.command()
    def info():
        raise error

    monkeypatch.setattr("dgkit.cli.info_command.info", info)


def test_help_names_every_command_and_every_exit_code(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert f"  {name} " in text
    assert "DOCA" in text.split("Options:")[0]
    for code in (0, 1, 2, 3, 4, 130, 143):
        assert str(code) in text.split("Exit codes:")[1]


def test_the_man_page_has_every_command_and_every_exit_code():
    page = (Path(app.__file__).parent / "dgkit.1").read_text(encoding="utf-8").replace("\\-", "-")
    for name, summary in app._COMMANDS.items():
        assert f".TP\n.B {name}\n{summary}\n" in page
    for line in exit_codes.EXIT_CODES.splitlines():
        code, meaning = re.split(r"(?<=\d) {2,}", line)
        assert f".TP\n.B {code}\n{meaning[0].upper()}{meaning[1:]}\n" in page


def test_python_m_dgkit_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "dgkit", "--version"], capture_output=True, text=True, check=False,
        cwd=Path(dgkit.__file__).parent.parent,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, f"dgkit {dgkit.__version__}\n"), done.stderr


def test_help_loads_no_command_and_nothing_heavy():
    program = (
        "import sys; from dgkit.cli import main; main(['--help']); "
        "print([m for m in sys.modules if m.startswith('dgkit.cli.') or m in "
        "('rich', 'numpy', 'zmq', 'msgspec', 'dgkit.dma', 'dgkit.session')], file=sys.stderr)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stderr.strip() == "['dgkit.cli.exit_codes', 'dgkit.cli.app']"


@pytest.mark.parametrize("args", [
    ["nope"], ["demo", "--nope"], ["demo", "a", "b"], ["keys", "make", "/"],
    ["keys", "allow", "ab" * 32, "--name", "x" * 65],
    ["doctor", "--try", "--peer", "zz"],
    ["nccl", "env", "--dpu", "tcp://10.0.0.1:1"],
    ["softdoca", "run", "--devices", "/dev/zero", "--", "true"],
    ["teach", "check", __file__],
    ["teach", "board", ".", "lab1"],
    ["bench", "--json", "/no-folder/file"],
])  # fmt: skip
def test_wrong_usage_is_exit_code_2_and_says_so_on_stderr(args, capsys):
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert len(err.splitlines()) == 1
    assert "--help`" in err
    assert not out


@pytest.mark.parametrize("command", ["softdoca compare", "doctor --from", "teach check"])
def test_the_name_of_a_file_does_not_control_the_terminal(command, tmp_path, capsys):
    path = tmp_path / "a\x1b]0;owned\x07\u202e"
    path.write_text("{}")
    assert main([*command.split(), str(path)]) in (1, 2)
    err = capsys.readouterr().err
    assert r"a\x1b]0;owned\x07\u202e" in err
    assert err.rstrip("\n").isprintable()


def test_without_a_command_it_says_what_there_is(capsys):
    assert main([]) == 2
    assert "demo" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.DeviceUnavailable(19, "no such device"), 3),
        (errors.Unsupported(95, "not by soft"), 3),
        (errors.PeerLost("it is gone"), 4),
        (errors.PeerRefused("no key"), 4),
        (errors.PeerTimeout("silent"), 4),
        (errors.PeerVersion("it speaks 2"), 4),
        (errors.OutOfMemory(12, "4 GiB"), 1),
        (errors.BoundsError("too far"), 1),
        (PermissionError(13, "Permission denied", "/a/file"), 1),
        (ZeroDivisionError("division by zero"), 1),
        (ImportError("no core"), 1),
        (KeyboardInterrupt(), 130),
        (app.Terminated(), 143),
    ],
)
def test_each_error_has_its_exit_code_and_no_traceback(error, code, monkeypatch, capsys):
    failing(monkeypatch, error)
    assert main(["info"]) == code
    out, err = capsys.readouterr()
    assert not out
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == (0 if code == 143 else 1)


@pytest.mark.parametrize(
    ("ended", "code", "said"),
    [(KeyboardInterrupt, 130, "\ndgkit: stopped\n"), (app.Terminated, 143, "")],
)
def test_what_fails_while_all_is_closed_hides_neither_ctrl_c_nor_sigterm(
    ended, code, said, monkeypatch, capsys
):
    @click.command()
    def info():
        try:
            raise ended
        finally:
            try:
                raise errors.RegionBusy(16, "a transfer is in flight")
            finally:
                raise errors.PeerLost("the agent is gone")

    monkeypatch.setattr("dgkit.cli.info_command.info", info)
    assert main(["info"]) == code
    assert capsys.readouterr() == ("", said)


def test_an_error_says_what_went_wrong_and_what_to_do(monkeypatch, capsys):
    failing(monkeypatch, errors.DeviceUnavailable(19, "doca: no BlueField here"))
    main(["info"])
    err = capsys.readouterr().err
    assert err.startswith("dgkit: doca: no BlueField here. Hint: `dgkit doctor`")


def test_a_system_error_names_its_file_and_no_errno():
    text = exit_codes.explain(PermissionError(13, "Permission denied", "/a/file"))
    assert text == "/a/file: Permission denied"


@pytest.mark.parametrize("args", [["--traceback", "info"], ["info", "--traceback"]])
def test_traceback_is_there_for_those_who_ask(args, monkeypatch, capsys):
    failing(monkeypatch, ZeroDivisionError("division by zero"))
    assert main(args) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "Hint" in err.splitlines()[-1]


def test_a_defect_says_how_to_see_where(monkeypatch, capsys):
    failing(monkeypatch, ZeroDivisionError("division by zero"))
    main(["info"])
    assert "ZeroDivisionError: division by zero. Hint: --traceback" in capsys.readouterr().err


def test_sigterm_s_handler_is_put_back():
    import signal

    before = signal.getsignal(signal.SIGTERM)
    main(["--version"])
    assert signal.getsignal(signal.SIGTERM) is before


def test_it_also_runs_as_a_module():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "dgkit.cli", "--version"],
        capture_output=True, text=True, env=environment, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("dgkit ")


@pytest.mark.parametrize("args", [["info"], ["info", "--json"], ["--help"]])
def test_a_reader_that_goes_away_is_no_defect(args, tmp_path):
    with cli.started(tmp_path, *args) as process:
        process.stdout.close()
        error = process.stderr.read()
        assert process.wait(30) == 0
    assert not error


def test_info_in_a_pipe_is_plain_text(tmp_path):
    done = cli.run(tmp_path, "info")
    assert "\x1b" not in done.stdout + done.stderr
    assert "software DPU" in done.stdout


def test_info_says_of_each_provider_whether_and_why_not(tmp_path):
    done = cli.run(tmp_path, "info", "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 0
    found = {provider["name"]: provider for provider in facts["providers"]}
    assert found["soft"]["usable"]
    assert found["soft"]["label"] == "software DPU"
    assert all(provider["why"] for provider in found.values() if not provider["usable"])
    assert facts["limits"]["runtime_dir"].startswith(str(tmp_path))


def test_info_shows_a_core_that_does_not_load_and_exits_3(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "dgkit.dma", None)
    monkeypatch.delitem(vars(dgkit), "dma", raising=False)
    assert main(["info"]) == 3
    assert "does not load" in capsys.readouterr().out
    assert main(["info", "--json"]) == 3
    facts = json.loads(capsys.readouterr().out)
    assert facts["core"]["loaded"] is False
    assert facts["core"]["why"]
    assert facts["machine"]["cpu"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["dem"], "dgkit: No such command 'dem'. Did you mean 'demo'? See `dgkit --help`\n"),
        (["--versio"], "Did you mean '--version'? See `dgkit --help`\n"),
        (
            ["demo", "--provider", "foo"],
            "'foo' is not one of: soft, cuda, verbs, softdoca, doca. See",
        ),
        (["info", "--address", "tcp://127.0.0.1:1"], "has no key: use tcp://HOST:PORT?key=KEY"),
    ],
)
def test_a_typing_error_is_wrong_usage_and_says_what_was_meant(capsys, arguments, says):
    assert main(arguments) == 2
    assert says in capsys.readouterr().err
