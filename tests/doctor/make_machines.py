"""Writes tests/doctor/machines/*.snap, and those that the tutorial has: python make_machines.py

What is written was made up, each after the document or the public output that its `source` names.
Real recordings lie beside them and are left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

_HERE = Path(__file__).parent
if __name__ == "__main__":
    sys.path[:0] = [str(_HERE.parent), str(_HERE.parent.parent)]

from doctor.synthetic_machines import MACHINES, TUTORIAL, readings  # noqa: E402
from support.doctor.machines import reading  # noqa: E402

from dgkit.doctor.collect.snapshot import Snapshot  # noqa: E402

MACHINE_FOLDER = _HERE / "machines"
TUTORIAL_FOLDER = _HERE.parent.parent / "notebooks/tutorials/machines"


def snapshot(name: str) -> Snapshot:
    """The machine with this name."""
    source, _ = MACHINES[name]
    found: Mapping[str, object] = readings(name)
    return Snapshot(
        source=f"synthetic: after {source}",
        taken="2026-11-21",
        otherwise="absent",
        readings={key: reading(key, found[key]) for key in sorted(found)},
    )


def files() -> dict[Path, str]:
    """Where which machine goes."""
    made = {MACHINE_FOLDER / f"{name}.snap": name for name in MACHINES}
    return {**made, **{TUTORIAL_FOLDER / f"{to}.snap": name for to, name in TUTORIAL.items()}}


def main() -> None:
    """Writes all of them."""
    for path, name in files().items():
        path.parent.mkdir(exist_ok=True)
        snapshot(name).save(path)
        print(path.relative_to(_HERE.parent.parent), path.stat().st_size)


if __name__ == "__main__":
    main()
