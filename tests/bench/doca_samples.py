# SPDX-License-Identifier: Apache-2.0
"""Builds NVIDIA's samples of several releases with softdoca, and prints what each lacks.

    git clone https://github.com/NVIDIA-DOCA/doca-samples
    python tests/bench/doca_samples.py doca-samples 3.0.0 3.3.0
    python tests/bench/doca_samples.py doca-samples 3.2.0 --libraries eth,dma --json out.json

Each sample is built by its own meson file, in a temporary copy of the tag's files, with the API of
the tag's release. Builds that FILE has from the same headers are not repeated, so a run that was
stopped goes on. Needs meson, ninja, and what the samples need (json-c, DPDK). Nothing here passes
or fails a test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

LIBRARIES = "comch,common,dma,eth,gpunetio,rdma,verbs"
DGKIT = Path(sys.executable).with_name("dgkit")
# What a compiler, linker or meson says of a name that is not there.
MISSING = re.compile(
    r"implicit declaration of function '(\w+)'|'(\w+)' undeclared|has no member named '(\w+)'"
    r"|unknown type name '(\w+)'|(?:storage size of|invalid use of undefined type) '([\w ]+)'"
    r"|(?:few|many) arguments to function '(\w+)'|(\S+): No such file"
    r"|undefined reference to `(\w+)'|ependency \"?([\w-]+)\"? not found"
    r"|passing argument \d+ of '(\w+)'|'(\w+)' was not declared|identifier '(\w+)' is undefined"
)


@dataclass
class Build:
    """What came of a sample: the names that it lacks, none if it was built."""

    tag: str
    library: str
    sample: str
    built: bool
    missing: list[str]


def main() -> int:
    """Build and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", type=Path, help="a clone of NVIDIA-DOCA/doca-samples")
    parser.add_argument("tags", nargs="+", metavar="TAG", help="tags or commits of it")
    parser.add_argument("--libraries", default=LIBRARIES, help="by default %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the result of each sample")
    options = parser.parse_args()
    headers = digest_of_headers()
    known = earlier(options.json, headers) if options.json else []
    builds: list[Build] = []
    for tag in options.tags:
        with tempfile.TemporaryDirectory(prefix="doca-samples-") as folder:
            libraries = options.libraries.split(",")
            for build in of_tag(options.checkout, tag, libraries, Path(folder), known):
                builds.append(build)
                state = "built" if build.built else f"lacks {', '.join(build.missing)}"
                print(f"{tag} {build.library}/{build.sample}: {state}", file=sys.stderr)
                if options.json:
                    rest = [old for old in known if old not in builds]
                    options.json.write_text(record([*builds, *rest], headers))
    print(markdown(builds))
    return 0


def digest_of_headers() -> str:
    """Return a digest of what a build depends on: softdoca's headers, which name all functions."""
    command = [DGKIT, "softdoca", "env", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    digest = hashlib.sha256()
    for path in sorted(Path(json.loads(done.stdout)["include"]).rglob("*.*")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def earlier(file: Path, headers: str) -> list[Build]:
    """Return the builds that a file has from these headers."""
    found = json.loads(file.read_text()) if file.exists() else {}
    return [
        Build(group["tag"], group["library"], sample, sample in group["built"],
              group["missing"].get(sample, []))
        for group in (found["builds"] if found.get("headers") == headers else [])
        for sample in (*group["built"], *group["missing"])
    ]  # fmt: skip


def of_tag(
    checkout: Path, tag: str, libraries: list[str], folder: Path, known: list[Build]
) -> Iterator[Build]:
    """Build the samples of a tag in a folder, but those that are known."""
    files = subprocess.Popen(["git", "-C", checkout, "archive", tag], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", folder], stdin=files.stdout, check=True)
    if files.wait():
        raise SystemExit(f"{checkout} has no tag {tag}")
    environment = environment_for((folder / "VERSION").read_text())
    samples = [
        (library, source)
        for library in libraries
        for source in sorted(folder.glob(f"samples/doca_{library}/*/meson.build*"))
        # 3.3 has two: the one of DOCA's own build, and the one that users get.
        if source.suffix == ".public" or not source.with_suffix(".build.public").exists()
        if "project(" in source.read_text()
    ]

    def build(sample: tuple[str, Path]) -> Build:
        library, source = sample
        for old in known:
            if (old.tag, old.library, old.sample) == (tag, library, source.parent.name):
                return old
        (source.parent / "meson.build").write_text(source.read_text())
        log = meson(source.parent, environment)
        names = {name.removeprefix("struct ") for f in MISSING.findall(log) for name in f if name}
        errors = re.findall(r"(?:ERROR|error): (.*)", log)
        return Build(tag, library, source.parent.name, not log, sorted(names) or errors[:1])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(build, samples)


def environment_for(release: str) -> dict[str, str]:
    """Return the environment that builds programs of a release, such as 3.1.0."""
    api = ".".join(release.split(".")[:2])
    command = [DGKIT, "softdoca", "env", "--emulated-gpu", "--json"]
    chosen = subprocess.run([*command, "--api", api], capture_output=True, text=True, check=False)
    if chosen.returncode:  # no API of that release
        chosen = subprocess.run(command, capture_output=True, text=True, check=True)
    environment: dict[str, str] = json.loads(chosen.stdout)["environment"]
    # errors to newer compilers, and how a missing function shows
    flags = "-Werror=implicit-function-declaration -Werror=incompatible-pointer-types"
    environment["PATH"] += f"{os.pathsep}{DGKIT.parent}"  # for the script nvcc
    return {**os.environ, **environment, "LC_ALL": "C", "CFLAGS": flags}


def meson(folder: Path, environment: dict[str, str]) -> str:
    """Build a folder by its meson file; return the log if that fails, else nothing."""
    for command in (["meson", "setup", "build"], ["ninja", "-k0", "-C", "build"]):
        done = subprocess.run(
            command, cwd=folder, env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        if done.returncode:
            return done.stdout
    return ""


def record(builds: list[Build], headers: str) -> str:
    """Return the builds as JSON, a library of a tag a line, with the command and the machine."""
    head = {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "headers": headers,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
    }
    groups: dict[tuple[str, str], dict[str, object]] = {}
    for tag, library in dict.fromkeys((build.tag, build.library) for build in builds):
        group = [build for build in builds if (build.tag, build.library) == (tag, library)]
        groups[tag, library] = {
            "tag": tag,
            "library": library,
            "built": [build.sample for build in group if build.built],
            "missing": {build.sample: build.missing for build in group if not build.built},
        }
    rows = ",\n".join(json.dumps(group) for group in groups.values())
    return f'{json.dumps(head)[:-1]}, "builds": [\n{rows}\n]}}\n'


def markdown(builds: list[Build]) -> str:
    """Return the table: a row for each tag and library."""
    lines = ["| samples | library | builds | what is missing |", "|---|---|---|---|"]
    for tag in dict.fromkeys(build.tag for build in builds):
        of_it = [build for build in builds if build.tag == tag]
        groups = {
            name: [b for b in of_it if b.library == name] for name in {b.library for b in of_it}
        }
        for name, group in [*sorted(groups.items()), ("all", of_it)]:
            built = sum(build.built for build in group)
            counts = Counter(name for build in group for name in build.missing)
            missing = ", ".join(
                f"`{name}`" + (f" ({count})" if count > 1 else "")
                for name, count in counts.most_common()
            )
            what = "" if name == "all" else missing
            lines.append(f"| {tag} | {name} | {built} of {len(group)} | {what} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
