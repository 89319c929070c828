"""Traces of DOCA's calls: what the recorder writes, and that a replay finds what was changed."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.doca.libraries import HOME
from support.processes import cli

from dgkit.cli import main

SOURCE = Path(__file__).parents[1] / "support/doca/recorded.c"
FLAGS = ["-std=gnu11", "-Wall", "-Werror", "-g", f"-I{HOME}/include", f"-L{HOME}/lib"]
LIBRARIES = ["-ldoca_dma", "-ldoca_common"]
ENVIRONMENT = {"LD_LIBRARY_PATH": f"{HOME}/lib", "SOFTDOCA_SIDE": "both"}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("recorded") / "recorded"
    subprocess.run(["cc", *FLAGS, "-o", path, SOURCE, *LIBRARIES], check=True)
    return path


def recorded(program, trace, *args, **more):
    command = cli.command("softdoca", "record", "-o", trace, "--", program, *args)
    done = subprocess.run(
        command, env=os.environ | ENVIRONMENT | more, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    return done, [json.loads(line) for line in trace.read_text().splitlines()]


@pytest.fixture(scope="module")
def lines(program, tmp_path_factory):
    """The lines of a trace of the program."""
    done, lines = recorded(program, tmp_path_factory.mktemp("trace") / "trace")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    return lines


def written(lines, path):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_trace_has_each_call_with_its_callbacks_and_a_header(lines):
    assert lines[0]["trace"] == 1
    assert lines[0]["softdoca"] is True
    assert lines[0]["machine"]["side"] == "both"
    assert "end" in lines[-1]
    called = [line["f"] for line in lines if "call" in line]
    assert called[0] == "doca_devinfo_create_list"
    assert called[-1] == "doca_dev_close"
    callbacks = [line["f"] for line in lines if "callback" in line]
    assert callbacks.count("doca_dma_task_memcpy_completion_cb_t") == 3
    assert callbacks.count("doca_ctx_state_changed_callback_t") == 2


def test_a_trace_has_no_text_address_or_name_of_the_machine(lines):
    text = json.dumps(lines[1:])
    for secret in ("mlx5_0", "03:00.0", os.uname().nodename, str(Path.home()), "0x", "1234567"):
        assert secret not in text


def test_softdoca_is_no_different_from_itself(lines, tmp_path, capsys):
    path = written(lines, tmp_path / "trace")
    assert main(["softdoca", "compare", str(path)]) == 0
    assert "no difference" in capsys.readouterr().out
