# SPDX-License-Identifier: Apache-2.0
"""`dgkit` with `--on`: the same job over GPU memory; one line and a code where there is none."""

import hashlib
import json
import os
import re
import subprocess
import sys

import pytest
from support.processes import cli
from support.processes.agents import agent

from dgkit import nccl
from dgkit.installation import install_command
from dgkit.report import BandwidthReport, LatencyReport

SMALL = ["--sizes", "64,64K", "--depths", "1,8", "--count", "100", "--seconds", "0.02"]
LABEL = "software DPU, GPU copy engine"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """One demo over a file of an odd size, in JSON."""
    home = tmp_path_factory.mktemp("home")
    (home / "file").write_bytes(os.urandom(9_000_001))
    done = cli.run(home, "demo", home / "file", "--on", "gpu", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), home, done


def test_the_file_goes_through_the_gpu_and_comes_back_as_it_was(result):
    found, home, done = result
    digest = hashlib.sha256((home / "file").read_bytes()).hexdigest()
    assert found["sha256"] == {"host": digest, "dpu": digest, "copy": digest}
    assert found["verified"] is True
    assert found["first_bytes"] == (home / "file").read_bytes()[:64].hex()
    assert found["place"] == "cuda:0"
    assert not done.stderr


def test_the_dpu_is_another_process_that_uses_the_gpu_and_is_called_software(result):
    found, _, _ = result
    assert found["host"]["pid"] != found["dpu"]["pid"]
    assert (found["provider"], found["label"]) == ("cuda", LABEL)
    assert found["dpu"]["engine"] == "GPU 0, dgkit fake GPU"
    for row in (*found["latency"], found["bandwidth"]):
        assert row["label"] == LABEL
        assert row["floor_kind"] == "the driver's own copy, bare C loop"
        assert row["machine"]["engine"].startswith("GPU 0, dgkit fake GPU")


def test_nothing_is_left(result):
    found, home, _ = result
    assert cli.files_under(home) == [str(home / "file")]
    assert not cli.alive(found["dpu"]["pid"])


def test_a_person_sees_where_the_bytes_are_and_who_moves_them(tmp_path):
    done = cli.run(tmp_path, "demo", "--on", "cuda:0", "--quick")
    assert done.returncode == 0, done.stderr
    for words in (
        f"{LABEL} (provider cuda)", "place cuda:0, both regions", "into a GPU region",
        "equal on both sides", f"Latency of one write, µs ({LABEL})", "x floor",
    ):  # fmt: skip
        assert words in done.stdout
    assert "hardware" not in done.stdout


@pytest.mark.parametrize(("on", "provider"), [("pinned", "soft"), ("auto", "cuda")])
def test_other_places_are_moved_by_the_provider_that_reaches_them(tmp_path, on, provider):
    (tmp_path / "one").write_bytes(b"x")
    args = ["demo", tmp_path / "one", "--on", on, "--quick", "--json"]
    found = json.loads(cli.run(tmp_path, *args).stdout)
    assert found["verified"]
    assert found["provider"] == provider
    assert found["place"] == ("pinned" if on == "pinned" else "cuda:0")
    assert bool(found["chosen"]) is (on == "auto")


def test_memory_of_the_second_gpu_is_copied_by_the_second_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("DGKIT_FAKE_CUDA", "gpus=2")
    done = cli.run(tmp_path, "demo", "--on", "cuda:1", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["place"], found["verified"]) == ("cuda:1", True)
    assert found["dpu"]["engine"] == "GPU 1, dgkit fake GPU"


def without_waiting(err: str) -> str:
    """Return stderr without what it says where a busy machine starts the driver late."""
    return re.sub(r"\Adgkit: waiting for the NVIDIA driver.*\n", "", err)


