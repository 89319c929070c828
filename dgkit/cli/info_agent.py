"""Limits of a running agent, and how much of each is used, for `dgkit info --address`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

# Name of the limit, to whom it applies, counter of its use, counter of the limit, option that sets
# it. The use by all clients together is known only if the agent shares its telemetry.
_USER = "key or user"
_ROWS = (
    ("clients", "agent", "clients", "max_clients", "--max-clients"),
    ("clients", _USER, "user_clients", "max_user_clients", "--max-share"),
    ("regions", "client", "your_regions", "max_regions", "--max-regions, ulimit -Hn"),
    ("regions", _USER, "user_regions", "max_user_regions", "--max-share"),
    ("file descriptors", _USER, "user_descriptors", "max_user_descriptors", "--max-share"),
    ("memory", "agent", "allocated", "max_memory", "--max-memory"),
    ("memory", "client", "your_memory", "max_client_memory", "--max-client-memory"),
    ("memory", _USER, "user_memory", "max_user_memory", "--max-share"),
    ("monitors", "client", "your_monitors", "max_monitors", ""),
    ("subscriptions", _USER, "user_subscriptions", "max_user_subscriptions", "--max-share"),
)


def collect(address: str, keys: str | None) -> dict[str, Any]:
    """Query the agent at `address`; this connection counts as one of its clients.

    Raises:
        DgkitError: The agent cannot be reached, or refuses this client.
    """
    from .. import session

    agent, counters = session.inspect(address, keys=keys)
    return {
        "address": address,
        "agent": {"provider": agent.provider, "pid": agent.pid, "machine": agent.machine},
        "limits": list(_limits(counters)),
    }


def _limits(counters: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for name, scope, used, limit, option in _ROWS:
        if limit in counters:  # an older agent has fewer
            known = scope != "agent" or counters.get("shared_telemetry", 0)
            yield {
                "limit": name, "of": scope, "used": counters.get(used) if known else None,
                "most": counters[limit], "option": option,
            }  # fmt: skip


def lines(facts: Mapping[str, Any]) -> list[str]:
    """Return the facts as lines of text."""
    found = [f"{'limit':<17} {'of one':<12} {'used':>11} {'most':>11}  set by"]
    for row in facts["limits"]:
        used, most = (_value(row["limit"], row[name]) for name in ("used", "most"))
        of = "agent (all)" if row["of"] == "agent" else row["of"]
        found.append(f"{row['limit']:<17} {of:<12} {used:>11} {most:>11}  {row['option']}".rstrip())
    return found


def _value(name: str, number: int | None) -> str:
    from ..units import size_text

    if number is None:
        return "-"
    return size_text(number) if name == "memory" else f"{number:,}"
