# SPDX-License-Identifier: Apache-2.0
"""A cluster beyond loopback: with certificates it works, without it is refused."""

import subprocess

import dask
import pytest
from distributed import Client, LocalCluster
from distributed.utils import get_ip

from dgkit.cli import main
from dgkit.errors import PeerLost, PeerRefused
from dgkit.fleet import Fleet, demo_cluster

QUICK = ["--sizes", "64", "--ops", "write", "--count", "50", "--seconds", "0.01"]


def certificates(folder):
    """Make a pair of files that is its own authority, as the README says, and its configuration."""
    words = "req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=test"
    subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)
    pem = {"cert": str(folder / "cert.pem"), "key": str(folder / "key.pem")}
    names = [f"{side}.{kind}" for side in ("scheduler", "worker", "client") for kind in pem]
    found = {name: pem[name.rpartition(".")[2]] for name in names} | {"ca-file": pem["cert"]}
    return {f"distributed.comm.tls.{name}": value for name, value in found.items()}


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """Configuration and address of a cluster with certificates, at an address of this machine."""
    config = certificates(tmp_path_factory.mktemp("tls"))
    with (
        dask.config.set(config),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, protocol="tls://", host=get_ip(),
            dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
        ) as cluster,
    ):  # fmt: skip
        yield config, cluster.scheduler_address


def test_a_cluster_with_certificates_is_a_fleet_also_for_the_command(tls, capfd):
    config, address = tls
    assert address.startswith(f"tls://{get_ip()}:")
    with dask.config.set(config), Client(address) as client, Fleet(client) as fleet:
        assert len(fleet.usable) == 2
        assert set(fleet.map(lambda session: session.info["role"]).values()) == {"host"}
    with dask.config.set(config):
        assert main(["fleet", "sweep", "--scheduler", address, *QUICK]) == 0
    assert "Fleet of 2 pairs: 2 software DPU" in capfd.readouterr().out


def test_a_client_without_certificates_or_with_others_is_refused(tls, tmp_path, monkeypatch):
    config, address = tls
    monkeypatch.setattr(demo_cluster, "_CONNECT_S", 2.0)
    lost = (PeerLost, rf"no Dask scheduler answers at {address}.*certificate does not match")
    none = (PeerRefused, r"has no ca-file of .* set DASK_DISTRIBUTED__COMM__TLS__CA_FILE")
    for other, (error, text) in ((dict.fromkeys(config), none), (certificates(tmp_path), lost)):
        with (
            dask.config.set(other),
            pytest.raises(error, match=text),
            demo_cluster.connected(address),
        ):
            raise AssertionError("it was let in")


def test_the_same_cluster_without_tls_is_refused_before_anything_is_sent(tls, capsys):
    _, address = tls
    plain = address.replace("tls://", "tcp://").replace(get_ip(), "192.0.2.7")
    assert main(["fleet", "sweep", "--scheduler", plain, *QUICK]) == 4
    assert "is reachable without TLS" in capsys.readouterr().err
