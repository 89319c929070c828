"""Panel that reads and writes regions.

`transfer`: the panel.
`request`: a validated request, and its limits.
`payload`: the data that a write sends, and files received from the browser in chunks.
`request_runner`: running requests one after the other.
`completions`: records and statistics of finished transfers.
`timeline`: the listed transfers on one time axis.
`read_result`: the bytes of the last read.
"""

from .transfer import TransferPanel

__all__ = ["TransferPanel"]