FAULTS = {
    "cuInit=100": "sees no GPU",
    "cuInit=34": "stub",
    "cuInit=802": "not ready",
    "cuInit=803": "different driver versions",
    "cuInit=999": "the driver reports an unknown failure",
    "cuDeviceGetCount=999": "the driver reports an unknown failure",
    "cuDevicePrimaryCtxRetain=46": "another process uses the GPU exclusively",
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("command", ["demo", "bench"])
def test_a_driver_that_cannot_be_used_is_one_line_and_exit_code_3(
    tmp_path, command, fault, monkeypatch
):
    monkeypatch.setenv("DGKIT_FAKE_CUDA", fault)
    done = cli.run(tmp_path, command, "--on", "gpu")
    assert done.returncode == 3
    assert not done.stdout
    (line,) = without_waiting(done.stderr).splitlines()
    assert FAULTS[fault] in line


def without(path, *args, home):
    """Run the command in a process without the folders of `path` and of PYTHONPATH."""
    kept = [entry for entry in sys.path if path not in entry]
    program = f"import sys; sys.path[:] = {kept!r}; from dgkit.cli import main; sys.exit(main())"
    bare = cli.environment(home)
    bare.pop("PYTHONPATH", None)
    if path == "libcuda":
        bare.pop("LD_LIBRARY_PATH")
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        env=bare, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


MISSING = {
    "fake_cuda": f"CuPy is not installed: `{install_command('cuda13')}`",
    "libcuda": "libcuda.so.1 is missing",
}


@pytest.mark.parametrize(("path", "words"), MISSING.items(), ids=["CuPy", "libcuda"])
def test_what_is_not_installed_is_named_with_what_to_install(tmp_path, path, words):
    done = without(path, "demo", "--on", "gpu", home=tmp_path)
    assert done.returncode == 3
    assert not done.stdout
    assert words in done.stderr
    done = without(path, "demo", "--on", "auto", "--quick", "--json", home=tmp_path)
    found = json.loads(done.stdout)
    assert (found["place"], found["provider"], found["verified"]) == ("host", "soft", True)
    assert words in found["chosen"]


def test_a_gpu_that_is_full_is_told_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("DGKIT_FAKE_CUDA", "total=8388608")
    done = cli.run(tmp_path, "demo", "--on", "gpu")
    assert done.returncode == 1
    assert "16,777,216 bytes requested" in done.stderr
    assert not cli.files_under(tmp_path)


def test_every_combination_is_measured_beside_the_driver_s_own_copy(tmp_path):
    done = cli.run(tmp_path, "bench", "--on", "gpu", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["place"] == "cuda:0"
    assert [(row["op"], row["size"]) for row in found["latency"]] == [
        (op, size) for op in ("write", "read") for size in (64, 65536)
    ]
    assert len(found["bandwidth"]) == 8
    for row in found["latency"]:
        assert len(row["floor_ns"]) == 2
        assert LatencyReport.from_dict(row).to_dict() == row
    for row in found["bandwidth"]:
        assert row["bytes"] == row["ops"] * row["size"] > 0
        assert len(row["floor_gb_per_s"]) == 2
        assert BandwidthReport.from_dict(row).to_dict() == row


def test_a_bench_for_a_person_names_the_driver_s_copy_and_the_gpu(tmp_path):
    done = cli.run(tmp_path, "bench", "--on", "auto", *SMALL, "--ops", "write")
    assert done.returncode == 0, done.stderr
    for words in ("auto: GPU memory", "of driver", LABEL, "GPU 0, dgkit fake GPU", "cuda:0"):
        assert words in done.stdout
    assert "memcpy" not in done.stdout


def test_a_bench_against_an_agent_over_the_gpu(tmp_path):
    with cli.started(tmp_path, "serve", "--provider", "cuda") as process:
        address = process.stdout.readline().strip()
        args = ["--address", address, "--on", "gpu", *SMALL, "--json"]
        done = cli.run(tmp_path, "bench", *args)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["info"]["dpu"]["pid"] == process.pid
        cli.send(process, "SIGTERM")
        process.wait(10)


def test_an_agent_that_reaches_no_gpu_is_told_by_name(tmp_path):
    with cli.started(tmp_path, "serve") as process:
        address = process.stdout.readline().strip()
        done = cli.run(tmp_path, "bench", "--address", address, "--on", "gpu", *SMALL)
        assert done.returncode == 3
        assert "dgkit serve --provider cuda" in done.stderr
        cli.send(process, "SIGTERM")
        process.wait(10)


def test_info_shows_the_gpu(tmp_path):
    facts = json.loads(cli.run(tmp_path, "info", "--json").stdout)
    (gpu,) = facts["gpu"]["gpus"]
    assert (gpu["index"], gpu["name"], gpu["dma_buf"]) == (0, "dgkit fake GPU", True)
    assert facts["gpu"]["why"] == ""
    providers = {provider["name"]: provider for provider in facts["providers"]}
    assert providers["cuda"]["usable"]
    assert providers["cuda"]["label"] == LABEL
    shown = cli.run(tmp_path, "info").stdout
    for words in ("cuda:0  dgkit fake GPU", "1 GiB of 1 GiB free", "BAR1", "dma-buf: yes"):
        assert words in shown


def test_info_says_why_a_driver_cannot_be_used_and_what_else_can(tmp_path, monkeypatch):
    monkeypatch.setenv("DGKIT_FAKE_CUDA", "cuInit=803")
    done = cli.run(tmp_path, "info")
    assert done.returncode == 0
    assert "different driver versions" in done.stdout.split("GPU memory")[1]
    assert "not usable" in done.stdout.split("cuda ")[1].splitlines()[0]


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_ctrl_c_while_the_gpu_s_memory_is_timed_leaves_nothing(signal, code, tmp_path):
    with cli.started(tmp_path, "demo", "--on", "gpu") as process:
        (dpu,) = cli.until(lambda: cli.children_of(process.pid))
        cli.until(lambda: any("equal on both sides" in line for line in process.stdout))
        cli.send(process, signal)
        _, err = cli.ended(process)
    assert process.returncode == code
    assert without_waiting(err) == ("\ndgkit: stopped\n" if code == 130 else "")
    cli.until(lambda: not cli.alive(dpu), seconds=1)
    assert not cli.files_under(tmp_path)


@pytest.mark.parametrize("ranks_are", ["threads", "processes"])
def test_an_agent_moves_the_bytes_of_nccl_between_gpu_memory(ranks_are):
    processes = ranks_are == "processes"
    with agent(provider="cuda") as dpu:
        done = nccl.selftest(3, rounds=10, gpu=True, processes=processes, dpu=dpu.address)
        assert done["memory"] == "GPU"
        lost = nccl.selftest(2, rounds=3, gpu=True, processes=True, kill=True, dpu=dpu.address)
    assert done["puts"] + done["gets"] > 10 * 3 * 6
    assert lost["loss_noticed_ms"] <= 2000


def test_an_agent_of_host_memory_says_how_to_serve_nccl_on_a_gpu():
    with agent() as dpu, pytest.raises(AssertionError, match="--provider cuda"):
        nccl.selftest(2, rounds=1, gpu=True, dpu=dpu.address)
