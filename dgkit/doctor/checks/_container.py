"""Options that start a container with the devices that it lacks, by its engine."""

from __future__ import annotations

from ..facts.devices import refused
from ..facts.virtual import container
from ..machine import Machine

__all__ = ["with_devices"]

_CDI = "# (CDI; once, on the host: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml)"


def with_devices(machine: Machine, *, gpu: bool, infiniband: bool = False) -> list[str]:
    """Return instructions for the engine of the container that this is.

    GPUs are named by CDI where `--gpus` does not exist, or where the container lost them: its rules
    for devices then stay in force (NVIDIA Container Toolkit, Troubleshooting).
    """
    engine = machine.know(container).engine
    if engine == "Kubernetes":
        limits = ["nvidia.com/gpu: N"] if gpu else []
        limits += ["the resource of the RDMA device plugin"] if infiniband else []
        locks = "; securityContext: capabilities: add: [IPC_LOCK]" if infiniband else ""
        return [f"# In the pod: resources: limits: {' and '.join(limits)}{locks}"]
    if engine not in ("Docker", "Podman", "containerd"):
        return [f"# Pass the device files to the container, by the means of {engine}."]
    lost = any("nvidia" in path for path in machine.know(refused))
    by_cdi = gpu and (engine != "Docker" or lost)
    options = (["--device=nvidia.com/gpu=all"] if by_cdi else ["--gpus all"]) if gpu else []
    if infiniband:
        options += ["--device=/dev/infiniband", "--ulimit memlock=-1", "--cap-add=IPC_LOCK"]
    program = {"containerd": "nerdctl"}.get(engine, engine.lower())
    return [
        f"# Start it with these further options of {program} run:",
        f"# {' '.join(options)}",
        *([_CDI] if by_cdi else []),
    ]
