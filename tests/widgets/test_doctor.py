# SPDX-License-Identifier: Apache-2.0
"""DoctorPanel over snapshots and over this machine: runs, re-checks, goals, pairs. No browser."""

import json
import threading

import pytest
from doctor.snapshots import snapshot_file
from msgspec.structs import replace
from support.doctor.panel import DPU, FAR, GPU, large, saved
from support.jupyter.panels import PanelError, View
from support.processes.waiting import until

import dgkit.widgets.doctor.diagnosis_task as diagnosis_task
from dgkit.doctor import Goal, Verdict
from dgkit.doctor.collect.snapshot import load
from dgkit.doctor.finding import Finding
from dgkit.errors import ClosedError
from dgkit.widgets.doctor import DoctorPanel
from dgkit.widgets.doctor.serialize import MAX_FINDINGS, serialize_diagnosis


@pytest.fixture
def panel(tmp_path, view):
    shown = view(DoctorPanel(saved(tmp_path)))
    shown.panel.wait(20)
    return shown


@pytest.fixture
def held(monkeypatch):
    """The doctor does not answer until it is let go; `held.asked` are the checks it was asked."""
    go, real = threading.Event(), diagnosis_task.diagnose

    def diagnose(machines, **how):
        go.asked.append(list(how.get("only", ())))
        if how.get("progress"):
            how["progress"](3, 9)
        assert go.wait(20)
        return real(machines, **how)

    go.asked = []
    monkeypatch.setattr(diagnosis_task, "diagnose", diagnose)
    yield go
    go.set()


def checks(state):
    return [one["check"] for one in state["result"]["findings"]]


def test_a_view_gets_the_findings_worst_first_with_all_that_it_shows(panel):
    result = panel.ask("hello")["result"]
    words = ["fail", "warn", "unknown", "ok", "n.a."]
    order = [words.index(one["verdict"]) for one in result["findings"]]
    assert order == sorted(order)
    assert result["verdict"] == str(panel.panel.diagnosis.verdict)
    kernel = next(one for one in result["findings"] if one["check"] == "kernel-version")
    assert kernel["verdict"] == "warn"
    assert "5.15.0" in kernel["found"]
    assert kernel["sources"][0]["url"].startswith("https://")
    assert kernel["remedy"]
    assert kernel["why"]
    assert all(way["title"] and way["word"] and way["what"] for way in result["data_paths"])
    assert result["summary"] == panel.panel.diagnosis.summary()


def test_a_snapshot_says_that_it_is_one_and_how_it_came_to_be(tmp_path, view, panel):
    (machine,) = panel.ask("hello")["machines"]
    assert (machine["name"], machine["kind"], machine["side"]) == ("test.snap", "synthetic", "host")
    assert machine["source"] == "a test's machine"
    taken = load(saved(tmp_path, name="real"))
    taken.source, taken.taken = "recorded", "2026-11-21"
    taken.save(tmp_path / "real.snap")
    (machine,) = view(DoctorPanel([tmp_path / "real.snap"])).ask("hello")["machines"]
    assert machine["kind"] == "recorded"
    assert "2026-11-21" in machine["source"]


def test_this_machine_is_judged_where_no_snapshot_is_given(view):
    shown = view(DoctorPanel())
    assert shown.panel.wait(30).case.machine.name == "this machine"
    (machine,) = shown.ask("hello")["machines"]
    assert machine == {"name": "this machine", "kind": "", "source": "", "side": ""}


def test_it_is_there_while_the_doctor_looks_and_says_how_far_it_is(tmp_path, view, held):
    shown = view(DoctorPanel(saved(tmp_path)))
    state = shown.ask("hello")
    assert state["run"]["check"] == ""
    assert state["result"] is None
    assert shown.panel.running
    assert shown.panel.diagnosis is None
    until(lambda: shown.ask("hello")["run"]["at"] == [3, 9], "a view that comes later hears it")
    with pytest.raises(TimeoutError):
        shown.panel.wait(0)
    held.set()
    shown.wait_for("state", lambda state: state["run"] is None and state["result"])
    assert not shown.panel.running


def test_one_check_is_run_again_and_the_rest_stays(tmp_path, panel):
    path, before = tmp_path / "test.snap", panel.panel.diagnosis
    newer = load(path)
    newer.readings["ask uname"].data["release"] = "6.8.0"
    newer.save(path)
    panel.ask("check", check="kernel-version")
    after = panel.panel.wait(20)
    (found,) = after.of("kernel-version")
    assert found.verdict is Verdict.OK
    assert [one for one in before.findings if one.check != "kernel-version"] == [
        one for one in after.findings if one.check != "kernel-version"
    ]
    assert sorted(after.findings, key=lambda one: -one.verdict) == list(after.findings)
    assert after.goal is before.goal
    assert after.chosen == before.chosen
    blocked = {name for way in after.data_paths for name in way.blocked_by}
    assert "kernel-version" not in blocked


