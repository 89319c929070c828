# SPDX-License-Identifier: Apache-2.0
"""`dgkit doctor --try` over fakes of CUDA and libibverbs and softdoca finds planted faults."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.processes.agents import agent
from support.processes.children import child

from dgkit.cli import main
from dgkit.doctor.experiments.perform import perform
from dgkit.doctor.experiments.plan import Experiment
from dgkit.doctor.finding import Verdict

FAKE_VERBS = Path(__file__).parents[1] / "support/fake_verbs/fake_verbs.c"
CONTEXT = ("cuda-context", "0")
COPY = ("gpu-copy", "0", "1")
DMABUF = ("register-dmabuf", "mlx5_0", "0")
PEERMEM = ("register-peermem", "mlx5_0", "0")
SOFTDOCA = ("doca-dma", "softdoca", "0")
HOST = ("doca-dma", "softdoca", "host")

# The experiment, the fault (that of a fake driver or of libibverbs), and what is said of it.
FAULTS = [
    (CONTEXT, "cuInit=802", "cuInit: CUDA_ERROR_SYSTEM_NOT_READY"),
    (CONTEXT, "cuInit=803", "cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    (CONTEXT, "cuInit=999", "cuInit: CUDA_ERROR_UNKNOWN"),
    (CONTEXT, "gpus=0", "cuInit: CUDA_ERROR_NO_DEVICE"),
    (CONTEXT, "cuDevicePrimaryCtxRetain=46", "CtxRetain: CUDA_ERROR_DEVICE_UNAVAILABLE"),
    (CONTEXT, "cuDevicePrimaryCtxRetain=2", "CtxRetain: CUDA_ERROR_OUT_OF_MEMORY"),
    (CONTEXT, "cuDevicePrimaryCtxRetain=214", "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (CONTEXT, "cuMemAlloc=2", "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"),
    (CONTEXT, "cuMemcpyHtoD=719", "cuMemcpyHtoD_v2: CUDA_ERROR_LAUNCH_FAILED"),
    (CONTEXT, "cuMemcpyDtoH=700", "cuMemcpyDtoH_v2: CUDA_ERROR_ILLEGAL_ADDRESS"),
    (CONTEXT, "lost@0", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (CONTEXT, "wrong=host", "reported success, and 1 of 65536 bytes are wrong, from byte 65535"),
    (COPY, "gpus=1", "cuDeviceGet: CUDA_ERROR_INVALID_DEVICE"),
    (COPY, "gpus=2,peer=0", "CUDA gives no peer access; a copy through host memory"),
    (COPY, "gpus=2,cuDeviceCanAccessPeer=999", "cuDeviceCanAccessPeer: CUDA_ERROR_UNKNOWN"),
    (COPY, "gpus=2,cuCtxEnablePeerAccess=217", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"),
    (COPY, "gpus=2,cuCtxEnablePeerAccess=205@2", "CUDA_ERROR_MAP_FAILED"),
    (COPY, "gpus=2,cuMemcpyDtoDAsync=719", "cuMemcpyDtoDAsync_v2: CUDA_ERROR_LAUNCH_FAILED"),
    (COPY, "gpus=2,wrong=peer", "from GPU 0 to GPU 1 reported success, and 1 of 1048576 bytes"),
    (COPY, "gpus=2,peer=0,wrong=peer", "from GPU 0 to GPU 1 reported success, and 1 of 1048576"),
    (COPY, "gpus=2,peer=0,cuMemcpyPeerAsync=999", "cuMemcpyPeerAsync: CUDA_ERROR_UNKNOWN"),
    (COPY, "gpus=2,lost@2", "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (COPY, "gpus=2,cuDevicePrimaryCtxRetain=2@2", "CUDA_ERROR_OUT_OF_MEMORY"),
    (DMABUF, "cuMemGetHandleForAddressRange=801", "AddressRange: CUDA_ERROR_NOT_SUPPORTED"),
    (DMABUF, "ibv_reg_dmabuf_mr=95", "ibv_reg_dmabuf_mr: Operation not supported"),
    (DMABUF, "ibv_reg_dmabuf_mr=12", "ibv_reg_dmabuf_mr: Cannot allocate memory"),
    (DMABUF, "ibv_alloc_pd=1", "ibv_alloc_pd: Operation not permitted"),
    (PEERMEM, "ibv_reg_mr=14", "ibv_reg_mr: Bad address"),
    (PEERMEM, "ibv_reg_mr=12", "ibv_reg_mr: Cannot allocate memory"),
    (PEERMEM, "ibv_open_device=13", "ibv_open_device: Permission denied"),
    (PEERMEM, "none=1", "libibverbs does not list mlx5_0"),
    (SOFTDOCA, "cuMemcpyDtoHAsync=719", ""),
    (SOFTDOCA, "wrong=host", "the transfer reported success, and"),
]


@pytest.fixture(scope="session")
def verbs(tmp_path_factory):
    """Folders of libibverbs.so.1: one with ibv_reg_dmabuf_mr, and an older one."""
    folders = {}
    for name in ("new", "old"):
        folders[name] = tmp_path_factory.mktemp(name)
        target = folders[name] / "libibverbs.so.1"
        flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *(["-DOLD"] * (name == "old"))]
        subprocess.run(["cc", *flags, "-o", target, FAKE_VERBS], check=True)
    return folders


# Forks for each line, a fault and an experiment, so that each has its own drivers without the time
# of another import; the answer is what the experiment prints.
SERVER = """
import os, shlex, sys
from dgkit.doctor.experiments.program import main
for line in sys.stdin:
    fault, *query = shlex.split(line)
    if not os.fork():
        os.environ["DGKIT_FAKE_VERBS"] = os.environ["DGKIT_FAKE_CUDA"] = fault
        main(query)
    os.wait()
