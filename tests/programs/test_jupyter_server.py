# SPDX-License-Identifier: Apache-2.0
"""The server extension: TCP_NODELAY on the websocket of a kernel, and no harm elsewhere."""

import asyncio
import importlib.metadata
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.processes import children

import dgkit.jupyter
from dgkit._version import DISTRIBUTION
from dgkit.jupyter import tcp_nodelay

SHIPPED = Path(dgkit.jupyter.__file__).parent / "dgkit.json"
INSTALLED = "etc/jupyter/jupyter_server_config.d/dgkit.json"

# A Jupyter server, a page's websocket to a kernel of it, and what the server's end of that says.
SERVER = """
import asyncio, json, os, socket, stat, sys
from jupyter_server.serverapp import ServerApp
from tornado.websocket import websocket_connect

def nodelay(port, peer):
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            end = socket.socket(fileno=os.dup(fd))
        except OSError:
            continue
        with end:
            try:
                names = end.getsockname(), end.getpeername()
            except OSError:
                continue
            if names == (("127.0.0.1", port), peer):
                yield end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

async def look():
    kernel = await server.kernel_manager.start_kernel()
    url = f"ws://127.0.0.1:{server.port}/api/kernels/{kernel}/channels?session_id=x&token=t"
    page = await websocket_connect(url)
    request = server.kernel_manager.get_kernel(kernel).session.msg("kernel_info_request")
    await page.write_message(json.dumps(request | {"channel": "shell"}, default=str))
    while json.loads(await page.read_message())["msg_type"] != "kernel_info_reply":
        pass
    (found,) = nodelay(server.port, page.stream.socket.getsockname())
    extensions = {name: one.enabled for name, one in server.extension_manager.extensions.items()}
    print(json.dumps({"nodelay": found, "extensions": extensions}), flush=True)
    page.close()
    server.stop()

server = ServerApp()
options = {"ServerApp.ip": "127.0.0.1", "ServerApp.port": 0, "IdentityProvider.token": "t"}
argv = [f"--{name}={value}" for name, value in options.items()]
server.initialize([*argv, "--no-browser", "--allow-root", "--log-level=DEBUG", *sys.argv[1:]])
server.io_loop.add_callback(look)
server.start()
"""