def test_what_followed_from_a_cause_that_is_gone_is_judged_again(tmp_path):
    path, whole = tmp_path / "x.snap", load(snapshot_file("driver-broken"))
    whole.save(path)
    before = diagnosis_task.run([path], diagnosis_task.Request(Goal.RDMA), None, print)
    (cuda,) = before.diagnosis.of("cuda-driver")
    assert (cuda.follows, cuda.remedy) == ("driver-loaded", ())
    well = load(snapshot_file("pix")).readings
    whole.readings["run nvidia-smi -q"] = well["run nvidia-smi -q"]
    whole.save(path)
    only = diagnosis_task.Request(Goal.RDMA, check="driver-loaded")
    after = diagnosis_task.run([path], only, before, print).diagnosis
    (loaded,), (cuda,) = after.of("driver-loaded"), after.of("cuda-driver")
    assert loaded.verdict is Verdict.OK
    assert (cuda.verdict, cuda.follows) == (Verdict.FAIL, "")
    assert cuda.remedy


def test_run_again_it_reads_the_snapshot_anew(tmp_path, panel):
    saved(tmp_path, {"17/17:01.0/18:00.0": ("nic", 0)})
    panel.ask("check")
    panel.panel.wait(20)
    assert panel.ask("hello")["topology"]["gpus"] == []


def test_a_goal_that_is_chosen_is_judged_for_and_auto_goes_back(panel):
    assert panel.ask("hello")["goal"] == "auto"
    assert panel.panel.diagnosis.goal is Goal.RDMA
    panel.ask("aim", goal="gpunetio")
    assert panel.panel.wait(20).goal is Goal.GPUNETIO
    assert panel.ask("hello")["goal"] == "gpunetio"
    assert panel.ask("hello")["result"]["chosen"] == ""
    panel.ask("aim", goal="auto")
    assert panel.panel.wait(20).goal is Goal.RDMA


def test_what_is_asked_for_while_it_runs_comes_next_and_only_the_last_of_it(tmp_path, view, held):
    shown = view(DoctorPanel(saved(tmp_path)))
    for goal in ("rdma", "laptop", "gpunetio"):
        shown.ask("aim", goal=goal)
    held.set()
    assert shown.panel.wait(20).goal is Goal.GPUNETIO
    assert len(held.asked) == 2


def test_a_check_that_is_asked_for_takes_no_goal_from_the_queue(tmp_path, view, held):
    shown = view(DoctorPanel(saved(tmp_path)))
    shown.ask("aim", goal="rdma")
    shown.ask("check", check="kernel-version")
    held.set()
    assert shown.panel.wait(20).goal is Goal.RDMA
    assert held.asked == [[], []]


def test_all_views_hear_the_same(panel):
    other = View(panel.panel)
    panel.ask("aim", goal="rdma")
    panel.panel.wait(20)
    heard = other.of("state")
    assert len(heard) == 2
    assert heard == panel.of("state")[-2:]
    assert other.ask("hello")["goal"] == "rdma"


def test_a_snapshot_that_is_gone_or_spoiled_is_said_and_what_was_found_stays(tmp_path, panel):
    found, path = panel.panel.diagnosis, tmp_path / "test.snap"
    for spoil, words in (
        (lambda: path.write_text("{}"), "is not a snapshot of dgkit doctor"),
        (path.unlink, "No such file"),
    ):
        spoil()
        panel.ask("check")
        with pytest.raises((ValueError, OSError)):
            panel.panel.wait(20)
        assert words in panel.errors[-1]
        state = panel.ask("hello")
        assert state["result"]
        assert words in state["failed"]["text"]
        assert panel.panel.diagnosis is found
    with pytest.raises(FileNotFoundError):
        DoctorPanel(path)


def test_a_check_that_there_is_not_is_an_error_that_says_where_all_are(panel):
    panel.ask("check", check="vibes")
    with pytest.raises(ValueError, match="no check 'vibes'"):
        panel.panel.wait(20)
    assert "dgkit doctor --list" in panel.errors[-1]


def test_a_host_and_a_dpu_are_judged_together(tmp_path, view):
    host, arm = saved(tmp_path), saved(tmp_path, {}, name="arm")
    dpu = load(arm)
    dpu.readings["ask uname"].data["machine"] = "aarch64"
    dpu.readings["text /etc/mlnx-release"] = dpu.readings["ask uname"]
    dpu.save(arm)
    shown = view(DoctorPanel([host, arm]))
    shown.panel.wait(20)
    assert [one["side"] for one in shown.ask("hello")["machines"]] == ["host", "dpu"]
    assert tuple(shown.ask("hello")["topology"]["pair"]) == (GPU, DPU)


