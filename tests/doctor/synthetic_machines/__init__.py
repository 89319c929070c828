# SPDX-License-Identifier: Apache-2.0
"""Descriptions of whole machines, a few lines each, from which snapshots are made.

`tree` parses a drawing of the PCIe tree and `kinds` has the devices in it; `config_space`, `sysfs`,
`nvidia`, `network`, `probes` and `system` make the readings of a machine with that tree, by the
keys that dgkit/doctor reads; `servers`, `cards`, `arms` and `others` describe machines. Of dgkit
only the Reading is imported, so that the doctor's parsers get text that they did not produce.
"""

from __future__ import annotations

from doctor.synthetic_machines.arms import ARMS, Arm
from doctor.synthetic_machines.arms import readings as arm_readings
from doctor.synthetic_machines.cards import CARDS
from doctor.synthetic_machines.hosts import readings as host_readings
from doctor.synthetic_machines.others import OTHERS
from doctor.synthetic_machines.servers import SERVERS

__all__ = ["MACHINES", "TUTORIAL", "readings"]

# By name: the document or output that it is modelled on, and its description.
MACHINES = {**SERVERS, **CARDS, **ARMS, **OTHERS}
# Names in the tutorial, which do not reveal the problem.
TUTORIAL = {"machine-a": "small-bar1", "machine-b": "closed-driver", "machine-c": "pxb"}


def readings(name: str) -> dict[str, object]:
    """Return all readings of a machine."""
    about = MACHINES[name][1]
    return arm_readings(about) if isinstance(about, Arm) else host_readings(about)
