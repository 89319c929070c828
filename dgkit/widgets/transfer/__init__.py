"""Panel that reads and writes regions.

`transfer`: the panel.
`request`: a validated request, the data that a write sends, and files received from the browser.
`request_runner`: running requests one after the other; records and statistics of them, and the
bytes of the last read.
`timeline`: the listed transfers on one time axis.
"""

from .transfer_panel import TransferPanel

__all__ = ["TransferPanel"]
