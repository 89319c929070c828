# SPDX-License-Identifier: Apache-2.0
"""`dgkit lab`: start JupyterLab and a software DPU."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .. import child
from ..installation import install_command
from .console import notice_after, say
from .exit_codes import FAILED, OK
from .options import address as parsed_address

# Keyed by the last part of an option's name: JupyterLab accepts it with several class names.
_SET_BY = {
    "port": "--port", "port_retries": "--port", "root_dir": "FOLDER", "notebook_dir": "FOLDER",
    "preferred_dir": "FOLDER", "open_browser": "--no-browser", "no_browser": "--no-browser",
}  # fmt: skip
_INSECURE = frozenset(
    {
        *("ip", "sock", "sock_mode", "local_hostnames", "custom_display_url"),
        *("allow_remote_access", "allow_origin", "allow_origin_pat", "allow_credentials"),
        *("token", "password", "hashed_password", "password_required", "allow_password_change"),
        *("disable_check_xsrf", "allow_unauthenticated_access", "identity_provider_class"),
        *("trust_xheaders", "runtime_dir", "tornado_settings"),
    }
)
_INSECURE_CLASSES = frozenset({"IdentityProvider", "PasswordIdentityProvider"})
_EXTRA_ARGS = "dgkit.lab.extra_args"


class _Command(click.Command):
    """Command that stores the arguments after `--` in `ctx.meta`, for JupyterLab."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split the arguments at `--` and check those for JupyterLab."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_EXTRA_ARGS] = args[at + 1 :]
        for argument in ctx.meta[_EXTRA_ARGS]:
            _check_extra(ctx, argument)
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- JUPYTERLAB OPTIONS]"]


def _check_extra(ctx: click.Context, argument: str) -> None:
    """Reject options that `dgkit lab` sets itself, and options that weaken access control."""
    if not argument.startswith("-"):
        return
    classes, _, last = argument.lstrip("-").partition("=")[0].rpartition(".")
    last = last.replace("-", "_")
    if last in _SET_BY:
        raise click.UsageError(f"{argument!r}: use {_SET_BY[last]}, before the --", ctx)
    if last in _INSECURE or classes in _INSECURE_CLASSES:
        raise click.UsageError(
            f"{argument!r} is not allowed: the server listens on 127.0.0.1 with a token", ctx
        )
    if last == "gateway_url" or classes == "GatewayClient":
        raise click.UsageError(
            f"{argument!r} is not allowed: a gateway breaks widgets; use an SSH tunnel", ctx
        )


