# SPDX-License-Identifier: Apache-2.0
"""Build the fake CUDA driver: a libcuda.so.1 with no GPU behind it, for tests only.

Run `python tests/support/fake_cuda/build.py FOLDER`, then a program with LD_LIBRARY_PATH=FOLDER,
and with PYTHONPATH=tests/support/fake_cuda where it needs CuPy. gate.c documents DGKIT_FAKE_CUDA.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLAGS = (
    "-std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -pthread "
    "-shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs"
)


def build(folder: Path, *more: str) -> Path:
    """Build libcuda.so.1 in a folder and return the folder. `more`: compiler flags."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(map(str, HERE.glob("*.c")))
    made = folder / f"libcuda.so.1.{os.getpid()}"
    subprocess.run(["cc", *FLAGS.split(), *more, "-o", str(made), *sources], check=True)
    made.rename(folder / "libcuda.so.1")  # running processes keep the old one
    return folder


if __name__ == "__main__":
    build(Path(sys.argv[1]), *sys.argv[2:])
