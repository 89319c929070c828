# SPDX-License-Identifier: Apache-2.0
"""Traces of DOCA's calls: what the recorder writes, and that a replay finds what was changed."""

import copy
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.doca.libraries import HOME
from support.processes import cli

from dgkit.cli import main
from dgkit.doca_trace import TraceError, compare, comparison
from dgkit.doca_trace.causal_order import Requirement
from dgkit.errors import DgkitError

COMPLETED, CHANGED = "doca_dma_task_memcpy_completion_cb_t", "doca_ctx_state_changed_callback_t"
PROGRESS = "doca_pe_progress"
SUPPORT = Path(__file__).parents[1] / "support/doca"
NATIVE = ["native", "tests/native", "tests/native/softdoca"]
FLAGS = ["-std=gnu11", "-Wall", "-Werror", "-g", f"-I{HOME}/include", f"-L{HOME}/lib"]
LIBRARIES = ["-ldoca_dma", "-ldoca_common", "-ldl"]
RDMA_FLAGS = [f"-I{HOME}/include/ibverbs", f"-L{HOME}/lib/ibverbs", "-D_GNU_SOURCE"]
RDMA_FLAGS += [f"-I{SUPPORT.parents[2] / folder}" for folder in NATIVE]
ENVIRONMENT = {
    "LD_LIBRARY_PATH": f"{HOME}/lib:{HOME}/lib/ibverbs",
    "SOFTDOCA_SIDE": "both",
    "CUDA_VISIBLE_DEVICES": "",  # GPUs are emulated
}


def compiled(path, source, *flags, libraries=LIBRARIES):
    subprocess.run(["cc", *FLAGS, *flags, "-o", path, SUPPORT / source, *libraries], check=True)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("recorded") / "recorded", "recorded.c")


