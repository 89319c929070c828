"""`dgkit info`: providers, DOCA devices and GPUs of this machine, and why some are not usable."""

from __future__ import annotations

import os
import platform
import resource
import textwrap
from typing import Any

import click

from ..types import provider_label
from . import info_doca as doca
from . import info_gpu as gpu
from .console import console, print_json
from .exit_codes import NO_DEVICE
from .options import address as address_option
from .options import as_json
from .place_option import driver_notice


@click.command(short_help="List what is usable on this machine.")
@click.option(
    "--address",
    type=address_option,
    metavar="ADDRESS",
    help="Show the limits of the agent at this address instead, and how much of each is used.",
)
@click.option("--keys", metavar="NAME", help='With a tcp:// address: key pair. Default: "default".')
@as_json
def info(address: str | None, keys: str | None, json_: bool) -> int:
    """List what is usable on this machine, and why the rest is not.

    Shows the providers, the functions (PCI or sub-functions) that DOCA and softdoca find with their
    capabilities, and the GPUs with the ways in which other devices can reach their memory.

    The exit code is 3 if no provider is usable.

    \b
    Examples:
      dgkit info
      dgkit info --json | python3 -m json.tool
      dgkit info --address "$(cat agent-address)"
    """
    if address is not None:
        return _agent(address, keys, json_)
    facts = collect()
    if json_:
        print_json(facts)
    else:
        show(facts)
    return 0 if any(provider["usable"] for provider in facts["providers"]) else NO_DEVICE


def _agent(address: str, keys: str | None, json_: bool) -> int:
    from . import info_agent as agent

    facts = agent.collect(address, keys)
    if json_:
        print_json(facts)
        return 0
    about = facts["agent"]
    console().print(f"[bold]Agent[/] {address}", soft_wrap=True)
    click.echo(f"  provider {about['provider']}, pid {about['pid']} on {about['machine']}\n")
    for line in agent.lines(facts):
        click.echo(f"  {line}")
    return 0


def collect(*, doca_functions: bool = True) -> dict[str, Any]:
    """Return all facts as plain values; a C core that cannot be loaded is one of them, no error.

    Args:
        doca_functions: Also ask DOCA and softdoca, which takes a process for each.
    """
    from dataclasses import asdict

    from .._version import __version__
    from ..report import Machine
    from ..runtime_folder import runtime_dir

    package = {
        "dgkit": __version__,
        "python": platform.python_version(),
        "libraries": _versions("cffi", "numpy", "pyzmq", "msgspec"),
    }
    try:
        from .. import dma
    except ImportError as exc:
        core = {"loaded": False, "why": str(exc)}
        machine = asdict(Machine.here())
        return {"package": package, "core": core, "providers": [], "machine": machine, "limits": {}}
    with driver_notice():
        providers, gpus = dma.providers(), gpu.collect()
    return {
        "package": package,
        "core": {"loaded": True, "why": ""},
        "providers": [_provider(found.name, found.usable, found.why) for found in providers],
        "doca": doca.collect() if doca_functions else {},
        "gpu": gpus,
        "machine": asdict(Machine.here(dma.cpus())),
        "limits": _limits(str(runtime_dir())),
    }


def _provider(name: str, usable: bool, why: str) -> dict[str, Any]:
    return {"name": name, "usable": usable, "why": why, "label": provider_label(name)}


def _versions(*names: str) -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found


def _limits(runtime_dir: str) -> dict[str, Any]:
    from ..memory.meminfo import available_bytes

    return {
        "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "memory_free": available_bytes(),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "runtime_dir": runtime_dir,
    }


def show(facts: dict[str, Any]) -> None:
    """Print the facts as text, one block per subject."""
    from ..report import Machine
    from ..units import size_text

    out = console()
    package, limits = facts["package"], facts["limits"]
    libraries = ", ".join(f"{name} {version}" for name, version in package["libraries"].items())
    out.print(f"[bold]dgkit {package['dgkit']}[/], Python {package['python']}, {libraries}")
    out.print("\n[bold]Providers[/]")
    if not facts["core"]["loaded"]:
        out.print("  [red]none[/]: the C core does not load:", style="")
        click.echo(f"  {facts['core']['why']}")
    for provider in facts["providers"]:
        state = "[green]usable    [/]" if provider["usable"] else "[yellow]not usable[/]"
        out.print(f"  {provider['name']:<8} {state}  ", end="")
        why = provider["why"] or provider["label"]
        if provider["name"] == "cuda" and provider["why"] and facts["gpu"]["why"]:
            why = "the section on GPUs says why"
        click.echo(_wrapped(why, out.width, 23, first=23).lstrip())
    if found := doca.lines(facts.get("doca", {})):
        out.print("\n[bold]DOCA[/]")
        for line in found:
            click.echo(_wrapped(line, out.width, 4))
    if "gpu" in facts:
        out.print("\n[bold]GPU memory[/]")
        for line in gpu.lines(facts["gpu"]):
            click.echo(_wrapped(line, out.width, 12 if line[0] == " " else 4))
    out.print("\n[bold]Machine[/]")
    click.echo(f"  {Machine(**facts['machine'])}")
    if limits:
        free, whole = size_text(limits["memory_free"]), size_text(limits["memory"])
        click.echo(f"  {free} of {whole} memory free, at most {limits['open_files']} open files")
        click.echo(f"  sockets in {limits['runtime_dir']}")


def _wrapped(text: str, width: int, indent: int, *, first: int = 2) -> str:
    return textwrap.fill(
        text, max(width, 60), initial_indent=" " * first, subsequent_indent=" " * indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
