# SPDX-License-Identifier: Apache-2.0
"""`dgkit info`: providers, DOCA devices and GPUs of this machine, and why some are not usable."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import click

from ..child import bound
from ..errors import DgkitError, NativeError
from ..installation import checkout
from ..types import provider_label
from ..units import size_text
from .console import console, print_json
from .exit_codes import NO_DEVICE
from .options import address as address_option
from .options import as_json, driver_notice


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
        return _print_agent(address, keys, json_)
    facts = collect()
    if json_:
        print_json(facts)
    else:
        show(facts)
    return 0 if any(provider["usable"] for provider in facts["providers"]) else NO_DEVICE


def _print_agent(address: str, keys: str | None, json_: bool) -> int:
    facts = collect_agent(address, keys)
    if json_:
        print_json(facts)
        return 0
    about = facts["agent"]
    console().print(f"[bold]Agent[/] {address}", soft_wrap=True)
    click.echo(f"  provider {about['provider']}, pid {about['pid']} on {about['machine']}\n")
    for line in agent_lines(facts):
        click.echo(f"  {line}")
    return 0


def collect(*, doca_functions: bool = True) -> dict[str, Any]:
    """Return all facts as plain values, also if the C core cannot be loaded.

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
        "checkout": checkout() is not None,
        "libraries": _versions("cffi", "numpy", "pyzmq", "msgspec"),
    }
    try:
        from .. import dma
    except ImportError as exc:
        core = {"loaded": False, "why": str(exc)}
        machine = asdict(Machine.here())
        return {"package": package, "core": core, "providers": [], "machine": machine, "limits": {}}
    with driver_notice():
        providers, gpus = dma.providers(), collect_gpus()
    return {
        "package": package,
        "core": {"loaded": True, "why": ""},
        "providers": [_provider(found.name, found.usable, found.why) for found in providers],
        "doca": collect_doca() if doca_functions else {},
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
        click.echo(_wrap_indented(why, out.width, 23, first=23).lstrip())
    if found := doca_lines(facts.get("doca", {})):
        out.print("\n[bold]DOCA[/]")
        for line in found:
            click.echo(_wrap_indented(line, out.width, 4))
    if "gpu" in facts:
        out.print("\n[bold]GPU memory[/]")
        for line in gpu_lines(facts["gpu"]):
            click.echo(_wrap_indented(line, out.width, 12 if line[0] == " " else 4))
    out.print("\n[bold]Machine[/]")
    click.echo(f"  {Machine(**facts['machine'])}")
    if limits:
        free, whole = size_text(limits["memory_free"]), size_text(limits["memory"])
        click.echo(f"  {free} of {whole} memory free, at most {limits['open_files']} open files")
        click.echo(f"  sockets in {limits['runtime_dir']}")


def _wrap_indented(text: str, width: int, indent: int, *, first: int = 2) -> str:
    return textwrap.fill(
        text, max(width, 60), initial_indent=" " * first, subsequent_indent=" " * indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


# Name of the limit, to whom it applies, counter of its use, counter of the limit, option that sets
# it. The use by all clients together is known only if the agent shares its telemetry.
_USER = "key or user"
_AGENT_LIMITS = (
    ("clients", "agent", "clients", "max_clients", "--max-clients"),
    ("clients", _USER, "user_clients", "max_user_clients", "--max-share"),
    ("regions", "client", "your_regions", "max_regions", "--max-regions, ulimit -Hn"),
    ("regions", _USER, "user_regions", "max_user_regions", "--max-share"),
    ("file descriptors", _USER, "user_descriptors", "max_user_descriptors", "--max-share"),
    ("memory", "agent", "allocated", "max_memory", "--max-memory"),
    ("memory", "client", "your_memory", "max_client_memory", "--max-client-memory"),
    ("memory", _USER, "user_memory", "max_user_memory", "--max-share"),
    ("monitors", "client", "your_monitors", "max_monitors", ""),
    ("subscriptions", _USER, "user_subscriptions", "max_user_subscriptions", "--max-share"),
)


def collect_agent(address: str, keys: str | None) -> dict[str, Any]:
    """Query the agent at `address`; this connection counts as one of its clients.

    Raises:
        DgkitError: The agent cannot be reached, or refuses this client.
    """
    from .. import session

    agent, counters = session.inspect(address, keys=keys)
    return {
        "address": address,
        "agent": {"provider": agent.provider, "pid": agent.pid, "machine": agent.machine},
        "limits": list(_agent_limits(counters)),
    }


def _agent_limits(counters: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for name, scope, used, limit, option in _AGENT_LIMITS:
        if limit in counters:  # an older agent has fewer
            known = scope != "agent" or counters.get("shared_telemetry", 0)
            yield {
                "limit": name, "of": scope, "used": counters.get(used) if known else None,
                "most": counters[limit], "option": option,
            }  # fmt: skip


def agent_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return the facts as lines of text."""
    table = [f"{'limit':<17} {'of one':<12} {'used':>11} {'most':>11}  set by"]
    for row in facts["limits"]:
        used, most = (_value(row["limit"], row[name]) for name in ("used", "most"))
        scope = "agent (all)" if row["of"] == "agent" else row["of"]
        table.append(
            f"{row['limit']:<17} {scope:<12} {used:>11} {most:>11}  {row['option']}".rstrip()
        )
    return table


def _value(name: str, number: int | None) -> str:
    if number is None:
        return "-"
    return size_text(number) if name == "memory" else f"{number:,}"


_DOCA_LIBRARIES = ("doca", "softdoca")
_DOCA_LABELS = {"doca": "", "softdoca": " (simulated)"}
_DOCA_TIMEOUT_S = 30.0  # after which a device is reported as not answering

# One process for each library: a process can load only one of them, and this one loads neither.
_DOCA_PROGRAM = """
import sys
kind, *sys.path[:] = sys.argv[1:]
from dgkit.cli.info_command import print_doca_facts
print_doca_facts(kind)
"""


def collect_doca() -> dict[str, dict[str, Any]]:
    """Return the facts of each library by its name, or the reason why it has no facts."""
    processes = {kind: _start_doca(kind) for kind in _DOCA_LIBRARIES}
    return {kind: _doca_result(process) for kind, process in processes.items()}


def doca_lines(facts: dict[str, dict[str, Any]]) -> list[str]:
    """Return one line of text for each function; no line for a library that is not installed."""
    return [
        f"{kind} {library['version']}{_DOCA_LABELS[kind]}  {_doca_function(device)}"
        for kind, library in facts.items()
        for device in library.get("devices", ())
    ]


def print_doca_facts(kind: str) -> None:
    """Load a library in this process and print its facts as JSON."""
    from dataclasses import asdict

    from .. import doca
    from ..doca._library import library

    try:
        doca.use(kind)
        if (loaded := library().kind) == kind:
            devices = [asdict(device) for device in doca.devices()]
            facts: dict[str, Any] = {"version": doca.version(), "devices": devices, "why": ""}
        else:  # softdoca's folder is on LD_LIBRARY_PATH
            facts = {"why": f"the loader finds the libdoca_common of {loaded} instead"}
    except DgkitError as error:
        facts = {"why": str(getattr(error, "words", error))}
    print(json.dumps(facts))


def _start_doca(kind: str) -> subprocess.Popen[str]:
    command = bound([sys.executable, "-c", _DOCA_PROGRAM, kind, *sys.path])
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )


def _doca_result(process: subprocess.Popen[str]) -> dict[str, Any]:
    with process:
        try:
            lines = process.communicate(timeout=_DOCA_TIMEOUT_S)[0].splitlines()
        except subprocess.TimeoutExpired:
            process.kill()
            return {"why": f"no answer within {_DOCA_TIMEOUT_S:g} s"}
    if process.returncode or not lines:
        return {"why": f"the process that loaded it exited with {process.returncode}"}
    facts: dict[str, Any] = json.loads(lines[-1])
    return facts


def _doca_function(device: dict[str, Any]) -> str:
    names = " ".join(device[key] for key in ("pci", "ibdev", "iface") if device[key])
    keys = {"DMA": "dma", "export": "export_pci", "import": "from_export_pci"}
    supported = ", ".join(name for name, key in keys.items() if device[key])
    supported = supported or "none of DMA, export, import"
    if not device["dma"]:
        return f"{names}: {supported}"
    limits = f"{size_text(device['max_copy'])} per task, lists of {device['max_list']}"
    return f"{names}: {supported}; {limits}"


_CUPY_PACKAGES = ("cupy-cuda13x", "cupy-cuda12x", "cupy")
_GPU_FLAGS = {
    "dma_buf": "dma-buf",
    "dma_buf_mmap": "dma-buf mapped into the CPU",
    "gpu_direct_rdma": "GPUDirect RDMA",
    "gpu_direct_rdma_vmm": "GPUDirect RDMA of CUDA virtual memory",
    "posix_fd": "POSIX fds",
    "host_alloc_dma_buf": "dma-buf of pinned memory",
}


def collect_gpus() -> dict[str, Any]:
    """Return the GPUs, the reason `why` GPU memory is unusable ("" if usable), and versions."""
    from dataclasses import asdict

    from .. import memory

    why, gpus = memory.why_no_gpu(), []
    try:
        gpus = [asdict(gpu) for gpu in memory.gpus()]
    except NativeError as error:  # a GPU was lost, or the driver and its libraries do not match
        why = why or str(error.strerror)
    return {
        "why": why,
        "gpus": gpus,
        "libraries": {
            "CuPy": _module_version("cupy", *_CUPY_PACKAGES),
            "cuda-core": _module_version("cuda.core", "cuda-core"),
            "cuda-bindings": _module_version("cuda.bindings", "cuda-bindings"),
        },
    }


def _module_version(module: str, *names: str) -> str:
    """Return the version of a module that one of these packages contains."""
    from importlib import metadata, util

    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    with contextlib.suppress(ImportError):  # the parent package is missing
        if util.find_spec(module) is not None:
            return "of unknown version"
    return "missing"


def gpu_lines(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the facts as lines of text."""
    for gpu in facts["gpus"]:
        yield from _gpu_lines(gpu)
    if facts["why"]:
        yield f"not usable: {facts['why']}"
    yield ", ".join(f"{name} {version}" for name, version in facts["libraries"].items())


def _gpu_lines(gpu: dict[str, Any]) -> Iterator[str]:
    yield f"cuda:{gpu['index']}  {gpu['name']}, {gpu['uuid']}, at {gpu['pci']}"
    yield f"        {_free_of_total(gpu['free'], gpu['total'])}"
    flavour = f"{gpu['flavour']} kernel modules"
    if gpu["flavour"] == "unknown":
        flavour += f" ({gpu['flavour_why']})"
    yield f"        driver {gpu['driver']} with CUDA {gpu['cuda']}, {flavour}"
    bar1 = _free_of_total(gpu["bar1_free"], gpu["bar1_total"])
    yield f"        BAR1 {bar1}" + (f" ({gpu['bar1_why']})" if gpu["bar1_why"] else "")
    for name, text in _GPU_FLAGS.items():
        yield f"        {text}: {_flag(gpu[name])}"
    order = gpu["writes_ordering"] or "unknown"
    yield f"        writes of other devices are ordered for: {order}"


def _flag(value: bool | None) -> str:
    return "unknown to this driver" if value is None else "yes" if value else "no"


def _free_of_total(free: int | None, total: int | None) -> str:
    if total is None:
        return "unknown"
    if free is None:
        return f"{size_text(total)}, free: unknown"
    return f"{size_text(free)} of {size_text(total)} free"
