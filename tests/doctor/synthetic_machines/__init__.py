"""Whole machines as snapshots, out of a few lines each.

`tree` reads a drawing of the PCIe tree; `kinds` knows what the names in it are; `config_space`,
`sysfs`, `nvidia`, `network`, `probes` and `system` write what a machine with that tree would show,
key by key as dgkit/doctor reads them; `servers`, `cards`, `arms` and `others` describe machines.
From dgkit nothing is imported but the form of a reading: the doctor's parsers meet texts that they
did not write.
"""

from __future__ import annotations

from doctor.synthetic_machines.arms import ARMS, Arm
from doctor.synthetic_machines.arms import readings as arm_readings
from doctor.synthetic_machines.cards import CARDS
from doctor.synthetic_machines.hosts import readings as host_readings
from doctor.synthetic_machines.others import OTHERS
from doctor.synthetic_machines.servers import SERVERS

__all__ = ["MACHINES", "TUTORIAL", "readings"]

# By name: what it was made after, and its description.
MACHINES = {**SERVERS, **CARDS, **ARMS, **OTHERS}
# What the tutorial calls them: the names tell nothing.
TUTORIAL = {"machine-a": "small-bar1", "machine-b": "closed-driver", "machine-c": "pxb"}


def readings(name: str) -> dict[str, object]:
    """All that this machine shows."""
    about = MACHINES[name][1]
    return arm_readings(about) if isinstance(about, Arm) else host_readings(about)
