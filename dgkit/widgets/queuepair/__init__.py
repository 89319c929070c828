# SPDX-License-Identifier: Apache-2.0
"""Live view of a queue pair of the software NIC.

`queuepair`: the panel.
"""

from .queuepair import QueuePanel

__all__ = ["QueuePanel"]