@pytest.fixture
def folders(tmp_path):
    """The environment of a server of its own, with the shipped file where an install puts it."""
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "HOME")
    found = tmp_path / "etc/jupyter/jupyter_server_config.d"
    found.mkdir(parents=True)
    (found / "dgkit.json").write_bytes(SHIPPED.read_bytes())
    return {name: str(tmp_path / name) for name in own} | {
        "JUPYTER_CONFIG_PATH": str(tmp_path / "etc/jupyter"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }


def served(folders, *args):
    with children.child(SERVER, *args, **folders) as server:
        result = json.loads(server.line(timeout=60))
        code, log = server.end()
    assert code == 0, log
    return result, log


def test_a_server_with_the_shipped_file_sets_it_on_the_socket_of_a_live_kernel(folders):
    result, log = served(folders)
    assert result["extensions"]["dgkit.jupyter.tcp_nodelay"] is True
    assert result["nodelay"] == 1
    assert "dgkit: TCP_NODELAY is set" in log
    assert "Traceback" not in log


def test_a_server_where_it_is_disabled_does_not(folders):
    path = Path(folders["JUPYTER_CONFIG_DIR"])
    path.mkdir()
    off = {"ServerApp": {"jpserver_extensions": {"dgkit.jupyter.tcp_nodelay": False}}}
    (path / "jupyter_server_config.json").write_text(json.dumps(off))
    result, log = served(folders)
    assert result["nodelay"] == 0
    assert "TCP_NODELAY" not in log


def test_jupyter_lists_it_and_finds_it_valid(folders):
    found = Path(folders["JUPYTER_CONFIG_DIR"], "jupyter_server_config.d")
    found.mkdir(parents=True)  # the list reads no other path
    (found / "dgkit.json").write_bytes(SHIPPED.read_bytes())
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_server", "extension", "list"],
        env=os.environ | folders, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    lines = (done.stdout + done.stderr).splitlines()
    at = next(at for at, line in enumerate(lines) if "dgkit.jupyter.tcp_nodelay" in line)
    assert "enabled" in lines[at]
    assert "OK" in "".join(lines[at : at + 3])


def test_an_installed_package_has_the_file_where_jupyter_looks():
    try:
        files = importlib.metadata.distribution(DISTRIBUTION).files
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("dgkit is not installed here, it is used in place")
    extension = SHIPPED.parent / "labextensions"
    shipped = {INSTALLED: SHIPPED} | {
        f"share/jupyter/labextensions/{path.relative_to(extension)}": path
        for path in extension.rglob("*.*")
    }
    assert len(shipped) == 4
    for installed, path in shipped.items():
        (found,) = [file for file in files if str(file).endswith(installed)]
        assert found.locate().resolve() == Path(sys.prefix, installed).resolve()
        assert found.locate().read_bytes() == path.read_bytes()


class Socket:
    """What the extension sees of a handler of a kernel's websocket."""

    def __init__(self):
        self.calls = []

    def set_nodelay(self, value):
        self.calls.append(("nodelay", value))

    async def open(self, kernel):
        self.calls.append(("open", kernel))
        return kernel


def fresh():
    """A class of its own, as a server has it."""
    return type("Handler", (), dict(vars(Socket)))


LOG = logging.getLogger("test")


def test_it_is_set_before_the_websocket_opens_once_however_often_it_is_enabled():
    handler = fresh()
    assert tcp_nodelay.enable(handler, LOG) == ""
    opens = handler.open
    assert tcp_nodelay.enable(handler, LOG) == ""
    assert handler.open is opens
    assert opens.__name__ == "open"
    it = handler()
    assert asyncio.run(it.open("k")) == "k"
    assert it.calls == [("nodelay", True), ("open", "k")]


def test_a_class_made_of_it_opens_so_too():
    handler = fresh()
    tcp_nodelay.enable(handler, LOG)

    class Other(handler):
        async def open(self, kernel):
            return await super().open(kernel + "!")

    it = Other()
    assert asyncio.run(it.open("k")) == "k!"
    assert it.calls[0] == ("nodelay", True)


def test_a_socket_that_refuses_opens_all_the_same(caplog):
    handler = fresh()
    tcp_nodelay.enable(handler, LOG)

    def refuses(*_):
        raise AssertionError("no connection")

    handler.set_nodelay = refuses
    with caplog.at_level(logging.DEBUG):
        assert asyncio.run(handler().open("k")) == "k"
    assert "could not be set" in caplog.text


def plain_open(self, kernel):
    """Not a coroutine."""


@pytest.mark.parametrize("change", [{"open": plain_open}, {"open": None}, {"set_nodelay": None}])
def test_where_a_server_differs_nothing_is_changed_and_one_line_says_so(
    change, monkeypatch, caplog
):
    handler = type("Handler", (), dict(vars(Socket)) | change)
    before = dict(vars(handler))
    name = "jupyter_server.services.kernels.websocket"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(KernelWebsocketHandler=handler))
    with caplog.at_level(logging.INFO):
        tcp_nodelay._load_jupyter_server_extension(SimpleNamespace(log=LOG))
    assert dict(vars(handler)) == before
    assert len(caplog.records) == 1
    assert "TCP_NODELAY is not set" in caplog.text


def test_a_server_without_such_a_websocket_goes_on(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "jupyter_server.services.kernels.websocket", None)
    with caplog.at_level(logging.INFO):
        tcp_nodelay._load_jupyter_server_extension(SimpleNamespace(log=LOG))
    assert "no kernel websocket handler" in caplog.text
