# SPDX-License-Identifier: Apache-2.0
"""Runs NCCL's device API examples with dgkit as NCCL's RMA plugin.

    python tests/hardware/nccl_examples.py build NCCL FOLDER
    python tests/hardware/nccl_examples.py run FOLDER [--plugin FILE|none] [--ranks 2,4]
                                               [--only NAME] [--ranks-are threads]
                                               [--times N] [--statistics]

`build` needs nvcc and NCCL's sources (2.30.4 or later), built with
`make -j src.build NVCC_GENCODE="-gencode=arch=compute_90,code=sm_90" ONLY_FUNCS="SendRecv"`.
`run` needs a GPU, and nothing of CUDA but its driver. With DGKIT_NCCL_DPU=ADDRESS of `dgkit serve
--provider cuda` the agent moves the bytes. `--statistics` prints what the plugin did in
each pass of NCCL's proxy. A signal once overtook its value in one of three runs of `comms` on one
GPU, so those runs are many:
`run FOLDER --ranks 2,3 --ranks-are processes --only comms,rounds --times 50`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = {
    "alltoall_gin": "06_device_api/02_alltoall_gin",
    "alltoall_hybrid": "06_device_api/03_alltoall_hybrid",
    "rmsnorm_gin": "07_kernel_fusion/03_rmsnorm_gin",
}
# dgkit's own: what a kernel's puts cost; a thousand rounds; several communicators, and an abort;
# rounds in which a rank is killed
LATENCY, ROUNDS, COMMS, KILLED = "latency", "rounds", "comms", "killed_rank"
LIBRARY = "libnccl.so.2"
ONE_RUN_S = 60
# On one GPU: a kernel that fills it and waits for that of the other rank, which in the same context
# cannot start beside it; and kernels that wait for each other a thousand times, which take turns of
# milliseconds in two contexts.
ONE_GPU = {("rmsnorm_gin", "threads"), (LATENCY, "processes")}


def build(nccl: Path, folder: Path) -> int:
    """Compile the examples, unmodified but for the part that starts the ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    examples = nccl / "docs/examples"
    shutil.copy(nccl / "build/lib" / LIBRARY, folder / LIBRARY)
    subprocess.run(["strip", folder / LIBRARY], check=True)
    own = Path(__file__).with_name("nccl")
    sources = {name: examples / source / "c/main.cu" for name, source in EXAMPLES.items()}
    sources |= {name: own / f"{name}.cu" for name in (LATENCY, ROUNDS, COMMS)}
    for name, source in sources.items():
        command = ["nvcc", "-O2", "-std=c++17", "-arch=sm_90", "-cudart=static"]
        # Ranks that are threads share a context, and would share its default stream.
        command += ["-default-stream", "per-thread", str(source), str(own / "ranks.cc")]
        command += [f"-I{nccl / 'build/include'}", f"-I{examples / 'common/include'}"]
        command += [f"-I{examples / '07_kernel_fusion/include'}", f"-L{nccl / 'build/lib'}"]
        subprocess.run([*command, "-lnccl", "-lpthread", "-o", str(folder / name)], check=True)
    return 0


def environment(folder: Path, plugin: str, ranks: int, ranks_are: str) -> dict[str, str]:
    """Return what the programs and NCCL need."""
    return os.environ | {
        "LD_LIBRARY_PATH": f"{folder.resolve()}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "NCCL_RMA_PLUGIN": plugin,
        "NCCL_GIN_TYPE": "2",
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "NET",
        "RANKS": str(ranks),
        "RANKS_ARE": ranks_are,
    }


