# SPDX-License-Identifier: Apache-2.0
"""The doctor on all machines of a fleet: recorded once each, judged, grouped."""

import pytest
from support.doctor.gpus import OPEN, h200, h200_and_nic, smi

from dgkit.doctor import load
from dgkit.doctor.goals import Goal
from dgkit.errors import PeerLost
from dgkit.fleet import Fleet
from dgkit.fleet.diagnosis_groups import FleetDiagnosis, judge
from dgkit.fleet.pair_plugin import PairPlugin


class Broken(PairPlugin):
    """Workers without a session."""

    def open_session(self):
        raise PeerLost("no agent here")


def test_a_machine_of_several_workers_is_judged_once_also_without_a_session(client, tmp_path):
    with Fleet(client, _plugin=Broken()) as fleet:
        found = fleet.doctor("laptop")
        files = fleet.record(tmp_path / "new")
        with pytest.raises(FileExistsError, match=r"machine-1\.json exists"):
            fleet.record(tmp_path / "new")
        with pytest.raises(ValueError, match="no goal 'nothing'"):
            fleet.doctor("nothing")
    host = fleet.pairs[0].host
    assert list(found.diagnoses) == [host]
    assert found.failures == {}
    (group,) = found.groups
    assert group.names == (host,)
    assert str(group) in str(found)
    assert found.as_dict()["groups"][0]["machines"] == [host]
    assert str(group.verdict) in found._repr_html_()
    assert found.exit_code == found.diagnoses[host].exit_code
    assert [path.name for path in files.values()] == ["machine-1.json"]
    assert load(files[host]).readings


def test_machines_are_grouped_by_verdict_and_version_outliers_first():
    newer = {"run nvidia-smi -q": smi(driver="590.10.01")}
    newer["text /proc/driver/nvidia/version"] = OPEN.replace("580.159.04", "590.10.01")
    small = {"run nvidia-smi -q": smi(bar1=("256 MiB", "2 MiB"))}
    machines = {f"node{n}": h200_and_nic() for n in range(5)}
    machines |= {"odd": h200_and_nic(newer), "small": h200_and_nic(small)}
    diagnoses = {name: judge([machine], Goal.RDMA)[0] for name, machine in machines.items()}
    found = FleetDiagnosis(diagnoses, {"gone": "PeerLost: no answer"})
    assert [len(group.names) for group in found.groups] == [1, 1, 5]
    reasons = {group.names[0]: "; ".join(group.reasons) for group in found.groups}
    assert "590.10.01, most have 580.159.04" in reasons["odd"]
    assert "most have" not in reasons["node0"]
    assert "BAR1" in reasons["small"]
    assert str(found).endswith("not read: gone: PeerLost: no answer")
    assert found.exit_code == 1


def test_two_machines_of_the_same_side_are_judged_alone():
    assert len(judge([h200_and_nic(), h200()], None)) == 2


def test_a_fleet_that_cannot_be_read_is_a_failure():
    found = FleetDiagnosis({}, {"a": "no answer"})
    assert found.exit_code == 1
    assert repr(found) == "<FleetDiagnosis of 0 machines: none>"
