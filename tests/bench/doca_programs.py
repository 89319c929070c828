# SPDX-License-Identifier: Apache-2.0
"""Builds others' DOCA programs with softdoca, unmodified, and prints what they lack.

    python tests/bench/doca_programs.py CHECKOUT... --json out.json

Each C and C++ file of a checkout that includes a header of DOCA is checked by the compiler, with
the API of one release after the other until it compiles; then each folder with a meson.build,
CMakeLists.txt or Makefile of a project is built by it, in a temporary copy of the tracked files,
with the release that most files chose. A built program is an executable that is linked with a
library of DOCA. Meanwhile /opt/mellanox/doca is softdoca, in a mount namespace; with --samples its
`samples` and `applications` are those of a clone of NVIDIA-DOCA/doca-samples, whose files many
programs include.

Needs meson, ninja, cmake, unshare, and what the programs need. Nothing here passes or fails a test.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from doca_samples import MISSING, environment_for

SOURCES = (".c", ".cc", ".cpp", ".cxx")
USES_DOCA = re.compile(r'^\s*#\s*include\s*[<"]doca_\w+\.h', re.MULTILINE)
OF_SAMPLES = [f"/opt/mellanox/doca/{name}" for name in ("", "samples", "applications/common")]
ERROR = re.compile(r"^.*(?:ERROR:|error:|No package|undefined reference|Error 1).*", re.MULTILINE)
RELEASES = ["3.3", "2.9", "2.5", "2.2", "1.3"]
ABSENT = re.compile(r"softdoca has no (doca_\w+)")
# Runs its arguments where /opt/mellanox/doca is the folder $DOCA.
IN_OPT = """
set -e
mount -t tmpfs none /opt
mkdir -p /opt/mellanox/doca
mount --bind "$DOCA" /opt/mellanox/doca
exec "$@"
"""
PROJECT = re.compile(r"^\s*project\s*\(", re.MULTILINE | re.IGNORECASE)
PROJECTS = {
    "meson.build": (PROJECT, ["meson setup b", "ninja -k0 -C b"]),
    "CMakeLists.txt": (PROJECT, ["cmake -S . -B b", "cmake --build b -- -k"]),
    "Makefile": (re.compile(r"doca"), ["make -k"]),
}  # fmt: skip


@dataclass
class Repository:
    """What came of a checkout.

    `failed` has the error of each project that was not built as a whole, `lacks` the number of
    files that lack a name.
    """

    name: str
    commit: str
    api: str
    files: int
    compiled: int
    programs: list[str]
    failed: dict[str, str]
    lacks: dict[str, int]


def main() -> int:
    """Build and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="CHECKOUT")
    parser.add_argument("--samples", type=Path, metavar="CLONE", help="of NVIDIA-DOCA/doca-samples")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="the results, one checkout a line"
    )
    options = parser.parse_args()
    found: list[Repository] = []
    for checkout in options.checkouts:
        with tempfile.TemporaryDirectory(prefix="doca-programs-") as folder:
            found.append(of_checkout(checkout, options.samples, Path(folder)))
        print(row(found[-1]), file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(record(found))
    print(markdown(found))
    return 0


def of_checkout(checkout: Path, samples: Path | None, folder: Path) -> Repository:
    """Check the files of a checkout, and build its projects, in a folder."""
    git = ["git", "-C", str(checkout)]
    commit = subprocess.check_output([*git, "log", "-1", "--format=%h"], text=True).strip()
    source = folder / "source"
    source.mkdir()
    tracked = subprocess.check_output([*git, "ls-files", "-z"], text=True).split("\0")
    for name in tracked:
        if (checkout / name).is_file():  # a partial clone lacks some
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(checkout / name, source / name)
    texts = {path: path.read_text(errors="replace") for path in sorted(source.rglob("*.[chCH]*"))
             if path.is_file() and path.suffix in (*SOURCES, ".h", ".hpp")}  # fmt: skip
    headers = {path.name for path, text in texts.items() if USES_DOCA.search(text)}
    quoted = re.compile(r'#\s*include\s*"(?:[^"]*/)?([^"/]+)"')
    uses = [path for path, text in texts.items() if path.suffix in SOURCES
            and (USES_DOCA.search(text) or headers & set(quoted.findall(text)))]  # fmt: skip
    with_headers = [path.parent for path in texts if path.suffix in (".h", ".hpp")]
    folders = sorted({up for path in with_headers for up in (path, *path.parents)
                      if up.is_relative_to(source)})  # fmt: skip
    # Files that lack names are checked again with another release, and keep the shorter list.
    lacks = {path: ["?"] * 999 for path in uses}
    of_api: Counter[str] = Counter()
    builds = {}
    for api in RELEASES:
        again = [path for path, names in lacks.items() if names]
        builds[api] = Build(api, samples, folder, source)
        for path, names in zip(again, builds[api].check(again, folders), strict=True):
            of_api[api] += not names
            lacks[path] = min(lacks[path], names, key=len)
    api = max(builds, key=lambda api: of_api[api])
    failed = builds[api].projects()
    counts = dict(Counter(name for names in lacks.values() for name in names).most_common())
    compiled = sum(not names for names in lacks.values())
    programs = sorted(builds[api].programs())
    return Repository(checkout.name, commit, api, len(uses), compiled, programs, failed, counts)


class Build:
    """The environment in which programs of a release are built."""

    def __init__(self, api: str, samples: Path | None, folder: Path, source: Path) -> None:
        self.source = source
        self.environment = environment_for(f"{api}.0")
        home = Path(self.environment["CUDA_PATH"]).parent
        include = home / "include"
        opt = folder / f"doca-{api}"
        for name in ("samples", "applications"):
            (opt / name).mkdir(parents=True)
            if samples is not None:
                subprocess.run(["cp", "-rs", samples.resolve() / name, opt], check=True)
            if not (opt / name / "VERSION").exists():
                (opt / name / "VERSION").write_text(f"{api}.0\n")
        first = include / "workq" if api in ("2.2", "1.3") else include
        (opt / "include").symlink_to(first)
        (opt / "lib").mkdir()
        (opt / "lib" / f"{platform.machine()}-linux-gnu").symlink_to(home / "lib")
        modules = [path.stem for path in (home / "lib/pkgconfig").glob("doca-*.pc")]
        others = ["libdpdk", "glib-2.0", "json-c", "libbsd-overlay", "libibverbs"]
        cuda = [f"-I{path}" for path in (home / "cuda/targets").glob("*/include")]
        self.flags = [f"-I{first}", *cuda, "-DDOCA_ALLOW_EXPERIMENTAL_API"]
        for module in [*modules, *others]:
            done = subprocess.run(["pkg-config", "--cflags", module], env=self.environment,
                                  capture_output=True, text=True, check=False)  # fmt: skip
            self.flags += done.stdout.split()
        self.environment |= {"DOCA": str(opt)}
        self.environment["CFLAGS"] += " -w"

    def run(self, command: list[str], cwd: Path) -> str:
        """Run a command where /opt/mellanox/doca is softdoca; return what it prints."""
        inside = ["unshare", "-rm", "sh", "-c", IN_OPT, "sh", *command]
        done = subprocess.run(
            inside, cwd=cwd, env=self.environment, text=True, check=False, timeout=1200,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace",
        )  # fmt: skip
        return done.stdout if done.returncode else ""

    def check(self, files: list[Path], folders: list[Path]) -> list[list[str]]:
        """Return for each file the names that it lacks, none if it compiles."""

        def check_one(path: Path) -> list[str]:
            compiler = ["gcc"] if path.suffix == ".c" else ["g++", "-std=c++20"]
            near = [f for f in path.parents if f.is_relative_to(self.source)]
            rest = [f for f in folders if f not in near]
            include = [f"-I{folder}" for folder in (*near, *rest, *OF_SAMPLES)]
            command = [*compiler, "-fsyntax-only", "-w", "-Werror=implicit-function-declaration",
                       *self.flags, *include, str(path)]  # fmt: skip
            log = self.run(command, self.source)
            # what follows a header that is not there says nothing
            names = ABSENT.findall(log) or re.findall(r"error: (\S+): No such file", log)
            names = names or [name for found in MISSING.findall(log) for name in found if name]
            names = [name.removeprefix("struct ") for name in names]
            return sorted(set(names)) or ([] if not log else ["errors of the program"])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(check_one, files))

    def projects(self) -> dict[str, str]:
        """Build each project; return the first error of those that are not built as a whole."""
        failed = {}
        for name, (pattern, commands) in PROJECTS.items():
            for path in sorted(self.source.rglob(name)):
                if not pattern.search(path.read_text(errors="replace")):
                    continue
                logs = [self.run(shlex.split(command), path.parent) for command in commands]
                if any(logs):
                    log = "".join(logs).replace(f"{self.source}/", "")
                    failed[str(path.relative_to(self.source))] = (
                        ERROR.findall(log) or [log[-200:]]
                    )[0]
        return failed

    def programs(self) -> Iterator[str]:
        """Return the programs that the projects made."""
        for path in self.source.rglob("*"):
            if path.is_file() and not path.is_symlink() and is_program(path):
                yield str(path.relative_to(self.source))


