"""PCIe as a virtual machine shows it: made up by the hypervisor, so no alarm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .. import finding
from ..facts import virtual
from ..finding import Finding, Verdict
from ..machine import Machine

__all__ = ["only_good"]


def only_good(machine: Machine, findings: Iterable[Finding], what: str) -> Iterator[Finding]:
    """Yield the findings; in a virtual machine, others than OK become one "not applicable".

    Args:
        machine: The machine that they are about.
        findings: Findings on the tree, the nodes or the links of PCI devices.
        what: What is not judged there.
    """
    if not machine.know(virtual.virtual).is_vm:
        yield from findings
        return
    found = list(findings)
    good = (Verdict.OK, Verdict.NOT_APPLICABLE)
    yield from (one for one in found if one.verdict in good)
    if any(one.verdict not in good for one in found):
        yield finding.n_a(f"{what} of a virtual machine are not judged")