def print_statistics(folder: str) -> None:
    """Print what each rank's plugin did, with times in us."""
    for path in sorted(Path(folder).glob("rank-*.json")):
        rank = json.loads(path.read_bytes())
        each_us = rank["open_ns"] / max(rank["passes"], 1) / 1e3
        print(f"    rank {rank['rank']}: {rank['passes']} passes of {each_us:.2f} us")
        for name in ("submissions", "signal_writes"):
            count, items, call_ns, busy_ns = (max(n, 1) for n in rank[name].values())
            print(
                f"      {count} {name} of {items / count:.1f}: call {call_ns / count / 1e3:.2f}"
                f" us, {call_ns / items / 1e3:.2f} an item; busy {busy_ns / count / 1e3:.2f} us"
            )
        for i, peer in enumerate(rank["peers"]):
            counts = [
                f"{peer[kind]['count']} {kind}, p50 {peer[kind]['p50_ns'] / 1e3:.1f} us"
                for kind in ("puts", "signals", "gets")
                if peer[kind]["count"]
            ]
            print(f"      to {i}: {'; '.join(counts)}; {peer['failed']} failed")


def run_one(
    folder: Path, plugin: str, name: str, ranks: int, ranks_are: str, statistics: str
) -> bool:
    """Run an example; print how it ended, and its output if it did not pass.

    `statistics`: an empty folder, or "".
    """
    start = time.monotonic()
    command = [str(folder.resolve() / (ROUNDS if name == KILLED else name))]
    variables = environment(folder, plugin, ranks, ranks_are)
    if name == KILLED:
        variables["KILL"] = "1"
    try:
        done = subprocess.run(
            command,
            env=variables | {"DGKIT_NCCL_STATISTICS": statistics} if statistics else variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ONE_RUN_S,
            text=True,
            check=False,
        )
        output, status = done.stdout, done.returncode
    except subprocess.TimeoutExpired as exc:
        raw = exc.stdout or b""
        output, status = raw.decode() if isinstance(raw, bytes) else raw, -1
    words = set(re.findall(r"PASSED|SUCCESS|FAILED", output))
    passed = status == 0 and bool(words) and "FAILED" not in words
    seconds = time.monotonic() - start
    print(f"{name:16} {ranks} {ranks_are:10} {'PASSED' if passed else 'failed'} {seconds:.1f} s")
    if name in (LATENCY, KILLED):
        print("".join(f"    {line}\n" for line in output.splitlines() if line.startswith("rank ")))
    if statistics:
        print_statistics(statistics)
    if not passed:
        print(f"--- exit status {status} (-1: longer than {ONE_RUN_S} s)\n{output[-6000:]}\n---")
    sys.stdout.flush()
    return passed


def run(given: argparse.Namespace, plugin: str) -> int:
    """Run each example with ranks as threads and as processes."""
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    gpus = len(listed.stdout.splitlines())
    results = []
    for count in map(int, given.ranks.split(",")):
        for ranks_are in given.ranks_are.split(","):
            for name in given.only.split(",") * given.times:
                if count > gpus and (name, ranks_are) in ONE_GPU:
                    continue
                if name == KILLED and (ranks_are == "threads" or count == 1):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    statistics = folder if given.statistics else ""
                    results.append(
                        run_one(given.folder, plugin, name, count, ranks_are, statistics)
                    )
    print(f"{sum(results)} of {len(results)} runs passed")
    return 0 if all(results) else 1


def main() -> int:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    actions = parser.add_subparsers(dest="action", required=True)
    builder = actions.add_parser("build")
    builder.add_argument("nccl", type=Path)
    builder.add_argument("folder", type=Path)
    runner = actions.add_parser("run")
    runner.add_argument("folder", type=Path)
    runner.add_argument("--plugin", help="of dgkit by default; none: NCCL's own, over sockets")
    runner.add_argument("--ranks", default="1,2")
    runner.add_argument("--ranks-are", default="processes,threads")
    runner.add_argument("--only", default=",".join((*EXAMPLES, ROUNDS, COMMS, KILLED, LATENCY)))
    runner.add_argument("--times", type=int, default=1)
    runner.add_argument("--statistics", action="store_true")
    given = parser.parse_args()
    if given.action == "build":
        return build(given.nccl, given.folder)
    plugin = given.plugin
    if plugin is None:
        from dgkit.nccl import plugin_path

        plugin = str(plugin_path())
    elif plugin != "none":
        plugin = str(Path(plugin).resolve())
    return run(given, plugin)


if __name__ == "__main__":
    sys.exit(main())
