# SPDX-License-Identifier: Apache-2.0
"""`dgkit softdoca`: build and run DOCA programs without a BlueField."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import click

from ..files import filling, installed_softdoca
from .console import print_json, say
from .options import as_json
from .run_program import become
from .softdoca_trace import compare, record

_WORK_QUEUES = ("1.3", "2.2")  # an API of their own
# of doca_releases.h, the default last
_RELEASES = ("2.5", "2.7", "2.8", "2.9", "2.10", "3.0", "3.1", "3.2", "3.3")

_side = click.option(
    "--side",
    type=click.Choice(["host", "dpu", "both"]),
    envvar="SOFTDOCA_SIDE",
    show_envvar=True,
    default="both",
    help="Side whose devices the program sees.",
)


@click.group(short_help="Build and run DOCA programs without a BlueField.")
def softdoca() -> None:
    """Build and run unmodified DOCA DMA, Comch and GPUNetIO programs without a BlueField.

    softdoca implements DOCA's API in software: the CPU copies, and no DPU is involved. Two
    processes, one with --side host and one with --side dpu, are the two sides on one machine.

    \b
    Examples:
      eval "$(dgkit softdoca env)"               # set up pkg-config, the linker and the loader
      dgkit softdoca samples samples && make -C samples
      dgkit softdoca run -- samples/local_copy
      dgkit softdoca record -- ./program         # on a machine with a BlueField: a trace
    """


softdoca.add_command(record)
softdoca.add_command(compare)


@softdoca.command(short_help="Print the environment to build and run programs.")
@_side
@click.option(
    "--api",
    type=click.Choice([*_WORK_QUEUES, *_RELEASES]),
    default=_RELEASES[-1],
    show_default=True,
    help="DOCA release the programs are written for.",
)
@click.option(
    "--emulated-gpu",
    is_flag=True,
    help="Build programs with kernels for the emulated GPU: nvcc on PATH, and CUDA_PATH.",
)
@as_json
def env(side: str, api: str, emulated_gpu: bool, json_: bool) -> int:
    """Print shell commands that set the environment to build and run programs with softdoca.

    --api 2.2 is for programs with work queues (DOCA 1.5 to 2.2), --api 1.3 for those of 1.3. With
    another release, pkg-config's flags choose its names and argument lists.

    \b
    Examples:
      eval "$(dgkit softdoca env)"
      cc program.c $(pkg-config --cflags --libs doca-dma doca-common)
      eval "$(dgkit softdoca env --side dpu)"    # in the shell of the DPU side
      eval "$(dgkit softdoca env --emulated-gpu)" && meson setup build
    """
    home = _home()
    paths = _paths(home, api, emulated_gpu)
    known = ", ".join((*_WORK_QUEUES, *_RELEASES))
    if json_:
        include = home / ("include/workq" if api in _WORK_QUEUES else "include")
        facts = {"include": str(include), "lib": str(home / "lib"), "side": side}
        environment = _environment(home, side, api, emulated_gpu)
        print_json({"provider": "softdoca", "api": api, **facts, "environment": environment})
        return 0
    click.echo("# softdoca: DOCA in software, by this machine's CPU; no BlueField is involved.")
    click.echo(f"# API of DOCA {api}; by default {_RELEASES[-1]}; --api has {known}.")
    click.echo('# In a shell: eval "$(dgkit softdoca env)"')
    for name, path in paths.items():
        click.echo(f'export {name}={shlex.quote(path)}"${{{name}:+:${name}}}"')
    for name, value in _settings(home, side, emulated_gpu).items():
        click.echo(f"export {name}={shlex.quote(value)}")
    return 0


@softdoca.command(
    context_settings={"allow_interspersed_args": False}, short_help="Run a program with softdoca."
)
@_side
@click.option(
    "--devices",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="File with one device per line: side=host pci=0000:03:00.0 ...",
)
@click.option("--faults", metavar="TEXT", help='Faults to inject: "error every=10; delay ms=5".')
@click.argument("command", metavar="-- PROGRAM [ARGS]...", nargs=-1, type=click.UNPROCESSED)
def run(side: str, devices: str | None, faults: str | None, command: tuple[str, ...]) -> int:
    """Run a program that was built for DOCA with softdoca instead.

    The exit code is the program's; 127 if there is no such program, 126 if it cannot be run. The
    README of softdoca describes the file for --devices and the syntax of --faults.

    \b
    Examples:
      dgkit softdoca run -- ./local_copy --text hello
      dgkit softdoca run --side host -- ./remote_copy_sender
      dgkit softdoca run --side dpu --faults "error every=10" -- ./remote_copy_receiver
    """
    if not command:
        raise click.UsageError("no program given: put it after --")
    environment = os.environ | _environment(_home(), side)
    if devices is not None:
        if not Path(devices).is_file():
            raise click.UsageError(f"--devices {devices} is not a regular file")
        environment["SOFTDOCA_DEVICES"] = devices
    if faults is not None:
        environment["SOFTDOCA_FAULTS"] = faults
    return become(command, environment)


@softdoca.command(short_help="Copy the sources of the samples to a folder.")
@click.argument("folder", default="softdoca-samples", type=click.Path(path_type=Path))
def samples(folder: Path) -> int:
    """Copy the sources of softdoca's samples to FOLDER (default: ./softdoca-samples).

    They use only DOCA's public functions, so they also build against NVIDIA's DOCA.

    \b
    Example:
      dgkit softdoca samples && eval "$(dgkit softdoca env)" && make -C softdoca-samples
    """
    sources = _home() / "samples"
    names = sorted(path.name for path in sources.iterdir())
    if existing := [name for name in names if (folder / name).exists()]:
        raise click.UsageError(f"{folder} already has {', '.join(existing)}, which are kept")
    with filling(folder) as part:
        for source in sorted(sources.rglob("*")):  # unlike copytree(), without the files' modes
            target = part / source.relative_to(sources)
            if source.is_dir():
                target.mkdir()
            else:
                shutil.copyfile(source, target)
    click.echo(folder)
    say(f'Build with: eval "$(dgkit softdoca env)" && make -C {shlex.quote(str(folder))}')
    return 0


@softdoca.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
    short_help="Compile CUDA C++ for the emulated GPU.",
)
@click.argument("arguments", metavar="ARGUMENTS...", nargs=-1, type=click.UNPROCESSED)
def nvcc(arguments: tuple[str, ...]) -> int:
    """Compile and link CUDA C++ programs whose kernels run on the emulated GPU.

    ARGUMENTS are nvcc's. A launch runs in a child process, on the CPU; a kernel reaches memory of
    doca_gpu_mem_alloc. Its speed says nothing about a GPU.

    \b
    Example, on a machine without a GPU and without CUDA:
      dgkit softdoca samples samples && eval "$(dgkit softdoca env)"
      make -C samples gpunetio NVCC="dgkit softdoca nvcc"
    """
    if not arguments:
        raise click.UsageError("no file given")
    from ..gpu_initiated.nvcc import VERSION, compile_as_nvcc

    if "--version" in arguments:
        click.echo(VERSION)
        return 0
    try:
        return compile_as_nvcc(arguments)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _home() -> Path:
    """Return the folder with lib, include and samples, next to $SOFTDOCA_LIB or the C core.

    Raises:
        FileNotFoundError: softdoca is not installed.
    """
    if given := os.environ.get("SOFTDOCA_LIB"):
        home = Path(given).resolve().parent
    else:
        home = installed_softdoca()
    if not (home / "lib/libdoca_common.so.3").exists():
        if given:
            raise FileNotFoundError(
                f"SOFTDOCA_LIB is {given!r}, which has no libdoca_common.so.3: set it to "
                "softdoca's folder lib, or unset it to use this installation's"
            )
        raise FileNotFoundError(
            f"softdoca is not in {home}: `pip install .` builds it on Linux, x86-64 or aarch64"
        )
    return home


def _paths(home: Path, api: str, emulated_gpu: bool = False) -> dict[str, str]:
    """Return the folder to prepend to each search path."""
    modules = [] if api == _RELEASES[-1] else [f"lib/doca-{api}/pkgconfig"]
    if api not in _WORK_QUEUES:
        modules.append("lib/pkgconfig")  # libibverbs
    found = {"PKG_CONFIG_PATH": modules, "LD_LIBRARY_PATH": ["lib", "lib/ibverbs"]}
    if emulated_gpu:
        found["PATH"] = ["cuda/bin"]
    return {
        variable: os.pathsep.join(str(home / name) for name in names)
        for variable, names in found.items()
    }


def _settings(home: Path, side: str, emulated_gpu: bool = False) -> dict[str, str]:
    """Return the variables that are not search paths."""
    sdk = str(home / "lib/sdk")  # from which NVIDIA's gpunetio 3.0 loads DOCA's libraries
    cuda = {"CUDA_PATH": str(home / "cuda")} if emulated_gpu else {}
    return {"DOCA_SDK_LIB_PATH": sdk, **cuda, "SOFTDOCA_SIDE": side}


def _environment(
    home: Path, side: str, api: str = _RELEASES[-1], emulated_gpu: bool = False
) -> dict[str, str]:
    """Return the environment variables; search paths of this process are appended to softdoca's."""
    paths = {
        name: os.pathsep.join(filter(None, (path, os.environ.get(name))))
        for name, path in _paths(home, api, emulated_gpu).items()
    }
    return {**paths, **_settings(home, side, emulated_gpu)}
