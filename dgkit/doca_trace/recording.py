# SPDX-License-Identifier: Apache-2.0
"""Run a program with the recorder between it and DOCA."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..files import write_new
from .functions import recorder_folder

_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_MODEL = re.compile(r"[\w .()/+-]{1,64}", re.ASCII)


def record(command: Sequence[str], output: Path) -> int:
    """Run a program, and write its calls of DOCA to a file.

    Signals of the terminal reach the program, which decides when it ends.

    Args:
        command: The program and its arguments.
        output: The trace; further processes of the program write to OUTPUT.2 and so on.

    Returns:
        The program's exit code, or 128 and the signal that ended it.

    Raises:
        FileExistsError: The file exists.
        FileNotFoundError: There is no such program, or this installation has no recorder.
        OSError: The program cannot be run, or the file cannot be written.
        ValueError: LD_PRELOAD cannot name the recorder.
    """
    output = output.resolve()
    try:  # before the program runs, perhaps for hours
        write_new(output, b"")
    except FileExistsError:
        raise FileExistsError(
            f"{output} exists: remove it, or choose another file with --output"
        ) from None
    output.unlink()
    environment = os.environ | {
        "LD_PRELOAD": " ".join(filter(None, (_library(), os.environ.get("LD_PRELOAD")))),
        "DGKIT_TRACE": str(output),
        "DGKIT_TRACE_MACHINE": json.dumps(_machine()),
    }
    # A handler, not SIG_IGN, which the program would inherit.
    before = {number: signal.signal(number, lambda *_: None) for number in _OF_TERMINAL}
    try:
        process = subprocess.Popen(command, env=environment)
        before[signal.SIGTERM] = signal.signal(
            signal.SIGTERM, lambda number, _: process.send_signal(number)
        )
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _library() -> str:
    """Return the recorder's file.

    Raises:
        ValueError: LD_PRELOAD cannot name it.
    """
    library = str(recorder_folder() / "libdoca_recorder.so")
    if " " in library or ":" in library:
        raise ValueError(
            f"{library} has a space or a colon in its name, which LD_PRELOAD cannot have: install "
            "dgkit in another folder"
        )
    return library


def _machine() -> dict[str, object]:
    """Return what is known of the machine and its adapters, without names and serial numbers."""
    model = _read(Path("/sys/class/dmi/id/product_name"))
    side = os.environ.get("SOFTDOCA_SIDE") or ("dpu" if "BlueField" in model else "host")
    adapters = {
        tuple(_read(adapter / name) for name in ("hca_type", "fw_ver", "board_id"))
        for adapter in Path("/sys/class/infiniband").glob("*")
    }
    names = ("model", "firmware", "board")
    return {
        "architecture": os.uname().machine,
        "model": model,
        "side": side,
        "adapters": [dict(zip(names, adapter, strict=True)) for adapter in sorted(adapters)],
    }


def _read(path: Path) -> str:
    """Return the text of a file of sysfs, or nothing if it is not there or has other characters."""
    try:
        text = path.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
    return text if _MODEL.fullmatch(text) else ""
