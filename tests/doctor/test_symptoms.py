# SPDX-License-Identifier: Apache-2.0
"""Error texts of other programs: found in a log, their causes ranked by the machine."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from doctor.published import FOLDER, load
from doctor.test_rdma import device, gids
from support.doctor.machines import machine

from dgkit.cli import main
from dgkit.doctor import diagnose
from dgkit.doctor.collect.reader import Reading
from dgkit.doctor.format.pages import symptom_page
from dgkit.doctor.goals import Goal
from dgkit.doctor.machine import Machine
from dgkit.doctor.names import NAMED, Names
from dgkit.doctor.names import known as known_names
from dgkit.doctor.registry import checks
from dgkit.doctor.symptom_table import SYMPTOMS, read_table
from dgkit.doctor.symptoms import (
    Explanation,
    Explanations,
    explain,
    kernel_words,
    matches,
    taken_apart,
)

# As they were published: a line of a log, and the program of the entry that has to be first.
LINES = """
libibverbs: Warning: Driver bnxt_re does not support the kernel ABI of 6 (supports 1 to 1)
libibverbs: Warning: no userspace device-specific driver found for uverbs0
libibverbs: Failed to get IB devices list: Function not implemented
NCCL: [0] misc/ibvwrap.cc:80 NCCL WARN Call to ibv_open_device failed
NCCL: misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error No such device
NCCL: ibv_modify_qp failed: No such device
NCCL: misc/ibvwrap.cc:187 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable
NCCL: NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129
NCCL: NET/IB: Got completion from peer 192.168.3.5 with status=12 opcode=129 len=1 vendor err 129
NCCL: Got completion with error 4, opcode 1, len 21938, vendor err 81
perftest: Failed status 4: wr_id 0 syndrom 0x51
libibverbs: ibv_reg_dmabuf_mr(address=0xfcc99fa00000, length=16384) failed: Unknown error 524
libibverbs: ibv_reg_dmabuf_mr failed
libibverbs: NCCL WARN Call to ibv_reg_dmabuf_mr failed with error Operation not supported
NCCL: NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'
NVSHMEM: neither nv_peer_mem, or nvidia_peermem detected. Skipping transport.
NVSHMEM: ibgda/ibgda.cpp:1889: NULL value cannot allocate mlx5dv_devx_uar
NVSHMEM: nvshmemi_transport_init:275: init failed for transport: IBGDA
DeepEP: Unable to dlopen libmlx5dv
NCCL: NCCL INFO NET/IB : No device found.
libfabric: efa:mr:efa_mr_reg_impl():849<warn> Unable to register MR of 146800640 bytes: Bad address
NVSHMEM: WARN: device roce_rail1 is not enumerated as an mlx5 device. Skipping...
NVSHMEM: WARN: init failed for remote transport: ibrc
NVSHMEM: Error in mlx5dv_devx_obj_modify for INIT2RTR_QP with syndrome 29e0df
UCX: UCX  ERROR mlx5dv_devx_qp_modify(502) failed, syndrome 0: Invalid argument
NVSHMEM: ibrc/ibrc.cpp:418: non-zero status: 110 ibv_modify_qp failed
NVSHMEM: ibgda/ibgda.cpp:2234: NULL value Unable to create ah.
NCCL: NCCL INFO dlvsym failed on mlx5dv_get_data_direct_sysfs_path - undefined symbol
NCCL: bootstrap.cc:77 NCCL WARN Message truncated : received 256 bytes instead of 4
NCCL: misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]
Mooncake: [Handshake] Failed to modify QP to RTR, check mtu, gid: Connection timed out [110]
libfabric: LibfabricError: code -93 ("Protocol not supported"), context: fi_mr_regattr
NVSHMEM: topo.cpp:469: [GPU 1] Peer GPU 0 is not accessible, exiting ...
perftest: Couldn't allocate MR with error=14
perftest: Couldn't allocate MR with error=93
Mooncake: Failed to register memory 0x7fe280000000: Bad address [14]
UCX: mlx5_0: ibv_create_cq() failed: Cannot allocate memory
UCX: mlx5dv_devx_create_event_channel() failed: Protocol not supported
UCX: ibv_modify_qp(DCI, RTR) failed : Invalid argument
UCX: network device 'mlx5_0:1' is not available
UCX: failed to open memory domain mlx5_0
NIXL: nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND
CUDA: Error 802: system not yet initialized
CUDA: CUDA-capable device(s) is/are busy or unavailable
CUDA: cuda driver library init failure: 3
nvidia-smi: Failed to initialize NVML: Unknown Error
nvidia-smi: Failed to initialize NVML: Driver/library version mismatch
GDRCopy: nvidia_p2p_get_pages [...] failed [ret = -22]
DOCA: Failed to open DOCA device for the secured port: Requested Resource Not Found
DOCA: [DOCA][ERR][linux_device_adapter.cpp:1268] failed to extract sockaddr_in
mstflint: -E- Error when trying to check if NV access registers are supported
the kernel: modprobe: ERROR: could not insert 'mlx5_core': Key was rejected by service
the kernel: nv_peer_mem: Unknown symbol ib_register_peer_memory_client (err 0)
the kernel: nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client
the kernel: modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument
the kernel: nvidia-peermem ERROR detected invalid context, skipping further processing
the kernel: mlx5_core 0000:03:00.0: Firmware over 120000 MS in pre-initializing state, aborting
the kernel: mlx5_core 0000:01:00.0: mlx5_load_one failed with error code -22
the kernel: mlx5_core 0000:01:00.0: handle_hca_cap failed
the kernel: NVRM: Xid (PCI:0000:66:00): 145, RLW_REMAP, Nonfatal XC1 i0 Link 05
the kernel: NVRM: Xid (PCI:0000:06:00): 79, pid=1, GPU has fallen off the bus.
the kernel: installed in this system requires use of the NVIDIA open kernel modules
the kernel: NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:884)
the kernel: interface version 590.48.01 don't match with driver version 580.126.09
the kernel: DMAR: [DMA Read NO_PASID] Request device [c3:00.0] fault addr 0x0
the kernel: AMD-Vi: Event logged [IO_PAGE_FAULT device=41:00.0 domain=0x1]
the kernel: NVRM: nv_grdma_pci_topology_supported: topology not supported
the kernel: pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received
"""
CASES = [tuple(line.split(": ", 1)) for line in LINES.strip().splitlines()]


@pytest.mark.parametrize(("program", "line"), CASES, ids=[line[:40] for _, line in CASES])
def test_a_published_line_is_known_wherever_it_is_in_a_log(program: str, line: str) -> None:
    first = matches(f"some line before\n{line}\nand one after\n")[0]
    assert first.symptom.program == program
    assert first.line == line


def test_each_entry_has_a_source_and_checks_that_exist_and_count_for_its_goal() -> None:
    known = {check.name: check for check in checks()}
    for symptom in SYMPTOMS:
        assert symptom.source.startswith("https://")
        names = {name for cause in symptom.causes for name in cause.checks}
        assert names <= set(known), symptom.pattern.pattern
        counted = [name for name in names if symptom.goal in known[name].goals]
        assert counted or not names, symptom.pattern.pattern


@pytest.mark.parametrize(
    "lines",
    [
        "NCCL: a text\n  Meaning.",
        "NCCL: a text\n  Meaning.\n  source a/b\n  cause peermem without a colon",
        "NCCL: a text\n  Meaning.\n  source a/b\n  cause as nobody",
        "NCCL: a text\n  Meaning.\n  source a/b\n  because acs: It is so.",
        "NCCL: a text\n  Meaning.\n  source a/b goal fame",
        "NCCL: (\n  Meaning.\n  source a/b",
    ],
)
def test_a_line_that_does_not_fit_the_format_is_named(lines: str) -> None:
    with pytest.raises(ValueError, match=r"^line 3: "):
        read_table(f"# a comment\n\n{lines}\n")


def test_ordinary_lines_are_no_symptoms() -> None:
    log = "NCCL INFO Using network IB\nib_write_bw: 5000 12 129\nmlx5_core 0000:01:00.0: link up\n"
    assert matches(log) == []
    assert matches("IMEXample aGVsbG8IMEX/9j") == []


@pytest.mark.parametrize(
    ("line", "says", "checks"),
    [
        (
            "mlx5_core 0000:03:00.0: CREATE_MKEY(0x200) failed, err -22",
            ("RDMA", "0000:03:00.0 is", "EINVAL: invalid argument"),
            {"rdma-devices", "rdma-core", "ofed-version"},
        ),
        (
            "rshim 0000:06:00.2: open of tmfifo_net0 gave EBUSY",
            ("a BlueField", "EBUSY: device or resource busy"),
            {"bluefield-present", "bluefield-mode", "bluefield-tmfifo"},
        ),
        (
            "nvidia_peermem and gdrdrv: ret = -13",
            ("GPUDirect RDMA's kernel interface", "and GDRCopy", "EACCES: permission denied"),
            {"peermem", "gdrcopy", "container", "memlock"},
        ),
        (
            "modprobe: FATAL: Module gdrdrv not found in directory /lib/modules/6.9/",
            ("not built for the kernel", "gdrdrv is a module"),
            {"kernel-version", "gdrcopy"},
        ),
        (
            "Local protection on mlx5_0:1 (synd 0x4)",
            ("may not access",),
            {"rdma-dmabuf", "peermem", "iommu", "rdma-devices", "rdma-core", "ofed-version"},
        ),
        ("transport retry counter exceeded", ("did not answer",), {"rdma-devices"}),
    ],
)
def test_a_line_that_is_not_in_the_table_is_taken_apart(
    line: str, says: tuple[str, ...], checks: set[str]
) -> None:
    assert matches(line) == []
    (found,) = taken_apart(f"before\n{line}\nand after\n")
    assert found.line == line
    assert all(words in found.symptom.means for words in says)
    assert {name for cause in found.symptom.causes for name in cause.checks} >= checks


def test_what_names_nothing_is_not_taken_apart_and_each_name_has_checks() -> None:
    assert taken_apart("segmentation fault, status 12\nerrors: 999, E2MUCH") == []
    known = {check.name for check in checks()}
    assert all(set(name.checks) <= known | {NAMED} for name in known_names().all)


def test_a_name_is_found_in_any_spelling_and_the_longest_wins() -> None:
    table = Names(
        "name peer memory, pm: peermem: A\nname memory pool: memlock: B\nname mlx*: iommu: C"
        "\nerror cuda 7, cuda error bad: acs: D\nnumber cuda code=(\\d+)\nname cuda: numa: E"
    )
    for line, what in {
        "peer_memory": "A", "PeerMemory": "A", "nv_peer-memory": "A", "xpeermemory": "",
        "peer memory pool": "A", "MLX5_PM": "CA", "pm": "", "PM": "A", "cudaErrorBad": "ED",
        "code=7(x)": "ED", "CUDA_ERROR_BAD and mlx5_core": "EDC",
    }.items():  # fmt: skip
        assert "".join(name.what for name in table.named(line)) == what, line


@pytest.mark.parametrize(
    "line",
    ["name a: b", "word a: b: c", "name a: B!: c", "way (: acs: c", "name a, a: acs: c\nname b:"],
)
def test_a_line_of_the_names_that_does_not_fit_is_told_by_its_number(line: str) -> None:
    with pytest.raises(ValueError, match=r"line \d+: "):
        Names(f"# a comment\n{line}\n")


def test_a_name_that_is_in_two_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="'a' is twice: 'd'"):
        Names("name a: acs: c\nname a: acs: d")


def test_the_error_of_a_library_is_not_one_of_linux() -> None:
    for own in "ncclSystemError (2)", "CUDA runtime error (2)", "DOCA error (21)", "rank [2] NCCL":
        assert not {"ENOENT", "EISDIR"} & set(str(taken_apart(own)).split()), own
    (found,) = taken_apart("RuntimeError: NCCL Error 2: unhandled system error")
    assert "ENOENT" not in found.symptom.means
    assert "does not have" not in found.symptom.means


def test_a_way_to_fail_alone_does_not_blame_the_machine() -> None:
    assert taken_apart("FileNotFoundError: No such file or directory: 'x.json'") == []
    healthy = machine({**device(), **gids("lo"), "ask limits": {"memlock": [-1, -1]}})
    (one,) = explain(taken_apart("Unable to create QP."), diagnose([healthy], goal=Goal.RDMA))
    assert "A limit" in one.match.symptom.means
    assert not one.program_only


def test_what_an_unknown_text_names_is_not_excluded_by_checks_that_pass() -> None:
    healthy = machine({**device(), **gids("lo"), "ask limits": {"memlock": [-1, -1]}})
    text = "the protection domain failed"
    (one,) = explain(taken_apart(text), diagnose([healthy], goal=Goal.RDMA))
    assert "excluded" not in {cause.state for cause in one.causes}
    assert "possible" in {
        cause.state for cause in one.causes if "rdma-devices" in cause.cause.checks
    }


def test_of_a_log_the_line_that_tells_most_is_taken() -> None:
    log = "NIXL: hello\nrdma_cm: RDMA_CM_EVENT_REJECTED; error: -111\nNIXL: failed\n"
    assert "REJECTED" in taken_apart(log)[0].line


def explained(
    text: str, made: Machine, goal: Goal = Goal.RDMA, size: int = 64 << 20
) -> Explanation:
    (one,) = explain(matches(text), diagnose([made], goal=goal, size=size))
    return one


def test_the_cause_that_a_check_finds_comes_first_and_one_that_is_well_is_excluded() -> None:
    nets = {"names /sys/class/net": ["lo", "ens6f0np0"]}
    text = "ibv_modify_qp failed: No such device"
    first, *_ = explained(text, machine({**device(), **gids("eth7"), **nets})).causes
    assert (first.state, first.cause.checks) == ("found", ("rdma-devices",))
    assert "another network namespace" in first.findings[0].why
    none = explained(text, machine({})).causes
    assert {one.state for one in none} == {"possible"}  # that there is no NIC is another matter
    *_, last = explained(text, machine({**device(), **gids("ens6f0np0"), **nets})).causes
    assert (last.state, last.cause.checks) == ("excluded", ("rdma-devices",))


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("nccl-304-plx", "Got completion with error 4, opcode 1, len 1, vendor err 81", "acs"),
        ("perftest-126-vgpu", "Couldn't allocate MR", "peermem"),
        ("ucx-4513-bar1", "ibv_exp_reg_mr failed bad access", "bar1-size"),
        ("cudf-7632-memlock", "ibv_create_cq() failed: Cannot allocate memory", "memlock"),
        ("nccl-tests-264", "system not yet initialized", "nvlink-fabric"),
        ("deepep-223-peermem", "init failed for remote transport: ibrc", "peermem"),
    ],
)
def test_of_a_published_machine_and_its_text_the_cause_of_the_thread_is_found(
    name: str, text: str, cause: str
) -> None:
    made = load(next(FOLDER.glob(f"*/{name}.txt")))
    goal = matches(text)[0].symptom.goal
    first, *_ = explained(text, made.machine(), goal, made.size).causes
    assert first.state == "found"
    assert cause in first.cause.checks


def test_the_kernels_words_are_read_and_their_absence_is_said() -> None:
    log = "[1.0] NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.\n"
    log += "[1.1] NVRM: Xid (PCI:0000:06:00): 31, pid=1, MMU Fault\n"  # of a program: harmless
    (found,), why = kernel_words(machine({"run dmesg": log}))
    assert "79" in found.line
    assert why == ""
    said = "dmesg: read kernel buffer failed: Operation not permitted\n"
    none, why = kernel_words(machine({"run dmesg": Reading(said=said, code=1)}))
    assert none == []
    assert "kernel.dmesg_restrict" in why


def test_a_page_of_many_texts_fits_a_screen() -> None:
    made = load(FOLDER / "nccl" / "nccl-304-plx.txt").machine()
    every = explain(matches(LINES), diagnose([made], goal=Goal.RDMA))
    assert len(symptom_page(Explanations(tuple(every)), width=60)) <= 40


def test_the_command_explains_a_text_and_a_log_on_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.snap"
    load(FOLDER / "nccl" / "nccl-304-plx.txt").snapshot().save(file)
    text = "Got completion with error 4, opcode 1, len 1, vendor err 81"
    assert main(["doctor", "--symptom", text, "--from", str(file), "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["symptoms"]
    assert (found["program"], found["causes"][0]["state"]) == ("NCCL", "found")
    log = io.TextIOWrapper(io.BytesIO(f"a line\n\xff{text}\n".encode("latin-1")))
    monkeypatch.setattr("sys.stdin", log)
    assert main(["doctor", "--symptom", "-", "--from", str(file)]) == 1
    page, said = capsys.readouterr()
    assert "found" in page, said
    assert "ReqRedir+" in page
    assert main(["doctor", "--symptom", "never seen", "--from", str(file)]) == 6
    assert "not in the doctor's table" in capsys.readouterr().out
    assert main(["doctor", "--symptom", text, "--report"]) == 2
    assert main(["doctor", "--symptom", " "]) == 2
    assert "the error text is empty" in capsys.readouterr().err


def _texts() -> Iterator[tuple[str, str, str]]:
    for line in Path(__file__).with_name("texts.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            source, wanted, text = (part.strip() for part in line.split(" | ", 2))
            yield source, wanted, text


@pytest.mark.parametrize(("source", "wanted", "text"), list(_texts()))
def test_a_text_of_a_thread_leads_to_what_the_thread_found(
    source: str, wanted: str, text: str
) -> None:
    symptom = (matches(text) or taken_apart(text))[0].symptom
    causes = symptom.causes
    parts = [(cause.text, *cause.remedy) for cause in causes]
    said = " ".join([symptom.means, *(text for part in parts for text in part)]).lower()
    named = {name for cause in causes for name in cause.checks}
    for group in wanted.split(" & "):
        words = re.findall(r'"([^"]+)"', group.lower())
        names = set(re.sub(r'"[^"]+"', "", group).split())
        assert names & named or any(word in said for word in words), (group, source)
