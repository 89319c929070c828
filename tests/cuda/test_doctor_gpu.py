# SPDX-License-Identifier: Apache-2.0
"""The doctor on a machine with a GPU: what it says is what dgkit and the driver do."""

import pytest

import dgkit
from dgkit import memory
from dgkit.doctor import Verdict
from dgkit.doctor.experiments.perform import perform
from dgkit.doctor.experiments.plan import plan
from dgkit.doctor.runner import live_machine, read_everything

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def found():
    return dgkit.doctor(goal="arm-dma", size="1M")


def of(found, check):
    (one,) = found.of(check)
    return one


def test_nothing_goes_wrong_in_a_check(found):
    assert not [one for one in found.findings if "check failed" in one.why]
    assert found.took_s < 12


def test_the_driver_and_its_kernel_modules_are_those_that_dgkit_sees(found):
    gpu = memory.gpus()[0]
    assert gpu.driver in of(found, "driver-loaded").found + of(found, "driver-version").found
    assert gpu.flavour in of(found, "driver-flavour").found


def test_a_dma_buf_is_promised_where_the_driver_gives_one_and_only_there(found):
    promised = of(found, "dmabuf-gpu").verdict is Verdict.OK
    with dgkit.empty(1 << 20, on="gpu") as block:
        if promised:
            with block.dmabuf() as given:
                assert given.fd >= 0
            return
        with pytest.raises(dgkit.ExportError) as refused:
            block.dmabuf()
        assert refused.value.check == "dmabuf-gpu"


def test_bar1_is_enough_for_less_than_its_free_space_and_for_no_more():
    free = memory.gpus()[0].bar1_free
    assert free is not None, "NVML tells of no BAR1"
    for size, verdict in ((1 << 20, Verdict.OK), (2 * free, Verdict.FAIL)):
        wide = dgkit.doctor(goal="arm-dma", checks="bar1-size", size=size)
        assert {one.verdict for one in wide.of("bar1-size")} == {verdict}


def test_a_recording_is_judged_as_the_machine_itself(tmp_path):
    stored = dgkit.doctor.record(tmp_path / "here.snap")
    assert not any(memory.gpus()[0].uuid in str(one) for one in stored.readings.values())
    for goal in dgkit.doctor.Goal:
        live = dgkit.doctor(goal=goal)
        told = dgkit.doctor(goal=goal, snapshots=tmp_path / "here.snap")
        assert [(one.check, one.verdict) for one in told.findings] == [
            (one.check, one.verdict) for one in live.findings
        ]


def test_the_gpu_that_works_for_dgkit_works_for_the_doctor(found):
    assert of(found, "cuda-python").verdict is Verdict.OK
    ways = {way.name: way for way in found.data_paths}
    assert ways["cuda"].works
    assert ways["soft"].works
    assert not any(way.works for name, way in ways.items() if name.startswith("doca"))


def test_every_gpu_of_the_machine_is_in_the_tree():
    from dgkit.doctor.facts import pci

    with dgkit.doctor.runner.live_machine() as machine:
        tree = machine.know(pci.tree)
        assert {gpu.pci for gpu in memory.gpus()} <= set(tree.devices)
        read_everything(machine)


def test_two_gpus_are_as_near_as_nvidia_smi_says():
    found = dgkit.doctor(goal="rdma", checks="topology-nvidia-smi")
    assert of(found, "topology-nvidia-smi").verdict in (Verdict.OK, Verdict.NOT_APPLICABLE)


def test_each_experiment_on_the_gpus_works_and_none_leaves_memory_behind():
    """Copies between GPUs, where there are several, compare the data."""
    with live_machine() as machine:
        planned = [one for one in plan(machine) if one.name in ("cuda-context", "gpu-copy")]
        planned += [one for one in plan(machine) if one.name == "doca-dma"]
    gpus = memory.gpus()
    assert sum(one.name == "cuda-context" for one in planned) == len(gpus)
    assert sum(one.name == "gpu-copy" for one in planned) == len(gpus) * (len(gpus) - 1) // 2
    results = [perform(one) for one in planned]
    assert [
        (one.experiment.subject, one.said) for one in results if one.verdict is not Verdict.OK
    ] == []
