# SPDX-License-Identifier: Apache-2.0
"""The configuration of JupyterHub that `dgkit teach hub` prints."""

import pytest
from traitlets.config.loader import PyFileConfigLoader

from dgkit.cli import main

CHANGED = (
    *("--students", "7", "--memory", "512M", "--cpus", "0.5"),
    *("--processes", "100", "--sockets", "600"),
)


def printed(tmp_path, capsys, *options):
    """Load the configuration as JupyterHub does."""
    assert main(["teach", "hub", *options]) == 0
    (tmp_path / "jupyterhub_config.py").write_text(capsys.readouterr().out)
    return PyFileConfigLoader("jupyterhub_config.py", str(tmp_path)).load_config()


def test_units_of_systemd_have_the_limits(tmp_path, capsys):
    config = printed(tmp_path, capsys, *CHANGED)
    assert config.JupyterHub.spawner_class == "systemdspawner.SystemdSpawner"
    assert config.JupyterHub.active_server_limit == 7
    assert (config.Spawner.mem_limit, config.Spawner.cpu_limit) == (512 << 20, 0.5)
    assert config.SystemdSpawner.unit_extra_properties == {
        "MemorySwapMax": "0",
        "TasksMax": "100",
        "LimitNOFILE": "600",
    }
    assert "--ServerApp.min_open_files_limit=600" in config.Spawner.args
    assert "DockerSpawner" not in config


def test_containers_have_the_limits(tmp_path, capsys):
    config = printed(tmp_path, capsys, *CHANGED, "--spawner", "docker", "--image", "a/b:c")
    assert config.JupyterHub.spawner_class == "dockerspawner.DockerSpawner"
    assert (config.Spawner.mem_limit, config.Spawner.cpu_limit) == (512 << 20, 0.5)
    assert config.DockerSpawner.image == "a/b:c"
    host = config.DockerSpawner.extra_host_config
    assert (host["memswap_limit"], host["pids_limit"]) == (512 << 20, 100)
    assert host["ulimits"] == [{"name": "nofile", "soft": 600, "hard": 600}]
    assert config.DockerSpawner.volumes == {"student-{username}": "/home/student"}
    assert "SystemdSpawner" not in config


@pytest.mark.parametrize("spawner", ["systemd", "docker"])
def test_only_this_machine_reaches_the_hub_and_the_need_of_node_is_said(spawner, tmp_path, capsys):
    config = printed(tmp_path, capsys, "--spawner", spawner)
    assert config.JupyterHub.bind_url == "http://127.0.0.1:8000"
    assert config.LocalAuthenticator.allowed_groups == {"students"}
    text = (tmp_path / "jupyterhub_config.py").read_text()
    assert "npm install -g configurable-http-proxy  # the proxy runs on Node" in text


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--memory", "1M", "'1M' is too little"),
        ("--memory", "much", "'much' is not a size"),
        ("--cpus", "nan", "'nan' is not a time"),
        ("--processes", "3", "'3' is not a whole number from 64"),
        ("--sockets", "-1", "'-1' is not a whole number from 256"),
        ("--students", "0", "'0' is not a whole number from 1"),
        ("--spawner", "local", "'local' is not one of"),
        ("--image", 'x"""\nimport os', "is not the name of an image"),
    ],
)
def test_what_would_limit_nothing_is_refused(option, value, why, capsys):
    assert main(["teach", "hub", option, value]) == 2
    out, err = capsys.readouterr()
    assert why in err
    assert out == ""


@pytest.mark.more
@pytest.mark.parametrize("spawner", ["systemd", "docker"])
def test_jupyterhub_and_its_spawner_know_each_setting(spawner, tmp_path, capsys):
    config = printed(tmp_path, capsys, *CHANGED, "--spawner", spawner)
    from dockerspawner import DockerSpawner
    from jupyterhub.app import JupyterHub
    from jupyterhub.auth import LocalAuthenticator
    from jupyterhub.proxy import ConfigurableHTTPProxy
    from jupyterhub.spawner import Spawner
    from systemdspawner import SystemdSpawner

    known = JupyterHub, LocalAuthenticator, ConfigurableHTTPProxy, Spawner
    classes = {each.__name__: each for each in (*known, SystemdSpawner, DockerSpawner)}
    for section, values in config.items():
        for name, value in values.items():
            owner = classes[section].__new__(classes[section])
            assert owner.traits(config=True)[name]._validate(owner, value) is not None, name