@click.command(cls=_Command, short_help="Start JupyterLab and a software DPU.")
@click.argument(
    "folder",
    required=False,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on; fail if it is taken (0: any free port). Default: the first free one "
    "of ten ports derived from your user id.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option("--agent/--no-agent", default=True, help="Start a software DPU, or not.")
@click.option(
    "--address",
    type=parsed_address,
    help="Address of a running agent to put into DGKIT_ADDRESS instead of starting one.",
)
@click.option(
    "--bluefield",
    is_flag=True,
    help="Use the agent of `dgkit bluefield up`: as --address bluefield.",
)
@click.option(
    "--json", "json_", is_flag=True, help="Print url, port, agent and folder as one line of JSON."
)
@click.pass_context
def lab(
    ctx: click.Context,
    folder: Path | None,
    port: int | None,
    no_browser: bool,
    agent: bool,
    address: str | None,
    bluefield: bool,
    json_: bool,
) -> int:
    """Start JupyterLab in FOLDER, and a software DPU for its notebooks, until Ctrl-C.

    FOLDER is ./notebooks by default if it exists, else the current folder. Options after -- are
    passed to JupyterLab. Prints the URL with its token as the only line on stdout. The page opens
    dgkit-welcome.ipynb, which it adds to FOLDER if it is not there. The server listens on 127.0.0.1
    only; each user of a machine gets a separate port, DPU and runtime folder.

    Notebooks connect to the DPU with dgkit.connect(os.environ["DGKIT_ADDRESS"]). dgkit.connect()
    without an address starts another software DPU for that notebook only.

    \b
    Examples:
      dgkit lab
      dgkit lab notebooks/tutorials --no-browser
      dgkit lab --port 8888 --no-agent -- --LabApp.extensions_in_dev_mode=True
      dgkit serve --provider cuda        # in another terminal; prints ADDRESS
      dgkit lab --address ADDRESS
      dgkit lab --bluefield

    On a remote machine: start it there through ssh with a tunnel for its port, as below, and open
    the URL that it prints. A BlueField's host reaches it at 192.168.100.2 (tmfifo):

    \b
      ssh -t -L 8888:127.0.0.1:8888 ubuntu@192.168.100.2 dgkit lab --port 8888

    Do not use --gateway-url to run the DPU's kernels in a JupyterLab of the host: it breaks the
    binary messages of widgets.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise ImportError(f"JupyterLab is not installed: `{install_command('lab')}`")
    if bluefield:
        address = _bluefield(address)
    root = folder or next(path for path in (Path("notebooks"), Path()) if path.is_dir())
    if port:
        _check_free(port)
    with _hangup():
        return _run(
            root.resolve(), ctx.meta[_EXTRA_ARGS], port, not no_browser and _has_browser(), json_,
            address, agent and address is None,
        )  # fmt: skip


def _bluefield(address: str | None) -> str:
    """Return the name of the agent of `dgkit bluefield up`, which must answer."""
    from ..session.connect import inspect
    from ..wire.saved import BLUEFIELD

    if address not in (None, BLUEFIELD):
        raise click.UsageError("--address and --bluefield exclude each other")
    inspect(BLUEFIELD)
    return BLUEFIELD


def _run(
    folder: Path,
    extra: list[str],
    port: int | None,
    browser: bool,
    json_: bool,
    address: str | None,
    start: bool,
) -> int:
    from ..runtime_folder import runtime_folder

    with contextlib.ExitStack() as last_to_first:
        runtime = last_to_first.enter_context(runtime_folder("lab-"))
        if start:
            address = last_to_first.enter_context(software_dpu())
        first = own_port(os.getuid()) if port is None else port
        server = last_to_first.enter_context(
            Lab(
                folder, runtime, port=first, fixed=bool(port), browser=browser, extra=extra,
                environment={"DGKIT_ADDRESS": address} if address else {},
            )
        )  # fmt: skip
        with notice_after("dgkit lab: JupyterLab is starting", after_s=5.0):
            ready = server.ready() | {"agent": address, "folder": str(folder)}
        print(json.dumps(ready) if json_ else ready["url"], flush=True)
        _print_lab_address(folder, ready["port"], address, start)
        code = server.wait()
    say(f"dgkit lab: JupyterLab ended (exit status {code})" if code else "dgkit lab: stopped")
    return FAILED if code else OK


def _print_lab_address(folder: Path, port: int, address: str | None, started: bool) -> None:
    say(f"JupyterLab serves {folder} on 127.0.0.1 only; stop with Ctrl-C.")
    if address:
        kind = "Software DPU" if started else "Agent"
        say(f'{kind}: {address}; in a notebook: dgkit.connect(os.environ["DGKIT_ADDRESS"])')
    if os.geteuid() == 0:
        say("You are root, and so is each notebook (JupyterLab got --allow-root).")
    if os.environ.get("SSH_CONNECTION"):
        host = os.environ["SSH_CONNECTION"].split()[2:3]
        say(f"On the machine with the browser: ssh -L {port}:127.0.0.1:{port} {''.join(host)}")


def _check_free(port: int) -> None:
    """Raise UsageError if the port cannot be used, before JupyterLab starts."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError as exc:
            taken = exc.errno == errno.EADDRINUSE
            why = "is taken" if taken else f"cannot be used ({os.strerror(exc.errno or 0)})"
            raise click.UsageError(f"port {port} {why}: omit --port or use another") from exc


def _has_browser() -> bool:
    """Return whether a graphical browser can open: a text browser would take the terminal."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


@contextlib.contextmanager
def _hangup() -> Iterator[None]:
    """Handle SIGHUP (a closed terminal) as SIGTERM, unless it is ignored (nohup)."""
    before = signal.getsignal(signal.SIGHUP)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


_HOST = "127.0.0.1"
_CONFIG = Path(__file__).parents[1] / "jupyter/config"  # JupyterLab does not ask about news
_WELCOME = "dgkit=welcome"  # makes dgkit's JupyterLab extension open the welcome notebook
_END_S = 20.0  # JupyterLab waits five seconds for each kernel, one after another


def own_port(uid: int) -> int:
    """Return the first port to try; each of 2,000 users of a machine has ten ports."""
    return 10_000 + uid * 10 % 20_000


@contextlib.contextmanager
def software_dpu() -> Iterator[str]:
    """Start a software DPU, yield its address, and end it; it never outlives this process."""
    from ..session.spawn import SoftwareDpu

    dpu = SoftwareDpu()
    try:
        yield dpu.listen("soft", rules=(), gpu=0, max_memory=None, timeout=None)
    finally:
        dpu.close()


def _jupyter_command(
    folder: Path, port: int, token: str, *, fixed: bool, browser: bool
) -> list[str]:
    retries = 0 if fixed else 50
    options = {"ip": _HOST, "port": port, "port_retries": retries, "root_dir": folder}
    argv = [f"--ServerApp.{name}={value}" for name, value in options.items()]
    argv += [f"--IdentityProvider.token={token}", "--log-level=WARN"]
    argv += [f"--LabApp.default_url=/lab?{_WELCOME}"] if browser else ["--no-browser"]
    return argv + (["--allow-root"] if os.geteuid() == 0 else [])


class Lab:
    """JupyterLab in a child process, which ends with this one.

    Args:
        folder: Root folder of the server.
        runtime: Jupyter's runtime folder.
        port: First port to try.
        fixed: Whether to fail if `port` is taken, instead of trying others.
        browser: Whether to open a browser.
        environment: Environment variables to add.
        extra: Further arguments for JupyterLab.
    """

    def __init__(
        self,
        folder: Path,
        runtime: Path,
        *,
        port: int,
        fixed: bool,
        browser: bool,
        environment: Mapping[str, str],
        extra: Sequence[str] = (),
    ) -> None:
        self._token = secrets.token_hex(24)
        self._pipe, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folders = filter(None, (str(_CONFIG), os.environ.get("JUPYTER_CONFIG_PATH", "")))
        environment = {
            **os.environ, **environment, "JUPYTER_RUNTIME_DIR": str(runtime),
            "JUPYTER_CONFIG_PATH": os.pathsep.join(folders),
        }  # fmt: skip
        self._process = child.start(
            "dgkit.jupyter.lab_server",
            child_end,
            stdout=2,  # its messages belong on stderr
            env=environment,
        )
        argv = _jupyter_command(folder, port, self._token, fixed=fixed, browser=browser)
        with contextlib.suppress(ConnectionError):  # the child has ended: ready() raises the error
            self._pipe.send(json.dumps([*argv, *extra]).encode())

    def ready(self) -> dict[str, Any]:
        """Wait until the server accepts connections.

        Returns:
            `url`, with the token, and `port`.

        Raises:
            ChildProcessError: JupyterLab ended first.
            PermissionError: A Jupyter configuration overrides the address or the token.
        """
        try:
            answer = self._pipe.recv(1 << 16)
        except ConnectionError:
            answer = b""
        if not answer:
            code = self._process.wait()
            raise ChildProcessError(f"JupyterLab ended before it was ready (exit status {code})")
        info = json.loads(answer)
        if (info["hostname"], info["sock"], info["token"]) != (_HOST, "", self._token):
            raise PermissionError(
                f"a Jupyter configuration file overrides the address ({info['hostname']}) or the "
                "token: `jupyter --paths` lists where to look"
            )
        url = f"{info['url']}lab?token={self._token}&{_WELCOME}"
        return {"url": url, "port": info["port"]}

    def wait(self) -> int:
        """Wait until JupyterLab ends; return its exit status."""
        return self._process.wait()

    def close(self) -> None:
        """End JupyterLab and its kernels; kill it after 20 s. Idempotent."""
        self._pipe.close()
        try:
            self._process.wait(_END_S)
        except BaseException:  # it hangs, or a second signal; its kernels end when it is gone
            self._process.kill()
            self._process.wait()
            raise

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.close()
