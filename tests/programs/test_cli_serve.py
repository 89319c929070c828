# SPDX-License-Identifier: Apache-2.0
"""`dgkit serve` prints its address, serves, ends on a signal and leaves no file."""

import os
import shlex
import sys
from dataclasses import fields

import pytest
from support.processes import cli

import dgkit
from dgkit.agent import ServeOptions
from dgkit.cli import main
from dgkit.cli.serve_command import serve


@pytest.fixture
def home(tmp_path, monkeypatch):
    """This process and those it starts share a home of their own."""
    for name, value in cli.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("signal", ["SIGINT", "SIGTERM"])
def test_it_serves_until_it_is_told_to_end_and_leaves_nothing(signal, home):
    with cli.started(home, "serve", "--max-memory", "64M") as process:
        address = process.stdout.readline().strip()
        with dgkit.connect(address) as session:
            assert session.info["dpu"]["pid"] == process.pid
            assert session.info["dpu"]["max_memory"] == 64 << 20
            with session.empty(100) as region:
                session.write(region, b"hello", offset=7)
                assert session.read(region, 5, offset=7) == b"hello"
        cli.send(process, signal)
        out, err = cli.ended(process)
    assert process.returncode == 0
    assert not out
    assert f'dgkit.connect("{address}")' in err
    assert "Traceback" not in err
    assert err.endswith("dgkit serve: stopped\n")
    assert not cli.files_under(home)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--provider", "softdoca"), "Role dpu: provider softdoca, software DPU, softdoca."),
        (("--provider", "soft"), "Role dpu: provider soft, software DPU."),
        (("--role", "host"), "Role host: provides memory."),
    ],
)
def test_it_says_what_moves_the_bytes(options, says, home):
    with cli.started(home, "serve", *options) as process:
        process.stdout.readline()
        cli.send(process, "SIGTERM")
        _, err = cli.ended(process)
    assert says in err


def test_a_process_that_does_not_end_when_it_should_is_told_with_its_stacks(home):
    with cli.started(home, "serve") as process:
        process.stdout.readline()
        with pytest.raises(AssertionError, match=r"(?s)within 0.1 s.*server\.py.* in run"):
            cli.ended(process, seconds=0.1)


def test_tcp_without_keys_is_refused_with_the_way_to_make_them(home):
    done = cli.run(home, "serve", "--address", "tcp://127.0.0.1:0")
    assert done.returncode == 2
    assert "dgkit keys make" in done.stderr
    assert not done.stdout
    assert len(done.stderr.strip().splitlines()) == 1


def test_tcp_takes_a_free_port_and_lets_in_who_has_a_key(home, capsys):
    assert main(["keys", "make"]) == 0
    public = capsys.readouterr().out.strip()
    assert main(["keys", "allow", public]) == 0
    with cli.started(home, "serve", "--address", "tcp://127.0.0.1:0") as process:
        address = process.stdout.readline().strip()
        assert not address.startswith("tcp://127.0.0.1:0")
        assert public in address
        with dgkit.connect(address) as session:
            assert session.stats()
        cli.send(process, "SIGINT")
        cli.ended(process)
    assert process.returncode == 0


@pytest.mark.parametrize(
    "address", ["http://here", "ipc://relative", "tcp://host", "tcp://h:99999"]
)
def test_a_wrong_address_is_wrong_usage(address, home):
    done = cli.run(home, "serve", "--address", address)
    assert done.returncode == 2
    assert "ipc://" in done.stderr or "tcp://" in done.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--provider", "nope"), "'nope' is not one of: soft, cuda, verbs, doca, softdoca"),
        (("--keys", "../../etc/passwd"), "keys is '../../etc/passwd'; it is for tcp:// addresses"),
        (
            ("--max-memory", "1", "--max-client-memory", "1T"),
            "max_client_memory is 1,099,511,627,776 bytes; it must be at most max_memory, which",
        ),
    ],
)
def test_wrong_options_are_wrong_usage(capsys, options, says):
    assert main(["serve", *options]) == 2
    assert says in capsys.readouterr().err


def test_the_unit_runs_this_command_with_these_options(capsys):
    assert main(["serve", "--print-unit", "--max-memory", "1G", "--role", "host"]) == 0
    text = capsys.readouterr().out
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(line.removeprefix("ExecStart="))
    assert os.access(words[0], os.X_OK)
    safe_path = ["-P"] if sys.version_info >= (3, 11) else []
    at = len(safe_path) + 4
    assert words[1:at] == [*safe_path, "-m", "dgkit.cli", "serve"]
    options = dict(zip(words[at::2], words[at + 1 :: 2], strict=True))
    assert options == {"--role": "host", "--provider": "soft", "--max-memory": str(1 << 30)}


def test_without_options_it_has_the_defaults_of_the_agent():
    given = serve.make_context("serve", []).params
    del given["print_unit"]
    assert {*given} == {field.name for field in fields(ServeOptions)} - {"rules"}
    assert ServeOptions(**given) == ServeOptions()
