# SPDX-License-Identifier: Apache-2.0
"""Queue pair of pyverbs for queue_pairs.py, in a process of the distribution's Python.

Reads a request in JSON from each line of standard input, and writes its reply as a line of JSON. It
imports nothing of dgkit's.
"""

import ipaddress
import json
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

PORT, SIZE, PSN, READS = 1, 1 << 16, 0x123456, 4
REMOTE = e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE


class Peer:
    """Queue pair with a buffer that the other side may use, and one for its own operations."""

    def __init__(self, name: str) -> None:
        self.context = Context(name=name)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 16)
        self.shared = MR(self.pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE | REMOTE)
        self.own = MR(self.pd, SIZE, e.IBV_ACCESS_LOCAL_WRITE)
        self.gid_index, self.gid = self.find_gid()
        cap = QPCap(max_send_wr=16, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap)
        attr = QPAttr(port_num=PORT)
        attr.qp_access_flags = REMOTE
        self.qp = QP(self.pd, init, attr)  # in the state INIT

    def find_gid(self) -> tuple[int, str]:
        """Return the first GID that is an IPv4 address."""
        for index in range(self.context.query_port(PORT).gid_tbl_len):
            gid = self.context.query_gid(PORT, index).gid
            if ipaddress.IPv6Address(gid).ipv4_mapped:
                return index, gid
        raise LookupError("the port has no GID for IPv4")

    def address(self) -> dict[str, object]:
        """Return the numbers that the other side needs."""
        shared = {"address": self.shared.buf, "size": SIZE, "rkey": self.shared.rkey}
        place = {"qpn": self.qp.qp_num, "psn": PSN, "gid": self.gid, "max_reads": READS}
        return {"place": place, "memory": shared}

    def connect(self, qpn: int, psn: int, gid: str, mtu: int, max_reads: int) -> dict[str, object]:
        """Go to RTS."""
        attr = QPAttr(port_num=PORT)
        attr.path_mtu = mtu.bit_length() - 8  # enum ibv_mtu
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = qpn, psn, PSN
        attr.max_dest_rd_atomic, attr.max_rd_atomic = READS, min(READS, max_reads)
        attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 12, 17, 6, 7
        gid = ipaddress.IPv6Address(gid).exploded
        route = GlobalRoute(dgid=GID(gid), sgid_index=self.gid_index, hop_limit=64)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=PORT)
        self.qp.to_rts(attr)
        return {}

    def move(self, op: str, address: int, rkey: int, size: int) -> dict[str, object]:
        """Write from or read into the own buffer, and return the status of the work completion."""
        opcode = {"write": e.IBV_WR_RDMA_WRITE, "read": e.IBV_WR_RDMA_READ}[op]
        piece = SGE(self.own.buf, size, self.own.lkey)
        request = SendWR(
            wr_id=7, opcode=opcode, num_sge=1, sg=[piece], send_flags=e.IBV_SEND_SIGNALED
        )
        request.set_wr_rdma(rkey, address)
        self.qp.post_send(request)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            count, completions = self.cq.poll(1)
            if count:
                return {"status": completions[0].status}
        raise TimeoutError("no work completion")

    def fill(self, buffer: str, data: str) -> dict[str, object]:
        """Put bytes, as hexadecimal text, into a buffer."""
        raw = bytes.fromhex(data)
        getattr(self, buffer).write(raw, len(raw))
        return {}

    def show(self, buffer: str, size: int) -> dict[str, object]:
        """Return the bytes of a buffer as hexadecimal text."""
        return {"data": getattr(self, buffer).read(size, 0).hex()}


def main() -> None:
    """Answer requests until standard input ends."""
    peer = Peer(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        reply = getattr(peer, request.pop("do"))(**request)
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
