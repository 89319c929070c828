"""`dgkit lab`: JupyterLab with a software DPU beside it."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import click

from .console import patience, say
from .exit_codes import FAILED, OK
from .options import address as parsed_address

__all__ = ["lab"]

# By the last part of an option's name, for JupyterLab takes each by several classes' names.
_OURS = {
    "port": "--port", "port_retries": "--port", "root_dir": "FOLDER", "notebook_dir": "FOLDER",
    "preferred_dir": "FOLDER", "open_browser": "--no-browser", "no_browser": "--no-browser",
}  # fmt: skip
_OPENS = frozenset(
    {
        *("ip", "sock", "sock_mode", "local_hostnames", "custom_display_url"),
        *("allow_remote_access", "allow_origin", "allow_origin_pat", "allow_credentials"),
        *("token", "password", "hashed_password", "password_required", "allow_password_change"),
        *("disable_check_xsrf", "allow_unauthenticated_access", "identity_provider_class"),
        *("trust_xheaders", "runtime_dir", "tornado_settings"),
    }
)
_OPENING_CLASSES = frozenset({"IdentityProvider", "PasswordIdentityProvider"})
_MORE = "dgkit.lab.more"


class _Command(click.Command):
    """With what stands after `--` put aside in `ctx.meta`, for JupyterLab."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """BadParameter, UsageError."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_MORE] = args[at + 1 :]
        for word in ctx.meta[_MORE]:
            _check(ctx, word)
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """For the first line of the help."""
        return [*super().collect_usage_pieces(ctx), "[-- JUPYTERLAB'S OWN]"]


def _check(ctx: click.Context, word: str) -> None:
    """Refuses what `dgkit lab` sets itself, and what would open the server or its folder."""
    if not word.startswith("-"):
        return
    classes, _, last = word.lstrip("-").partition("=")[0].rpartition(".")
    last = last.replace("-", "_")
    if last in _OURS:
        raise click.UsageError(f"{word!r} is set by {_OURS[last]}, before the --", ctx)
    if last in _OPENS or classes in _OPENING_CLASSES:
        raise click.UsageError(f"{word!r} is refused: it stays on 127.0.0.1, with its token", ctx)
    if last == "gateway_url" or classes == "GatewayClient":
        raise click.UsageError(f"{word!r} is refused: a gateway breaks widgets; take a tunnel", ctx)


@click.command(cls=_Command, short_help="Start JupyterLab with a software DPU.")
@click.argument(
    "folder",
    required=False,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="This port and no other (0: any free one). Default: the first free one of your own ten, "
    "which follow from your user id.",
)
@click.option("--no-browser", is_flag=True, help="Do not open a browser.")
@click.option("--agent/--no-agent", default=True, help="Start a software DPU beside it, or not.")
@click.option(
    "--address",
    type=parsed_address,
    help="An agent that runs already: DGKIT_ADDRESS says this, and none is started.",
)
@click.option("--json", "json_", is_flag=True, help="Print url, port and agent as a line of JSON.")
@click.pass_context
def lab(
    ctx: click.Context,
    folder: Path | None,
    port: int | None,
    no_browser: bool,
    agent: bool,
    address: str | None,
    json_: bool,
) -> int:
    """Start JupyterLab in FOLDER (default: ./notebooks if there is one, else this folder), and a
    software DPU beside it, until Ctrl-C. What stands after -- goes to JupyterLab.

    It listens on 127.0.0.1 alone and asks for the token that is in its URL, the one line on
    stdout. Several users of a machine do not meet: each has a port, a DPU and a runtime folder of
    his own. The DPU's address is in the environment of each notebook:
    dgkit.connect(os.environ["DGKIT_ADDRESS"]). A dgkit.connect() without it starts one that is the
    notebook's own.

    \b
    Examples:
      dgkit lab
      dgkit lab notebooks/tutorials --no-browser
      dgkit lab --port 8888 --no-agent -- --LabApp.extensions_in_dev_mode=True
      dgkit serve --provider cuda        (in another terminal; then, with what it prints:)
      dgkit lab --address ipc:///...

    \b
    On a machine that you reach by SSH, start it there, and tunnel its port from where your
    browser is. A BlueField DPU, by convention, is 192.168.100.2 (tmfifo) for its host:
      ssh -t -L 8888:127.0.0.1:8888 ubuntu@192.168.100.2 dgkit lab --port 8888
    and open the URL that it prints. Do not use --gateway-url to bring the DPU's kernels into a
    JupyterLab of the host: it breaks the binary messages of widgets.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise ImportError("JupyterLab is not installed: `pip install '.[lab]'` in dgkit's folder")
    found = folder or next(path for path in (Path("notebooks"), Path()) if path.is_dir())
    if port:
        _check_free(port)
    with _hangup():
        return _run(
            found.resolve(), ctx.meta[_MORE], port, not no_browser and _has_browser(), json_,
            address, agent and address is None,
        )  # fmt: skip


def _run(
    folder: Path,
    more: list[str],
    port: int | None,
    browser: bool,
    json_: bool,
    address: str | None,
    start: bool,
) -> int:
    from . import lab_job as job

    with contextlib.ExitStack() as last_to_first:
        runtime = last_to_first.enter_context(job.runtime_folder())
        if start:
            address = last_to_first.enter_context(job.agent())
        first = job.own_port(os.getuid()) if port is None else port
        server = last_to_first.enter_context(
            job.Lab(
                folder, runtime, port=first, fixed=bool(port), browser=browser, more=more,
                environment={"DGKIT_ADDRESS": address} if address else {},
            )
        )  # fmt: skip
        with patience("dgkit lab: JupyterLab is starting", after_s=5.0):
            told = server.ready() | {"agent": address, "folder": str(folder)}
        print(json.dumps(told) if json_ else told["url"], flush=True)
        _explain(folder, told["port"], address, start)
        code = server.wait()
    say(f"dgkit lab: JupyterLab ended (exit status {code})" if code else "dgkit lab: stopped")
    return FAILED if code else OK


def _explain(folder: Path, port: int, address: str | None, started: bool) -> None:
    say(f"JupyterLab serves {folder} on this machine alone. Ctrl-C ends it.")
    if address:
        kind = "A software DPU of its own" if started else "The agent"
        say(f'{kind}: {address}, in a notebook dgkit.connect(os.environ["DGKIT_ADDRESS"])')
    if os.geteuid() == 0:
        say("You are root: so is each notebook (JupyterLab got --allow-root).")
    if os.environ.get("SSH_CONNECTION"):
        host = os.environ["SSH_CONNECTION"].split()[2:3]
        say(f"From where your browser is: ssh -L {port}:127.0.0.1:{port} {''.join(host)}")


def _check_free(port: int) -> None:
    """UsageError: somebody listens at the port that is wanted. So JupyterLab need not say it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError as exc:
            taken = exc.errno == errno.EADDRINUSE
            why = "is taken" if taken else f"cannot be had ({os.strerror(exc.errno or 0)})"
            raise click.UsageError(f"port {port} {why}: leave --port out, or take another") from exc


def _has_browser() -> bool:
    """Whether a browser could show itself: over SSH, a text browser would take the terminal."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


@contextlib.contextmanager
def _hangup() -> Iterator[None]:
    """A terminal that is closed ends it as SIGTERM does, unless it was told otherwise (nohup)."""
    before = signal.getsignal(signal.SIGHUP)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
