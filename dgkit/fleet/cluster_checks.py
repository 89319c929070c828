# SPDX-License-Identifier: Apache-2.0
"""Checks of a cluster before it is used: encryption of exposed addresses, and versions."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import dask

from ..errors import PeerRefused
from .scheduler_calls import all_workers_s, ask

if TYPE_CHECKING:
    from distributed import Client

_COMPARED = ("python", "dask", "distributed")


def exposed(address: str) -> bool:
    """Return whether an address of Dask is reachable from other machines without encryption."""
    scheme, _, rest = address.rpartition("://")
    if scheme in ("inproc", "tls", "wss"):
        return False
    host = rest.rpartition(":")[0].strip("[]")
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def check_encryption(addresses: Iterable[str]) -> None:
    """Raise PeerRefused if one of the addresses is exposed."""
    for address in addresses:
        if exposed(address):
            raise PeerRefused(
                f"{address} is reachable without TLS, and whoever reaches a Dask cluster can run "
                "code on it: start the cluster and the client with distributed.Security, or accept "
                "the risk with insecure=True (`--insecure`)"
            )


def check_certificates(address: str) -> None:
    """Raise PeerRefused if the address needs certificates that Dask's configuration lacks."""
    names = ("ca-file", "client.cert", "client.key")
    missing = [n for n in names if not dask.config.get(f"distributed.comm.tls.{n}", None)]
    if address.startswith(("tls://", "wss://")) and missing:
        name = missing[0].upper().replace("-", "_").replace(".", "__")
        raise PeerRefused(
            f"{address} needs certificates, and Dask's configuration has no {missing[0]} of "
            f"distributed.comm.tls: set DASK_DISTRIBUTED__COMM__TLS__{name}"
        )


def version_differences(client: Client, workers: int) -> tuple[str, ...]:
    """Return a line for each process whose Python or Dask differs from the client's.

    Args:
        client: Client of the cluster.
        workers: Number of its workers.
    """
    limit_s = all_workers_s(workers)
    found = ask(client, "versions", client.get_versions, limit_s=limit_s)
    ours = _compared(found["client"])
    others = {"the scheduler": found["scheduler"], **found["workers"]}
    return tuple(
        f"{who}: {name} {theirs[name]}, here {ours[name]}"
        for who, info in others.items()
        if info
        for theirs in [_compared(info)]
        for name in _COMPARED
        if theirs[name] != ours[name]
    )


def _compared(info: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions to compare; of Python only major.minor, on which pickles depend."""
    packages = info.get("packages", {})
    python = str(info.get("host", {}).get("python", sys.version)).split(".")
    return {
        "python": ".".join(python[:2]),
        **{name: str(packages.get(name)) for name in _COMPARED[1:]},
    }
