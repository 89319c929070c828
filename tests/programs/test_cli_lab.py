# SPDX-License-Identifier: Apache-2.0
"""`dgkit lab`: JupyterLab on 127.0.0.1 only, its software DPU, and nothing left behind."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from support.processes import cli

import dgkit
from dgkit.cli import lab_command, main
from dgkit.cli.lab_command import own_port
from dgkit.installation import install_command
from dgkit.runtime_folder import runtime_folder

KERNEL = """
import os, dgkit
with dgkit.connect(os.environ["DGKIT_ADDRESS"]) as session, session.empty(64) as region:
    session.write(region, b"from a notebook")
    print(session.read(region, 15), session.owned_pid)
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """This process and those it starts share a home of their own."""
    for name, value in cli.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def get(port, path, token="", method="GET", body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": f"token {token}"} if token else {}
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text or b"null")


def ready(process):
    """What it says of itself, once it serves."""
    told = json.loads(process.stdout.readline())
    told["token"] = parse_qs(urlsplit(told["url"]).query)["token"][0]
    return told


def family(pid):
    """The process's children, theirs, and so on: also those in sessions of their own."""
    found = cli.children_of(pid)
    return [*found, *(below for child in found for below in family(child))]


def left_by(home):
    return [path for path in cli.files_under(home / "run") if "/nb" not in path]


NEWS = "@jupyterlab/apputils-extension:notification"


def end(process, home, name):
    """End it by a signal; all that it started goes with it. What it said on stderr."""
    below = family(process.pid)
    cli.send(process, name)
    out, err = cli.ended(process, 60)
    assert process.returncode == (130 if name == "SIGINT" else 143), err
    assert not out
    cli.until(lambda: not any(map(cli.alive, below)))
    assert not left_by(home)
    assert not list((home / "run").rglob("lab-*"))
    return err


def test_it_serves_a_kernel_that_reaches_the_dpu_until_it_is_told_to_end(home):
    with cli.started(home, "lab", "--json", "--no-browser", "--port", "0") as process:
        told = ready(process)
        assert get(told["port"], "/api/status", told["token"])[0] == 200
        assert get(told["port"], "/api/status")[0] == 403
        assert told["folder"] == str(home / "notebooks")
        settings = f"/lab/api/settings/{NEWS}"
        schema = get(told["port"], settings, told["token"])[1]["schema"]
        assert schema["properties"]["fetchNews"]["default"] == "false"
        kernel = get(told["port"], "/api/kernels", told["token"], "POST", "{}")
        assert kernel[0] == 201
        with dgkit.connect(told["agent"]) as session:
            assert session.info["dpu"]["pid"] in family(process.pid)
        served = next(
            pid for pid in cli.children_of(process.pid)
            if b"dgkit.jupyter.lab_server" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )  # fmt: skip
        pairs = Path(f"/proc/{served}/environ").read_bytes().split(b"\0")
        environment = dict(os.fsdecode(pair).split("=", 1) for pair in pairs if pair)
        assert environment["DGKIT_ADDRESS"] == told["agent"]
        done = subprocess.run(
            [sys.executable, "-c", KERNEL],
            env=environment, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        assert done.stdout == "b'from a notebook' 0\n"
        assert len(family(process.pid)) >= 3  # JupyterLab, a kernel, the software DPU
        end(process, home, "SIGTERM")


def test_killed_it_takes_all_with_it_and_the_next_one_clears_its_folder(home):
    with cli.started(home, "lab", "--json", "--no-browser", "--port", "0") as process:
        ready(process)
        below = family(process.pid)
        process.kill()
        process.wait(10)
        cli.until(lambda: not any(map(cli.alive, below)))
    assert len(list((home / "run").rglob("lab-*"))) == 1
    with runtime_folder("lab-") as folder:
        assert list((home / "run").rglob("lab-*")) == [folder]


def test_whatever_is_configured_this_machine_alone_sees_the_port_and_this_user_the_token(home):
    (home / ".jupyter").mkdir()
    off = {"ServerApp": {"ip": "0.0.0.0", "token": ""}, "IdentityProvider": {"token": ""}}
    (home / ".jupyter/jupyter_server_config.json").write_text(json.dumps(off))
    args = ["--json", "--no-browser", "--port", "0"]
    with cli.started(home, "lab", *args, "--address", "ipc:///a.sock") as process:
        told = ready(process)
        assert told["agent"] == "ipc:///a.sock"
        assert len(cli.children_of(process.pid)) == 1  # no agent of its own
        port = f"{told['port']:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        rows += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
        listening = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port}")]
        assert listening == [f"0100007F:{port}"]
        assert get(told["port"], "/api/status")[0] == 403
        for pid in [process.pid, *family(process.pid)]:
            assert told["token"].encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        (folder,) = (home / "run").rglob("lab-*")
        assert folder.stat().st_mode & 0o777 == 0o700
        assert list(folder.glob("jpserver-*.json"))
        end(process, home, "SIGHUP")


