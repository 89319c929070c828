"""A program for DOCA, built against the installed package and run: by its `dgkit softdoca` alone.

    python tests/support/doca/installed.py

Exit status 0 if it copied what it was given.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

DGKIT = Path(sys.executable).with_name("dgkit")


def shell(script: str, folder: Path) -> str:
    """What a shell script says on stdout. As for a user: `dgkit` is on the path."""
    path = f"{DGKIT.parent}{os.pathsep}{os.environ['PATH']}"
    command = ["sh", "-eu", "-c", script]
    environment = os.environ | {"PATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main() -> int:
    """Builds the samples in a folder of their own and runs one, in both ways."""
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