def recorded(program, trace, *args, **more):
    command = cli.command("softdoca", "record", "-o", trace, "--", program, *args)
    done = subprocess.run(
        command, env=os.environ | ENVIRONMENT | more, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    return done, [json.loads(line) for line in trace.read_text().splitlines()]


@pytest.fixture(scope="module")
def lines(program, tmp_path_factory):
    """The lines of a trace of the program."""
    done, lines = recorded(program, tmp_path_factory.mktemp("trace") / "trace")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    return lines


def written(lines, path):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_trace_has_each_call_with_its_callbacks_and_a_header(lines):
    assert lines[0]["trace"] == 1
    assert lines[0]["softdoca"] is True
    assert lines[0]["machine"]["side"] == "both"
    assert "end" in lines[-1]
    called = [line["f"] for line in lines if "call" in line]
    assert called[0] == "doca_devinfo_create_list"
    assert called[-1] == "doca_dev_close"
    callbacks = [line["f"] for line in lines if "callback" in line]
    assert callbacks.count("doca_dma_task_memcpy_completion_cb_t") == 3
    assert callbacks.count("doca_ctx_state_changed_callback_t") == 2


def test_a_trace_has_no_text_address_or_name_of_the_machine(lines):
    text = json.dumps(lines[1:])
    for secret in ("mlx5_0", "03:00.0", os.uname().nodename, str(Path.home()), "0x", "987654321"):
        assert secret not in text


def test_softdoca_is_no_different_from_itself(lines, tmp_path, capsys):
    path = written(lines, tmp_path / "trace")
    assert main(["softdoca", "compare", str(path)]) == 0
    assert "no difference" in capsys.readouterr().out


@pytest.mark.parametrize("setting", ["faults", "functions"])
def test_softdoca_is_replayed_with_the_settings_of_the_recording(setting, program, tmp_path):
    """Its faults, and what its functions can do; with another one's it differs."""
    devices = tmp_path / "devices"
    devices.write_text("# a name\nside=both pci=0000:03:00.0 ibdev=secret caps=dma,client\n")
    done, lines = recorded(
        program, tmp_path / "trace", SOFTDOCA_FAULTS="error skip=1 status=io_failed",
        SOFTDOCA_DEVICES=str(devices),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "secret" not in json.dumps(lines)
    assert lines[0]["faults"] == "error skip=1 status=io_failed"
    assert lines[0]["functions"] == "side=both caps=dma,client"
    assert not compare([tmp_path / "trace"]).differences
    lines[0][setting] = ""
    assert compare([written(lines, tmp_path / "other")]).differences


def test_calls_that_cannot_be_replayed_are_counted_by_function_with_the_reason(
    lines, tmp_path, capsys
):
    calls = [
        CALL | {"call": 900 + i, "f": "doca_eth_rxq_destroy", "args": ["eth_rxq:1"], "out": []}
        for i in (1, 2)
    ]
    path = written([*lines[:-1], *calls, lines[-1]], tmp_path / "trace")
    assert main(["softdoca", "compare", str(path)]) == 0
    out = capsys.readouterr().out
    assert "not replayed: 2 of " in out
    assert "2 of doca_eth_rxq_destroy: no call that was replayed returned its eth_rxq" in out


def test_what_a_callback_returned_is_replayed(program, tmp_path):
    done, lines = recorded(program, tmp_path / "trace", "--graph")
    assert done.returncode == 0, done.stderr
    assert not compare([tmp_path / "trace"]).differences
    [returned] = [line for line in lines if "returned" in line]
    lines.remove(returned)
    assert compare([written(lines, tmp_path / "other")]).differences


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program_and_leaves_a_valid_trace(number, program, tmp_path):
    trace = tmp_path / "trace"
    command = cli.command("softdoca", "record", "-o", trace, "--", program, "--wait")
    with subprocess.Popen(
        command, env=os.environ | ENVIRONMENT, start_new_session=True, stderr=subprocess.PIPE
    ) as process:
        while not trace.exists() or b"doca_buf_inventory_destroy" not in trace.read_bytes():
            assert process.poll() is None
            time.sleep(0.01)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert b"recorded in" in said
    replayed = compare([trace]).traces[0]
    assert not replayed.differences
    assert not replayed.is_complete


def test_a_program_without_calls_and_one_that_is_not_there_are_named(tmp_path):
    done = cli.run(tmp_path, "softdoca", "record", "--", "true", cwd=tmp_path)
    assert (done.returncode, "no call of DOCA" in done.stderr) == (0, True)
    done = cli.run(tmp_path, "softdoca", "record", "--", "./nowhere", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (127, "dgkit: ./nowhere: no such program\n")


def test_a_trace_is_not_overwritten(tmp_path, capsys):
    path = tmp_path / "trace"
    path.touch()
    assert main(["softdoca", "record", "-o", str(path), "--", "true"]) == 1
    assert f"{path} exists" in capsys.readouterr().err
    assert not path.read_bytes()


def test_a_library_of_cpp_that_is_loaded_later_is_recorded(tmp_path):
    """Its functions of DOCA are in no library that RTLD_NEXT searches."""
    library = tmp_path / "recorded.so"
    flags = [*FLAGS[1:], "-std=gnu++20", "-fpermissive", "-Wno-pedantic", "-shared", "-fPIC"]
    source = ["-x", "c++", SUPPORT / "recorded.c", "-x", "none"]
    subprocess.run(["c++", *flags, "-o", library, *source, *LIBRARIES], check=True)
    code = f"import ctypes; ctypes.CDLL({str(library)!r}).main(1, None)"
    done, lines = recorded(sys.executable, tmp_path / "trace", "-c", code)
    assert done.returncode == 0, done.stderr
    assert [line for line in lines if "callback" in line]
    assert not compare([tmp_path / "trace"]).differences


def test_a_child_process_has_a_trace_of_its_own(program, tmp_path):
    done, _ = recorded(program, tmp_path / "trace", "--fork")
    assert done.returncode == 0, done.stderr
    traces = [tmp_path / "trace", tmp_path / "trace.2"]
    assert [trace.differences for trace in compare(traces).traces] == [[], []]
    assert [trace.is_complete for trace in compare(traces).traces] == [True, True]


def test_functions_that_cannot_be_recorded_do_not_stop_the_build(tmp_path):
    """Other types of parameters are passed on; what C cannot pass on is left to DOCA."""
    (tmp_path / "doca_x.h").write_text(
        "struct doca_open { int x; };\n"
        "typedef void (*doca_unused_cb_t)(struct doca_x *x);\n"
        "DOCA_STABLE\nint doca_odd(int (*cb)(int, int));\n"
        "DOCA_STABLE\nstruct doca_open doca_by_value(void);\n"
        "DOCA_STABLE\ndoca_error_t doca_many(const char *format, ...);\n"
        "DOCA_STABLE\ndoca_error_t doca_fine(struct doca_open o, struct doca_x *x, double d);\n"
    )
    script = SUPPORT.parents[2] / "native/softdoca/record/generate.py"
    files = [tmp_path / "recorded.c", tmp_path / "functions.json"]
    subprocess.run([sys.executable, script, tmp_path, *files], check=True)
    functions = json.loads(files[1].read_text())["functions"]
    assert [p[0] for p in functions.pop("doca_fine")["parameters"]] == ["x", "h", "x"]
    assert not functions


# ---- RDMA, and what is set up for kernels ----


@pytest.fixture(scope="module")
def rdma_program(tmp_path_factory):
    libraries = ["-ldoca_rdma", "-ldoca_gpunetio", "-ldoca_verbs", "-libverbs", *LIBRARIES]
    folder = tmp_path_factory.mktemp("recorded")
    return compiled(folder / "recorded_rdma", "recorded_rdma.c", *RDMA_FLAGS, libraries=libraries)


TRACES = ["", "--kernels"]


@pytest.fixture(scope="module")
def rdma_lines(request, rdma_program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    done, lines = recorded(rdma_program, folder / "trace", *filter(None, [request.param]))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    return lines


@pytest.mark.parametrize("rdma_lines", TRACES, indirect=True)
def test_rdma_and_what_is_set_up_for_kernels_is_replayed(rdma_lines, tmp_path):
    [replayed] = compare([written(rdma_lines, tmp_path / "trace")]).traces
    assert not replayed.differences
    assert not replayed.skipped


@pytest.mark.parametrize("rdma_lines", TRACES, indirect=True)
def test_a_callback_that_may_wait_for_a_kernel_ends_the_comparison(rdma_lines, tmp_path):
    """Only where there were kernels: elsewhere it is missing."""
    progress = CALL | {"call": 903, "f": PROGRESS, "args": ["pe:901"], "result": 1, "out": []}
    event = CALLBACK | {"callback": 902, "in": 903, "args": [*CALLBACK["args"], "data:0", "data:0"]}
    made = [CALL | {"call": number, "out": [f"pe:{number}"]} for number in (901, 904)]
    lines = [*rdma_lines[:-1], made[0], event, progress, made[1], rdma_lines[-1]]
    [replayed] = compare([written(lines, tmp_path / "trace")]).traces
    has_kernels = any(line.get("f") == "doca_gpu_verbs_export_qp" for line in lines)
    kinds = [each.kind for each in replayed.differences]
    assert kinds == ([] if has_kernels else ["missing callback"])
    assert sum(replayed.skipped.values()) == has_kernels


# ---- Ethernet queues and rules ----


@pytest.fixture(scope="module")
def eth_program(tmp_path_factory):
    libraries = ["-ldoca_eth", "-ldoca_flow", "-ldoca_gpunetio", "-ldoca_verbs", "-libverbs"]
    return compiled(
        tmp_path_factory.mktemp("recorded") / "recorded_eth", "recorded_eth.c", *RDMA_FLAGS,
        libraries=[*libraries, *LIBRARIES],
    )  # fmt: skip


@pytest.fixture(scope="module")
def eth_lines(eth_program, tmp_path_factory):
    done, lines = recorded(eth_program, tmp_path_factory.mktemp("trace") / "trace")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    return lines


def test_ethernet_and_rules_are_replayed_with_frames_of_their_own(eth_lines, tmp_path):
    [replayed] = compare([written(eth_lines, tmp_path / "trace")]).traces
    assert not replayed.differences
    assert dict(replayed.skipped) == {
        ("doca_flow_pipe_create", "it failed, and the trace lacks fwd"): 1,
        (
            "doca_eth_rxq_event_batch_managed_recv_metadata_array_get_metadata",
            "numbers of received frames are in no trace",
        ): len([line for line in eth_lines if line.get("f", "").endswith("_array_get_metadata")]),
    }


def test_ethernet_queues_for_kernels_are_replayed(eth_program, tmp_path):
    done, _ = recorded(eth_program, tmp_path / "trace", "--kernels")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    [replayed] = compare([tmp_path / "trace"]).traces
    assert not replayed.differences
    assert [function for function, _ in replayed.skipped] == ["doca_flow_pipe_create"]


def test_a_frame_that_no_rule_brings_ends_the_comparison(eth_lines, tmp_path):
    """The queue has no number here, so that the replay's frames do not reach it."""
    changed = [line for line in eth_lines if line.get("f") != "doca_eth_rxq_apply_queue_id"]
    [replayed] = compare([written(changed, tmp_path / "trace")]).traces
    assert not replayed.differences
    reasons = {reason for _, reason in replayed.skipped}
    assert "a callback before it tells of a frame that no rule of the replay brought" in reasons


# ---- two sides ----


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """Traces of the two sides of comch_copy: Comch, an export, and a copy of it."""
    folder = tmp_path_factory.mktemp("sides")
    sample = folder / "comch_copy"
    sources = [HOME / "samples" / name for name in ("comch_copy.c", "copier.c", "sample.c")]
    libraries = ["-ldoca_comch", "-ldoca_argp", *LIBRARIES]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", *FLAGS[3:]]
    subprocess.run(["cc", *flags, "-o", sample, *sources, *libraries], check=True)

    def start(side, role):
        command = ["softdoca", "record", "-o", folder / side, "--", sample, "--role", role]
        environment = os.environ | ENVIRONMENT | {"SOFTDOCA_SIDE": side}
        return subprocess.Popen(cli.command(*command), env=environment, stdout=subprocess.DEVNULL)

    with start("dpu", "server") as server:
        while not (folder / "dpu").exists() or b"_ctx_start" not in (folder / "dpu").read_bytes():
            assert server.poll() is None
            time.sleep(0.01)
        with start("host", "client") as client:
            assert client.wait(60) == 0
        assert server.wait(60) == 0
    return [folder / "host", folder / "dpu"]


def test_two_sides_are_replayed_in_the_order_of_their_clock(sides):
    comparison = compare(sides)
    assert [trace.differences for trace in comparison.traces] == [[], []]
    assert [sum(trace.skipped.values()) for trace in comparison.traces] == [0, 0]


def test_two_machines_are_replayed_in_the_order_of_their_descriptors(sides, tmp_path):
    """A descriptor is imported after it was exported, and exported until it is no longer used."""
    traces = []
    for number, path in enumerate(sides):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[0] |= {"boot": number, "start_ns": 0}
        traces.append(written(lines, tmp_path / path.name))
    assert [trace.differences for trace in compare(traces).traces] == [[], []]


def test_a_difference_between_the_sides_is_found(sides, tmp_path):
    lines = [json.loads(line) for line in sides[1].read_text().splitlines()]
    received = callback(lines, "doca_comch_event_msg_recv_cb_t")
    received["args"][2] += 1
    found = compare([sides[0], written(lines, tmp_path / "dpu")]).differences
    assert [(each.kind, each.function) for each in found] == [("value", PROGRESS)]


def test_each_of_ten_thousand_calls_waits_for_one_of_the_other_side(tmp_path):
    """What they wait for is more than the arguments of a process can have."""
    header = {"trace": 1, "boot": 7, "start_ns": 0, "machine": {"side": "both"}}
    call = {"in": 0, "thread": 1, "f": "doca_of_the_future", "args": [], "result": 0}
    paths, count, reports = [], 10_000, []
    for name, late_ns, took_ns in (("first", 0, 1), ("second", 5, 1 << 40)):
        calls = [
            call | {"call": n + 1, "at_ns": 10 * n + late_ns, "took_ns": took_ns}
            for n in range(count)
        ]
        paths.append(written([header, *calls, {"end": 1}], tmp_path / name))
    found = compare(paths, lambda done, total: reports.append((done, total)))
    assert [trace.skipped.total() for trace in found.traces] == [count, count]
    assert not found.differences
    assert reports == sorted(reports)
    assert reports[-1][0] > 0.9 * reports[-1][1]


def test_an_error_of_a_replay_is_raised(lines, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "requirements", lambda _: [[Requirement(0, 1, 1)]])
    with pytest.raises(DgkitError, match="the replay failed: "):
        compare([written(lines, tmp_path / "trace")])


# ---- traces of strangers ----

CALL = {"call": 1, "in": 0, "thread": 1, "at_ns": 0, "took_ns": 0, "f": "doca_pe_create",
        "args": [True], "result": 0, "out": ["pe:1"]}  # fmt: skip
CALLBACK = {"callback": 1, "in": 2, "f": COMPLETED, "cb": 1, "args": ["dma_task_memcpy:1"]}
WRONG = {
    "no JSON object": [],
    "neither a call nor a callback": {"other": 1},
    "no 'in'": {key: value for key, value in CALL.items() if key != "in"},
    "-1 is not a number": CALL | {"call": -1},
    "True is not a number": CALL | {"call": True},
    "no name of a function": CALL | {"f": "system"},
    "has 1 arguments": CALL | {"args": [True, True]},
    "neither true nor null": CALL | {"args": ["pe:1"]},
    "no value of an argument": CALL | {"args": ["0x7fffffff"]},
    "at most 128 values": CALL | {"args": [1] * 129},
    "no error code": CALL | {"result": "ctx:1"},
    "returns 1 values": CALL | {"out": ["pe:1", "pe:2"]},
    "pe of doca_pe_destroy is no pe": CALL | {"f": "doca_pe_destroy", "args": ["dma:1"]},
    "no type of callback": CALLBACK | {"f": "doca_other_cb_t"},
    "has 3 arguments": CALLBACK,
    "1024 MiB": {"memory": 1, "size": 1 << 62, "import": 0},
    "nested more than": "[" * 200 + "]" * 200,
    "more than 16384 bytes": '{"end": ' + " " * 16384 + "1}",
}


@pytest.mark.parametrize("reason", WRONG)
def test_a_wrong_line_of_a_trace_is_named(reason, tmp_path):
    path, line = tmp_path / "trace", WRONG[reason]
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_text(f'{{"trace": 1}}\n{text}\n{{"end": 1}}\n')
    with pytest.raises(TraceError, match=f"line 2: .*{re.escape(reason)}"):
        compare([path])


def test_what_is_no_trace_is_refused(tmp_path):
    for name, content in {"empty": "", "other": "{}\n", "text": "hello\n"}.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(TraceError, match=f"{name}"):
            compare([tmp_path / name])


def test_memory_that_a_trace_does_not_define_is_not_reached(lines, tmp_path):
    changed = copy.deepcopy(lines)
    called(changed, "doca_mmap_set_memrange")["args"][2] = 1 << 40
    called(changed, "doca_buf_inventory_create")["args"][0] = 1 << 62
    trace = compare([written(changed, tmp_path / "trace")]).traces[0]
    reasons = " ".join(reason for _, reason in trace.skipped)
    assert "are beyond the memory's 24576" in reasons
    assert not [each for each in trace.differences if each.kind == "no return"]


# ---- planted differences: in the trace ----


def called(lines, name, index=0):
    """Return a call of a function."""
    return [line for line in lines if "call" in line and line["f"] == name][index]


def result(name, value, index=0):
    """Plant another result."""

    def plant(lines):
        call = called(lines, name, index)
        assert call["result"] != value
        call["result"] = value

    return pytest.param(plant, "result", name, id=f"{name}-{index}-{value}")


def value(name, found, index=0, kind="value", at=0):
    """Plant another value that was returned through a pointer."""

    def plant(lines):
        call = called(lines, name, index)
        assert call["out"][at] != found
        call["out"][at] = found

    return pytest.param(plant, kind, name, id=f"{name}-{index}-{found}")


def planted(kind, name):
    return lambda plant: pytest.param(plant, kind, name, id=plant.__name__)


def callback(lines, name, index=0):
    return [line for line in lines if "callback" in line and line["f"] == name][index]


def without(lines, name, index):
    """Remove a callback and the calls in it."""
    number = callback(lines, name, index)["callback"]
    lines[:] = [line for line in lines if number not in (line.get("callback"), line.get("in"))]


@planted("value", "doca_dma_task_memcpy_get_dst")
def another_object(lines):
    called(lines, "doca_dma_task_memcpy_get_dst")["result"] = "buf:17"


@planted("value", "doca_dma_as_ctx")
def no_object(lines):
    called(lines, "doca_task_get_ctx")["result"] = None
    called(lines, "doca_dma_as_ctx")["result"] = None


@planted("state", "doca_ctx_start")
def another_state_at_the_start(lines):
    callback(lines, CHANGED)["args"][3] = 1


@planted("state", "doca_ctx_stop")
def another_state_at_the_end(lines):
    callback(lines, CHANGED, 1)["args"][2] = 3


@planted("value", PROGRESS)
def another_user_data(lines):
    callback(lines, COMPLETED)["args"][1] = callback(lines, COMPLETED, 1)["args"][1]


@planted("value", PROGRESS)
def another_data_of_the_context(lines):
    callback(lines, COMPLETED)["args"][2] = callback(lines, COMPLETED, 1)["args"][1]


def exchanged(lines, first, second):
    """Let two completions come in each other's place."""
    one, other = callback(lines, COMPLETED, first), callback(lines, COMPLETED, second)
    one["in"], other["in"] = other["in"], one["in"]
    parents = [called(lines, PROGRESS, index) for index in (first, second)]
    places = [lines.index(parent) for parent in parents]
    for parent, place in zip(parents, reversed(places), strict=True):
        lines[place] = parent
    parents[0]["call"], parents[1]["call"] = parents[1]["call"], parents[0]["call"]
    one["in"], other["in"] = other["in"], one["in"]
    one["callback"], other["callback"] = other["callback"], one["callback"]
    for line in lines:
        if "call" in line and line["in"] in (one["callback"], other["callback"]):
            line["in"] = one["callback"] + other["callback"] - line["in"]


@planted("order", PROGRESS)
def the_first_two_exchanged(lines):
    exchanged(lines, 0, 1)


@planted("order", PROGRESS)
def the_last_two_exchanged(lines):
    exchanged(lines, 1, 2)


@planted("order", PROGRESS)
def a_state_that_progress_reports(lines):
    progress = called(lines, PROGRESS)
    change = callback(lines, CHANGED)
    lines.remove(change)
    lines.insert(lines.index(progress), change)
    change["in"] = progress["call"]


@planted("missing callback", PROGRESS)
def another_completion(lines):
    progress = called(lines, PROGRESS, 2)
    more = callback(lines, COMPLETED) | {"callback": 900, "in": progress["call"]}
    lines.insert(lines.index(progress), more)


@planted("missing callback", "doca_ctx_stop")
def another_change_of_state(lines):
    more = callback(lines, CHANGED, 1) | {"callback": 900}
    lines.insert(lines.index(called(lines, "doca_ctx_stop")), more)


@planted("missing callback", PROGRESS)
def a_submit_that_was_not_accepted(lines):
    called(lines, "doca_task_submit", 1)["result"] = 5


@planted("additional callback", PROGRESS)
def one_completion_less(lines):
    without(lines, COMPLETED, 2)


@planted("additional callback", "doca_ctx_start")
def no_change_of_state_at_the_start(lines):
    without(lines, CHANGED, 0)


@planted("additional callback", "doca_ctx_stop")
def no_change_of_state_at_the_end(lines):
    without(lines, CHANGED, 1)


@planted("additional callback", PROGRESS)
def the_callback_for_errors(lines):
    callback(lines, COMPLETED, 1)["cb"] = 900


@planted("additional callback", "doca_ctx_start")
def another_function_for_the_state(lines):
    callback(lines, CHANGED)["cb"] = 900


IN_TRACES = [
    result("doca_mmap_start", 18),
    result("doca_mmap_start", 21, 1),
    result("doca_mmap_add_dev", 0, 1),
    result("doca_task_submit", 0, 3),
    result("doca_buf_inventory_destroy", 1),
    result("doca_mmap_set_permissions", 6),
    result("doca_dma_cap_task_memcpy_is_supported", 4),
    result("doca_task_get_status", 17),
    result("doca_sync_event_start", 18),
    result("doca_sync_event_wait_gt", 8),
    result("doca_ctx_start", 26),
    result("doca_ctx_stop", 26),
    result("doca_mmap_destroy", 2),
    result("doca_dev_close", 3),
    value("doca_devinfo_create_list", 3, at=1),
    value("doca_dma_cap_task_memcpy_get_max_buf_size", 4 << 20),
    value("doca_mmap_cap_is_export_pci_supported", 0),
    value("doca_mmap_get_max_num_devices", 1),
    value("doca_mmap_get_user_data", "data:0"),
    value("doca_dma_cap_get_max_num_tasks", 1024),
    value("doca_buf_inventory_get_num_free_elements", 6),
    value("doca_mmap_get_num_bufs", 0),
    value("doca_buf_get_head", "mem:1+0"),
    value("doca_pe_get_num_inflight_tasks", 0),
    value("doca_buf_get_data_len", 0),
    value("doca_buf_inc_refcount", 2),
    value("doca_buf_dec_refcount", 1),
    value("doca_sync_event_update_add", 0),
    value("doca_sync_event_get", 41),
    value("doca_ctx_get_state", 1, kind="state"),
    value("doca_ctx_get_state", 3, 1, kind="state"),
    another_object, no_object, another_state_at_the_start, another_state_at_the_end,
    another_user_data, another_data_of_the_context, the_first_two_exchanged,
    the_last_two_exchanged, a_submit_that_was_not_accepted, a_state_that_progress_reports,
    another_completion,
    another_change_of_state, one_completion_less, no_change_of_state_at_the_start,
    no_change_of_state_at_the_end, the_callback_for_errors, another_function_for_the_state,
]  # fmt: skip


@pytest.mark.parametrize(("plant", "kind", "name"), IN_TRACES)
def test_a_difference_planted_in_a_trace_is_found(plant, kind, name, lines, tmp_path):
    changed = copy.deepcopy(lines)
    plant(changed)
    found = compare([written(changed, tmp_path / "trace")]).differences
    assert (kind, name) in [(each.kind, each.function) for each in found]


def find_all(plants, lines, path):
    """Plant differences in one trace: each is reported at its call, and nothing else is."""
    changed, expected = copy.deepcopy(lines), []
    for each in plants:
        plant, kind, name = each.values
        before = copy.deepcopy(changed)
        plant(changed)
        [at] = [line for line, old in zip(changed, before, strict=True) if line != old]
        expected.append((kind, name, at.get("call", at.get("in"))))
    found = compare([written(changed, path)]).differences
    assert sorted((each.kind, each.function, each.call) for each in found) == sorted(expected)


RECEIVED, WRITTEN, ENDED = (
    f"doca_rdma_{name}_cb_t"
    for name in ("task_receive_completion", "task_write_completion", "connection_disconnection")
)


@planted("value", PROGRESS)
def another_connection_ended(lines):
    callback(lines, ENDED)["args"][1] = "data:0"


@planted("value", PROGRESS)
def another_data_of_a_receive(lines):
    callback(lines, RECEIVED)["args"][1] = callback(lines, RECEIVED, 1)["args"][1]


@planted("additional callback", PROGRESS)
def no_end_of_the_connection(lines):
    without(lines, ENDED, 0)


@planted("additional callback", PROGRESS)
def no_write(lines):
    without(lines, WRITTEN, 0)


@planted("additional callback", PROGRESS)
def the_callback_for_errors_of_a_write(lines):
    callback(lines, WRITTEN)["cb"] = 900


@planted("value", "doca_rdma_task_write_get_src_buf")
def another_source(lines):
    other = called(lines, "doca_buf_inventory_buf_get_by_args", 1)["out"][0]
    call = called(lines, "doca_rdma_task_write_get_src_buf")
    assert call["result"] != other
    call["result"] = other


IN_RDMA = [
    result("doca_rdma_set_recv_queue_size", 0),
    result("doca_rdma_set_transport_type", 0),
    result("doca_rdma_set_permissions", 0, 2),
    result("doca_rdma_connect", 6),
    result("doca_mmap_export_rdma", 4),
    result("doca_task_get_status", 26),
    result("doca_rdma_stop_listen_to_port", 3),
    result("doca_rdma_start_listen_to_port", 3),
    result("doca_rdma_connection_accept", 6),
    result("doca_rdma_destroy", 18),
    value("doca_rdma_get_permissions", 1),
    value("doca_rdma_get_send_queue_size", 512),
    value("doca_rdma_connection_get_id", 7),
    another_source,
    result("doca_rdma_task_atomic_fetch_add_get_add_data", 8),
    result("doca_rdma_task_receive_get_result_len", 0),
    result("doca_rdma_task_receive_get_result_opcode", 0, 1),
    result("doca_rdma_task_receive_get_result_immediate_data", 98, 1),
    another_connection_ended, another_data_of_a_receive,
]  # fmt: skip
ALONE_IN_RDMA = [no_end_of_the_connection, no_write, the_callback_for_errors_of_a_write]
FOR_KERNELS = [
    result("doca_gpu_create", 18),
    result("doca_gpu_mem_alloc", 0, 3),
    result("doca_umem_destroy", 0),
    result("doca_verbs_qp_modify", 18, 1),
    result("doca_verbs_qp_create", 4),
    result("doca_verbs_cq_create", 6),
    result("doca_gpu_verbs_export_qp", 4),
    result("doca_buf_arr_start", 0),
    result("doca_ctx_set_datapath_on_gpu", 4),
    result("doca_dma_get_gpu_handle", 18),
    result("doca_gpu_dmabuf_fd", 4),
    value("doca_umem_get_size", 4096),
]


@pytest.mark.parametrize("rdma_lines", TRACES[:1], indirect=True)
def test_differences_planted_in_a_trace_of_rdma_are_found(rdma_lines, tmp_path):
    find_all(IN_RDMA, rdma_lines, tmp_path / "trace")


@pytest.mark.parametrize(
    ("plant", "kind", "name", "rdma_lines"),
    [
        pytest.param(*each.values, trace, id=each.id)
        for trace, all_ in zip(TRACES, (ALONE_IN_RDMA, FOR_KERNELS), strict=True)
        for each in all_
    ],
    indirect=["rdma_lines"],
)
def test_a_difference_planted_in_a_trace_of_rdma_is_found(plant, kind, name, rdma_lines, tmp_path):
    changed = copy.deepcopy(rdma_lines)
    plant(changed)
    found = compare([written(changed, tmp_path / "trace")]).differences
    assert (kind, name) in [(each.kind, each.function) for each in found]


SENT, CAME = (f"doca_eth_{name}_completion_cb_t" for name in ("txq_task_send", "rxq_task_recv"))
BATCH = "doca_eth_txq_task_batch_send_completion_cb_t"


@planted("value", PROGRESS)
def another_data_of_a_frame(lines):
    callback(lines, SENT)["args"][1] = callback(lines, SENT, 1)["args"][1]


@planted("value", PROGRESS)
def fewer_frames_of_a_batch(lines):
    callback(lines, BATCH)["args"][1] = 3


@planted("value", PROGRESS)
def no_packets_of_a_batch(lines):
    callback(lines, BATCH)["args"][5] = None


@planted("value", PROGRESS)
def another_data_of_a_received_frame(lines):
    callback(lines, CAME)["args"][1] = callback(lines, CAME, 1)["args"][1]


@planted("value", "doca_eth_txq_task_send_get_pkt")
def another_frame(lines):
    other = called(lines, "doca_eth_txq_task_send_get_pkt", 1)["out"][0]
    called(lines, "doca_eth_txq_task_send_get_pkt")["out"][0] = other


@planted("additional callback", PROGRESS)
def the_callback_for_errors_of_a_frame(lines):
    callback(lines, SENT, 2)["cb"] = 900


@planted("missing callback", PROGRESS)
def a_frame_sent_twice(lines):
    progress = next(each for each in lines if each.get("call") == callback(lines, SENT)["in"])
    more = callback(lines, SENT) | {"callback": 1 << 40}
    lines.insert(lines.index(progress), more)


IN_ETHERNET = [
    result("doca_eth_txq_cap_is_type_supported", 4),
    result("doca_eth_rxq_cap_is_type_supported", 4),
    result("doca_eth_txq_set_mss", 4),
    result("doca_eth_txq_apply_queue_id", 0),
    result("doca_eth_txq_set_l3_chksum_offload", 4),
    result("doca_eth_rxq_set_rx_hash", 6),
    result("doca_eth_rxq_event_managed_recv_get_status", 17),
    result("doca_task_batch_submit", 18),
    result("doca_flow_init", 0, 1),
    result("doca_flow_pipe_cfg_set_type", 4),
    result("doca_flow_pipe_basic_add_entry", 6, 1),
    result("doca_flow_entries_process", 8),
    result("doca_flow_resource_query_entry", 0, 1),
    result("doca_flow_port_stop", 3),
    value("doca_eth_txq_cap_get_max_burst_size", 1024),
    value("doca_eth_txq_cap_get_max_lso_header_size", 128),
    value("doca_eth_rxq_estimate_packet_buf_size", 1 << 20),
    value("doca_ctx_get_state", 1, kind="state"),
    another_data_of_a_frame, fewer_frames_of_a_batch, no_packets_of_a_batch, another_frame,
    another_data_of_a_received_frame,
]  # fmt: skip


def test_differences_planted_in_a_trace_of_ethernet_are_found(eth_lines, tmp_path):
    find_all(IN_ETHERNET, eth_lines, tmp_path / "trace")


@pytest.mark.parametrize(
    ("plant", "kind", "name"), [the_callback_for_errors_of_a_frame, a_frame_sent_twice]
)
def test_a_callback_planted_in_a_trace_of_ethernet_is_found(plant, kind, name, eth_lines, tmp_path):
    changed = copy.deepcopy(eth_lines)
    plant(changed)
    found = compare([written(changed, tmp_path / "trace")]).differences
    assert (kind, name) in [(each.kind, each.function) for each in found]


# ---- planted differences: in the library ----


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    return compiled(folder / "planted.so", "planted.c", "-shared", "-fPIC", "-Wno-unused-value")


VALUES = {
    ("value", "doca_dma_cap_task_memcpy_get_max_buf_size"),
    ("value", "doca_mmap_get_max_num_devices"),
    ("value", "doca_mmap_get_num_bufs"),
    ("value", "doca_buf_get_data_len"),
    ("value", "doca_buf_inc_refcount"),
    ("value", "doca_sync_event_get"),
    ("value", "doca_pe_get_num_inflight_tasks"),
    ("state", "doca_ctx_get_state"),
    ("result", "doca_task_get_status"),
    ("result", "doca_mmap_add_dev"),
    ("value", "doca_task_get_ctx"),
}
IN_LIBRARIES = {
    "v": VALUES,
    "o": {("order", PROGRESS)},
    "t": {("missing callback", PROGRESS)},
    "d": {("value", PROGRESS)},
    "s": {("state", "doca_ctx_stop"), ("missing callback", "doca_ctx_stop")},
    "m": {("additional callback", "doca_ctx_start"), ("additional callback", "doca_ctx_stop")},
}


@pytest.mark.parametrize("group", IN_LIBRARIES)
def test_a_difference_planted_in_the_library_is_found(group, program, library, tmp_path):
    path = tmp_path / "trace"
    done, _ = recorded(program, path, LD_PRELOAD=str(library), PLANTED=group)
    assert done.returncode == 0, done.stderr
    found = {(each.kind, each.function) for each in compare([path]).differences}
    assert found >= IN_LIBRARIES[group]
