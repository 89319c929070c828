"""Run a program with the recorder between it and DOCA."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

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
        OSError: The program cannot be run.
    """
    output = output.resolve()
    library = recorder_folder() / "libdoca_recorder.so"
    if output.exists():
        raise FileExistsError(f"{output} exists: remove it, or choose another file with --output")
    if not os.access(output.parent, os.W_OK):
        raise FileNotFoundError(f"{output.parent} is no folder that you may write to")
    preloaded = os.environ.get("LD_PRELOAD")
    environment = os.environ | {
        "LD_PRELOAD": f"{library} {preloaded}" if preloaded else str(library),
        "DGKIT_TRACE": str(output),
        "DGKIT_TRACE_MACHINE": json.dumps(_machine()),
    }
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _OF_TERMINAL}
    try:
        code = subprocess.call(command, env=environment, preexec_fn=_default_signals)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


def _default_signals() -> None:
    for number in (*_OF_TERMINAL, signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores the others
        signal.signal(number, signal.SIG_DFL)


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