def is_program(path: Path) -> bool:
    """Return whether a file is an executable that is linked with a library of DOCA."""
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return False
    told = subprocess.run(["readelf", "-ldW", path], capture_output=True, text=True, check=False)
    return "libdoca_" in told.stdout and "INTERP" in told.stdout


def record(found: list[Repository]) -> str:
    """Return the results as JSON, a checkout a line, with the command and the machine."""
    head = {"command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs"}  # fmt: skip
    rows = ",\n".join(json.dumps(asdict(each)) for each in found)
    return f'{json.dumps(head)[:-1]}, "repositories": [\n{rows}\n]}}\n'


def row(each: Repository) -> str:
    """Return the row of a repository in the table."""
    lacks = ", ".join(f"`{name}`" + (f" ({n})" if n > 1 else "") for name, n in each.lacks.items())
    head = f"| {each.name}, {each.commit} | {each.api} | {each.compiled} of {each.files}"
    return f"{head} | {len(each.programs)} | {lacks} |"


def markdown(found: list[Repository]) -> str:
    """Return the table of repositories, and that of the names which two or more of them lack."""
    lines = ["| repository | DOCA | files that compile | programs built | what is missing |",
             "|---|---|---|---|---|", *map(row, found), "", "| missing | repositories | files |",
             "|---|---|---|"]  # fmt: skip
    repositories = Counter(name for each in found for name in each.lacks)
    files: Counter[str] = Counter()
    for each in found:
        files.update(each.lacks)
    lines += [
        f"| `{name}` | {n} | {files[name]} |" for name, n in repositories.most_common() if n > 1
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