"""


@pytest.fixture(scope="module")
def answer(verbs):
    """A function that runs an experiment under a fault and returns whether it worked, and said."""
    path = f"{verbs['new']}:{os.environ['LD_LIBRARY_PATH']}"
    with child(SERVER, LD_LIBRARY_PATH=path) as server:
        yield lambda query, fault: json.loads(server.ask(f"{fault} {' '.join(query)}"))


def experiment(query: tuple[str, ...], **fields) -> Experiment:
    known = {"name": query[0], "subject": "GPU 0", "does": "", "data_path": "gpu", **fields}
    return Experiment(query=query, **known)


def with_libraries(monkeypatch, verbs: dict[str, Path], fault: str = "") -> None:
    folder = verbs["old" if fault == "old" else "new"]
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{folder}:{os.environ['LD_LIBRARY_PATH']}")
    variable = "DGKIT_FAKE_VERBS" if fault.startswith(("ibv_", "none")) else "DGKIT_FAKE_CUDA"
    monkeypatch.setenv(variable, fault)


@pytest.mark.parametrize(("query", "fault", "said"), FAULTS)
def test_a_planted_fault_is_found(query, fault, said, answer):
    found = answer(query, fault)
    assert (found["done"], said in found["said"]) == (False, True), found


@pytest.mark.parametrize(
    ("query", "fault", "said"),
    [
        (CONTEXT, "copy_us=60000000", "no result within 1 s"),
        (DMABUF, "ibv_reg_dmabuf_mr=-1", "no result within 1 s"),
        (DMABUF, "ibv_reg_dmabuf_mr=0", "a library crashed the process (signal 11)"),
        (DMABUF, "old", "this libibverbs has no ibv_reg_dmabuf_mr"),
    ],
)
def test_a_child_that_hangs_or_crashes_is_a_failure(query, fault, said, verbs, monkeypatch):
    with_libraries(monkeypatch, verbs, fault)
    found = perform(experiment(query), limit_s=1 if "no result" in said else 20)
    assert (found.verdict, said in found.said) == (Verdict.FAIL, True), found


@pytest.mark.parametrize("query", [CONTEXT, COPY, DMABUF, PEERMEM, SOFTDOCA, HOST])
def test_without_a_fault_each_experiment_works(query, answer):
    assert answer(query, "gpus=2")["done"]


def test_memory_of_another_machines_agent_is_written_and_read_back(answer):
    with agent(role="host") as host:
        said = answer(("rdma-peer", host.address, "''", "host", "soft"), "gpus=1")
        assert said == {"done": True, "said": "the data are right both ways, by soft"}
    said = answer(("rdma-peer", host.address, "''", "host", "soft"), "gpus=1")
    assert not said["done"]
    assert "no agent" in said["said"] or "listens" in said["said"], said


def test_a_run_names_each_experiment_before_the_first_and_finds_the_pair_that_fails(
    monkeypatch, capsys
):
    monkeypatch.setenv("DGKIT_FAKE_CUDA", "gpus=2,wrong=peer")
    code = main(["doctor", "--try", "--goal", "p2p", "--json"])
    out, err = capsys.readouterr()
    found = json.loads(out)
    path = next(one for one in found["data_paths"] if one["name"] == "gpu-peers")
    assert (code, path["verdict"], path["tried"]) == (1, "fail", True)
    assert found["findings"][0]["check"] == "try-gpu-copy"
    ends = {(one["experiment"], one["subject"]): one["verdict"] for one in found["tried"]}
    assert ends["gpu-copy", "GPU 0 and GPU 1"] == "fails"
    assert ends["cuda-context", "GPU 1"] == ends["doca-dma", "softdoca, GPU 0"] == "works"
    named, _, ran = err.partition("works: GPU 0: cuda-context")
    assert all(one["does"] in named for one in found["tried"])
    assert ran.count("\nfails: ") == 1