def test_a_person_gets_the_url_on_stdout_and_the_rest_on_stderr(home):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", own_port(os.getuid())))  # of this user; so it takes the next one
        taken.listen()
        with cli.started(home, "lab", "--no-browser", "--no-agent", home) as process:
            url = urlsplit(process.stdout.readline().strip())
            assert url.port != own_port(os.getuid())
            assert get(url.port, f"{url.path}?{url.query}".replace("/lab", "/api/status"))[0] == 200
            err = end(process, home, "SIGINT")
    assert f"serves {home} on 127.0.0.1 only" in err
    assert "DGKIT_ADDRESS" not in err
    assert ("You are root" in err) == (os.geteuid() == 0)
    assert "Traceback" not in err
    assert err.endswith("dgkit: stopped\n")


def test_what_jupyterlab_does_not_survive_is_told(home):
    done = cli.run(home, "lab", "--no-browser", "--", "--ServerApp.certfile=/nowhere")
    assert done.returncode == 1
    assert "JupyterLab ended before it was ready" in done.stderr.splitlines()[-1]
    assert not done.stdout
    assert not left_by(home)


@pytest.mark.parametrize(
    "option",
    [
        *("--ip=0.0.0.0", "--ServerApp.ip=0.0.0.0", "--NotebookApp.ip=*", "--sock=/tmp/s"),
        *("--IdentityProvider.token=", "--ServerApp.token=", "--ServerApp.password="),
        *("--ServerApp.root_dir=/", "--notebook-dir=/", "--port=1", "--ServerApp.port-retries=1"),
        *("--gateway-url=http://dpu", "--GatewayClient.url=http://dpu", "--no-browser"),
        *("--ServerApp.allow_remote_access=True", "--ServerApp.disable_check_xsrf=True"),
    ],
)
def test_what_would_open_it_is_refused_with_the_reason(option, home, capsys):
    assert main(["lab", "--", option]) == 2
    err = capsys.readouterr().err
    assert option in err
    assert "`dgkit lab --help`" in err
    assert len(err.splitlines()) == 1


def test_a_port_that_is_taken_and_a_folder_that_is_not_there_are_wrong_usage(home, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["lab", "--port", str(taken.getsockname()[1])]) == 2
    assert "is taken" in capsys.readouterr().err
    assert main(["lab", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_without_jupyterlab_it_says_what_to_install(home, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["lab"]) == 1
    assert capsys.readouterr().err == (
        f"dgkit: JupyterLab is not installed: `{install_command('lab')}`\n"
    )


def test_help_explains_the_tunnel_to_a_dpu(capsys):
    assert main(["lab", "--help"]) == 0
    text = capsys.readouterr().out
    assert "ssh -t -L 8888:127.0.0.1:8888 ubuntu@192.168.100.2 dgkit lab --port 8888" in text
    assert "Do not use --gateway-url" in text


@pytest.mark.parametrize(
    "change", [{"hostname": "0.0.0.0"}, {"sock": "/tmp/socket"}, {"token": ""}], ids=str
)
def test_a_server_that_is_open_after_all_is_not_taken(change):
    told = {"hostname": "127.0.0.1", "sock": "", "token": "t", "url": "http://x/", "port": 1}
    lab = lab_command.Lab.__new__(lab_command.Lab)
    lab._token = "t"
    lab._pipe = SimpleNamespace(recv=lambda _: json.dumps(told).encode())
    assert lab.ready() == {"url": "http://x/lab?token=t&dgkit=welcome", "port": 1}
    told |= change
    with pytest.raises(PermissionError, match="jupyter --paths"):
        lab.ready()


def test_users_of_a_machine_start_at_ports_of_their_own():
    ports = [own_port(uid) for uid in [0, *range(1000, 1200)]]
    assert len(set(ports)) == len(ports)
    assert all(port >= 1024 and port + 10 <= 32768 for port in ports)
    assert sorted(ports)[1] - sorted(ports)[0] >= 10


def test_a_server_that_does_not_end_is_ended_by_force(home, monkeypatch):
    monkeypatch.setattr(lab_command, "_END_S", 0.2)
    with runtime_folder("lab-") as runtime:
        lab = lab_command.Lab(
            home, runtime, port=0, fixed=False, browser=False, environment={}, extra=()
        )
        lab.ready()
        pid = lab._process.pid
        os.kill(pid, signal.SIGSTOP)
        with lab:
            pass
        assert not cli.alive(pid)
