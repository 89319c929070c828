# SPDX-License-Identifier: Apache-2.0
"""JupyterHub's configuration for a class: a server for each student, in a unit or a container."""

from __future__ import annotations

from dataclasses import dataclass

from .. import units


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one student: of the server, its kernels and their software DPUs together.

    Attributes:
        memory_bytes: Memory, without swap.
        cpus: CPU seconds per second, that is, number of cores.
        processes: Number of processes and threads.
        sockets: Number of open files of a process, including sockets.
    """

    memory_bytes: int = 1 << 30
    cpus: float = 1.0
    processes: int = 256
    sockets: int = 1024


_SYSTEMD_SETUP = """\
Needs Linux with systemd, and an account of the machine for each student, in the group `students`.
Once, as root, in an environment that all accounts can read, such as /opt/dgkit:

  apt install nodejs npm && npm install -g configurable-http-proxy  # the proxy runs on Node
  python3 -m venv /opt/dgkit && . /opt/dgkit/bin/activate
  pip install '.[teach]' jupyterhub jupyterhub-systemdspawner       # in dgkit's folder

Then, as root: jupyterhub -f jupyterhub_config.py"""
_SYSTEMD = """\
# Each server is a unit of systemd, jupyter-STUDENT-singleuser: `systemctl status` shows its use.
c.JupyterHub.spawner_class = "systemdspawner.SystemdSpawner"
c.Spawner.cmd = [os.path.join(BIN, "jupyterhub-singleuser")]
c.SystemdSpawner.extra_paths = [BIN]
c.SystemdSpawner.isolate_tmp = True
c.SystemdSpawner.isolate_devices = True  # False: students may use GPUs and /dev/infiniband
c.SystemdSpawner.disable_user_sudo = True
c.SystemdSpawner.unit_extra_properties = {
    "MemorySwapMax": "0",
    "TasksMax": str(PROCESSES),
    "LimitNOFILE": str(SOCKETS),
}
"""
_DOCKER_SETUP = """\
Needs Docker, and an image {image} of this Dockerfile, built in dgkit's folder, where VERSION is
that of the hub (`jupyterhub --version`):

  FROM python:3.12
  COPY . /dgkit
  RUN pip install '/dgkit[teach]' jupyterhub==VERSION && useradd -m student
  USER student
  WORKDIR /home/student
  CMD ["jupyterhub-singleuser"]

Once, as root:

  apt install nodejs npm && npm install -g configurable-http-proxy  # the proxy runs on Node
  python3 -m venv /opt/hub && . /opt/hub/bin/activate
  pip install jupyterhub dockerspawner

Then, as root: jupyterhub -f jupyterhub_config.py

Students log in by an account of the machine in the group `students`, or as another authenticator
of JupyterHub says. In the containers all are the user `student`, so nbgrader's exchange cannot tell
them apart: collect from the volumes `student-NAME`."""
_DOCKER = """\
# Each server is a container; the volume student-NAME keeps a student's files.
c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.JupyterHub.hub_ip = "172.17.0.1"  # the hub in Docker's default network
c.DockerSpawner.image = {image!r}
c.DockerSpawner.remove = True
c.DockerSpawner.volumes = {{"student-{{username}}": "/home/student"}}
c.DockerSpawner.notebook_dir = "/home/student"
c.DockerSpawner.extra_host_config = {{
    "memswap_limit": MEMORY,  # of memory and swap together
    "pids_limit": PROCESSES,
    "ulimits": [{{"name": "nofile", "soft": SOCKETS, "hard": SOCKETS}}],
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}}
"""
_CONFIG = '''\
"""JupyterHub's configuration of a class with dgkit's labs, printed by `dgkit teach hub`.

{setup}
"""

import os
import sys

c = get_config()  # noqa: F821

# Limits of one student: of the server, its kernels and their software DPUs together.
MEMORY = {limits.memory_bytes}  # bytes: {memory}
CPUS = {limits.cpus}
PROCESSES = {limits.processes}  # and threads
SOCKETS = {limits.sockets}  # and other open files, of a process
STUDENTS = {students}  # servers at a time

BIN = os.path.dirname(sys.executable)

{spawner}
c.Spawner.mem_limit = MEMORY
c.Spawner.cpu_limit = CPUS
c.Spawner.environment = {{"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}}
c.Spawner.args = [
    f"--ServerApp.min_open_files_limit={{SOCKETS}}",  # more is refused, and the server ends
    "--MappingKernelManager.cull_idle_timeout=3600",  # of a notebook that no browser shows
    "--ServerApp.shutdown_no_activity_timeout=7200",
]
c.Spawner.start_timeout = 120
c.JupyterHub.active_server_limit = STUDENTS
c.JupyterHub.concurrent_spawn_limit = 4

c.LocalAuthenticator.allowed_groups = {{"students"}}

# Only this machine reaches the hub. For a class, put a web server with TLS before it, or set
# c.JupyterHub.ssl_key and ssl_cert and listen on https://:443.
c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.ConfigurableHTTPProxy.command = ["configurable-http-proxy"]
'''
_PARTS = {"systemd": (_SYSTEMD_SETUP, _SYSTEMD), "docker": (_DOCKER_SETUP, _DOCKER)}
SPAWNERS = tuple(_PARTS)


def configuration(spawner: str, limits: Limits, *, students: int, image: str) -> str:
    """Return the text of a jupyterhub_config.py.

    Args:
        spawner: One of SPAWNERS, which runs and limits a student's server.
        limits: Limits of one student.
        students: Largest number of servers that run at the same time.
        image: Container image; only for "docker".
    """
    setup, settings = _PARTS[spawner]
    if spawner == "docker":
        setup, settings = setup.format(image=image), settings.format(image=image)
    memory = units.size_text(limits.memory_bytes)
    return _CONFIG.format(
        setup=setup, spawner=settings, limits=limits, memory=memory, students=students
    )
