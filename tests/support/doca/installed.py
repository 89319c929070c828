# SPDX-License-Identifier: Apache-2.0
"""Build and run a DOCA program with only the installed package's `dgkit softdoca`.

    python tests/support/doca/installed.py

The exit status is 0 if the program copied its input.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

DGKIT = Path(sys.executable).with_name("dgkit")


def shell(script: str, folder: Path) -> str:
    """Return the stdout of a shell script, run with `dgkit` on the path, as for a user."""
    path = f"{DGKIT.parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", "-eu", "-c", script]
    environment = os.environ | {"PATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main() -> int:
    """Build the samples in a folder of their own and run one of them, in both ways."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        where = shlex.quote(str(folder / "samples"))
        build = f'dgkit softdoca samples {where}; eval "$(dgkit softdoca env)"; make -s -C {where}'
        shell(build, folder)
        run = f"{where}/local_copy --text installed"
        said = shell(f'eval "$(dgkit softdoca env)"; {run}', folder)
        said += shell(f"dgkit softdoca run -- {run}", folder)
    if said.count('copied: "installed"') != 2:
        print(f"a DOCA program did not copy what it was given:\n{said}", file=sys.stderr)
        return 1
    print("a DOCA program was built against the installed softdoca, and copied")
    return 0


if __name__ == "__main__":
    sys.exit(main())
