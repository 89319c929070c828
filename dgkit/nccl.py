"""NCCL's RMA plugin: where it is, what makes NCCL load it, and a test of it without NCCL.

NCCL 2.30.3 and later hand the puts, gets and signals that kernels post (GIN) to such a plugin, if
no network adapter takes them from the GPU itself. dgkit's is a C library, over the C core.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from .files import beside_core

__all__ = ["environment", "plugin_path", "selftest"]


def plugin_path() -> Path:
    """Return the path of libnccl-rma-dgkit.so.

    Raises:
        FileNotFoundError: It is not installed.
    """
    return _installed("libnccl-rma-dgkit.so")


def environment() -> dict[str, str]:
    """Return the environment variables with which NCCL loads the plugin.

    NCCL_MULTI_RANK_GPU_ENABLE allows several ranks on one GPU.
    """
    return {
        "NCCL_RMA_PLUGIN": str(plugin_path()),
        "NCCL_GIN_TYPE": "2",  # NCCL's proxy takes the operations from the kernel
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    }


def selftest(
    ranks: int = 4,
    *,
    rounds: int = 100,
    seed: int = 1,
    processes: bool = False,
    kill: bool = False,
    gpu: bool = False,
) -> dict[str, Any]:
    """Drive the plugin in the place of NCCL, and check each byte and each counter.

    Args:
        ranks: Number of ranks, 1 to 16; 2 at least with `kill`.
        rounds: Number of rounds of 12 random operations a rank.
        seed: Of the operations.
        processes: Whether the ranks are processes; threads otherwise.
        kill: Whether a rank is killed in the end, which the others must notice within 2 s. Needs
            `processes`.
        gpu: Whether the memory is the first GPU's.

    Returns:
        What was done: the counts `puts`, `gets`, `signals`, `bytes` and `refused_calls`, and
        `loss_noticed_ms`.

    Raises:
        AssertionError: Something was wrong; the message says what.
    """
    command = [_installed("nccl-selftest"), "--plugin", plugin_path(), "--ranks", ranks]
    command += ["--rounds", rounds, "--seed", seed]
    flags = {"--processes": processes, "--kill": kill, "--gpu": gpu}
    command += [flag for flag, given in flags.items() if given]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(done.stderr.strip() or f"the program ended with {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _installed(name: str) -> Path:
    path = beside_core("_nccl") / name
    if not path.exists():
        raise FileNotFoundError(f"{path} is not installed: `pip install .` builds it, on Linux")
    return path
