# SPDX-License-Identifier: Apache-2.0
"""Packets of Ethernet queues, decoded by layers. Needs the extra `packets`.

`packets`: the panel.
`capture`: the packets of a pcapng file, while it grows.
`layers`: decoding by dpkt.
"""

from .packets import PacketPanel

__all__ = ["PacketPanel"]