def test_the_drawing_begins_with_the_nearest_pair_and_answers_for_each(panel):
    picture = panel.ask("hello")["topology"]
    assert tuple(picture["pair"]) == (GPU, DPU)
    assert picture["near"] == "PIX"
    assert len(picture["gpus"]) == len(picture["nics"]) == 3
    panel.ask("pair", gpu=FAR, nic=DPU)
    (told,) = panel.of("topology")
    assert told["topology"]["near"] == "SYS"
    assert "under one PCIe bridge? They are not" in told["topology"]["answer"]
    assert tuple(panel.ask("hello")["topology"]["pair"]) == (FAR, DPU)
    assert "SYS" in panel.ask("figures", dark=True)["document"]


def test_the_pair_that_was_chosen_stays_after_a_check(panel):
    panel.ask("pair", gpu=FAR, nic=DPU)
    panel.ask("check")
    panel.panel.wait(20)
    assert tuple(panel.ask("hello")["topology"]["pair"]) == (FAR, DPU)


@pytest.mark.parametrize("pair", [(DPU, GPU), (GPU, "0000:ff:00.0"), ("", "")])
def test_a_pair_that_there_is_not_is_refused(panel, pair):
    with pytest.raises(PanelError, match="a GPU and a NIC"):
        panel.ask("pair", gpu=pair[0], nic=pair[1])
    assert tuple(panel.ask("hello")["topology"]["pair"]) == (GPU, DPU)


def test_without_pci_devices_there_is_no_drawing(tmp_path, view):
    shown = view(DoctorPanel(saved(tmp_path, {})))
    shown.panel.wait(20)
    assert shown.ask("hello")["topology"] is None
    with pytest.raises(PanelError, match="no drawing"):
        shown.ask("pair", gpu=GPU, nic=DPU)


def test_what_a_view_is_told_is_bounded(tmp_path, view, panel):
    found = panel.panel.diagnosis
    long = Finding(verdict=Verdict.WARN, found="x" * 10_000, remedy=("y" * 10_000,) * 100)
    many = tuple(replace(long, check=str(at)) for at in range(5000))
    huge = replace(found, findings=many)
    told = serialize_diagnosis(huge)
    assert len(told["findings"]) == MAX_FINDINGS
    assert told["left_out"] == 5000 - MAX_FINDINGS
    assert max(len(one["found"]) for one in told["findings"]) < 2100
    assert len(json.dumps(serialize_diagnosis(found))) < 100_000
    wide = view(DoctorPanel(saved(tmp_path, large())))
    wide.panel.wait(20)
    assert len(wide.ask("figures", dark=False)["document"]) < 200_000


def test_what_is_copied_is_one_line_whatever_the_machine_is_called(panel):
    found = panel.panel.diagnosis
    odd = Finding(verdict=Verdict.FAIL, found="a\x1b[31m", remedy=("ls\nrm -r x",))
    told = serialize_diagnosis(
        type(found)(case=found.case, findings=(odd,), data_paths=(), chosen="", took_s=0.0)
    )["findings"][0]
    assert told["remedy"] == ["ls rm -r x"]
    assert "\x1b" not in told["found"]


def test_findings_have_keys_of_their_own_that_are_the_same_in_the_next_run(panel):
    keys = [one["key"] for one in panel.ask("hello")["result"]["findings"]]
    assert len({*keys}) == len(keys)
    panel.ask("check")
    panel.panel.wait(20)
    assert [one["key"] for one in panel.ask("hello")["result"]["findings"]] == keys


def test_closed_while_it_runs_it_tells_nothing_more_and_leaves_no_thread(tmp_path, view, held):
    shown = view(DoctorPanel(saved(tmp_path)))
    until(lambda: held.asked, "the doctor is asked")
    shown.ask("aim", goal="laptop")
    shown.panel.close()
    told = len(shown.messages)
    assert not shown.panel.running
    with pytest.raises(ClosedError, match=r"was closed|is closed"):
        shown.panel.wait(0)
    held.set()
    names = lambda: {thread.name for thread in threading.enumerate()}  # noqa: E731
    until(lambda: not names() & {"dgkit-background", "dgkit-frames"}, "its threads have ended")
    assert len(shown.messages) == told
    assert held.asked == [[]]


def test_a_notebook_keeps_the_card_and_no_findings_as_data(panel):
    shown = panel.panel._repr_mimebundle_()
    data = shown[0] if isinstance(shown, tuple) else shown
    assert "Linux kernel" in data["text/html"]
    assert "kernel-version" not in str(panel.panel.get_state())


def test_without_a_result_the_card_says_what_to_do(tmp_path, view, held):
    shown = view(DoctorPanel(saved(tmp_path)))
    assert "run the cell" in shown.panel.static_html()
