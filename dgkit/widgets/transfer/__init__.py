# SPDX-License-Identifier: Apache-2.0
"""Panel that reads and writes regions.

`transfer`: the panel.
`request`: a validated request, and the data that a write sends.
`request_runner`: running a request; records and statistics of its transfers, and the first
bytes of the last read.
`timeline`: the listed transfers on one time axis.
"""

from .transfer_panel import TransferPanel

__all__ = ["TransferPanel"]
