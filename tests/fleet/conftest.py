# SPDX-License-Identifier: Apache-2.0
"""A cluster in this process: workers are threads, each with a software DPU of its own."""

import pytest
from distributed import Client, LocalCluster

from dgkit.fleet import Fleet

WORKERS = 3


@pytest.fixture(scope="session")
def client():
    with (
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def fleet(client):
    with Fleet(client) as fleet:
        yield fleet
