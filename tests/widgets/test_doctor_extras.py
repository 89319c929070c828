# SPDX-License-Identifier: Apache-2.0
"""DoctorPanel: NICs of each GPU, and experiments as buttons."""

import pytest
from doctor.snapshots import snapshot_file
from support.jupyter.panels import PanelError

import dgkit.widgets.doctor.diagnosis_task as diagnosis_task
from dgkit.doctor.experiments.perform import Result
from dgkit.doctor.experiments.plan import Experiment
from dgkit.doctor.finding import Verdict
from dgkit.widgets.doctor import DoctorPanel

A100 = str(snapshot_file("dgx-a100"))
COPY = Experiment(
    name="gpu-copy", subject="GPU 0 and GPU 1", does="copy between GPU 0 and GPU 1", query=(),
    data_path="gpu-peers", every=True,
)  # fmt: skip


def shown(view, *arguments, **options):
    found = view(DoctorPanel(*arguments, **options))
    found.panel.wait(20)
    return found


def test_a_view_gets_the_nic_of_each_gpu_and_the_answer(view):
    nics = shown(view, A100).ask("hello")["nics"]
    assert nics["header"][:2] == ("GPU", "nearest NIC up")
    assert nics["rows"][1][:3] == ("GPU 1", "mlx5_1", "PXB")
    assert nics["answer"].startswith("Must a GPU and its NIC be under one bridge?")


def test_a_snapshot_has_no_experiments(view):
    panel = shown(view, A100)
    assert panel.ask("hello")["experiments"] == []
    with pytest.raises(PanelError, match="no experiment"):
        panel.ask("experiment", kind="gpu-copy")


def test_a_button_runs_the_experiments_of_its_kind_and_their_result_overrules(view, monkeypatch):
    run = []

    def perform(experiment):
        run.append(experiment)
        return Result(experiment=experiment, verdict=Verdict.FAIL, said="lost", took_s=0.1)

    monkeypatch.setattr(diagnosis_task, "plan", lambda _: [COPY])
    monkeypatch.setattr(diagnosis_task, "perform", perform)
    panel = shown(view, goal="p2p")
    (button,) = panel.ask("hello")["experiments"]
    assert (button["title"], button["does"]) == ("Copy between GPUs", COPY.does)
    assert (button["verdict"], run) == ("", [])
    panel.ask("experiment", kind="gpu-copy")
    found = panel.panel.wait(20)
    assert run == [COPY]
    assert found.findings[0].check == "try-gpu-copy"
    (button,) = panel.ask("hello")["experiments"]
    assert button["verdict"] == "fail"
    assert "failed: GPU 0 and GPU 1" in button["text"]


def test_the_end_of_doca_in_software_is_shown_too(view):
    panel = shown(view, goal="laptop")
    panel.ask("experiment", kind="doca-dma")
    panel.panel.wait(60)
    (button,) = panel.ask("hello")["experiments"]
    assert (button["title"], button["verdict"], button["text"]) == (
        "DOCA DMA",
        "ok",
        "1 of 1 works",
    )
