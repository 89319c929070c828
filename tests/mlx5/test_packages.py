# SPDX-License-Identifier: Apache-2.0
"""UCX, Open MPI, libfabric and pyverbs of the distribution, with the adapter in software."""

import subprocess

import pytest
from support.processes import cli
from support.processes.rdma_pair import pair

# Sums, puts and fetches between two ranks, and compares every word.
MPI = """
#include <mpi.h>
#include <stdio.h>
enum { N = 1 << 18 };
static int mine[N], sum[N], window[N];
int main(int argc, char **argv)
{
	int rank, wrong = 0, one = 1, old;
	MPI_Win win;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Win_create(window, sizeof window, sizeof *window, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	for (int i = 0; i < N; i++)
		mine[i] = i * (rank + 1);
	MPI_Allreduce(mine, sum, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Win_fence(0, win);
	MPI_Put(mine, N, MPI_INT, !rank, 0, N, MPI_INT, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < N; i++)
		wrong += (sum[i] != 3 * i) + (window[i] != i * (2 - rank));
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 0, MPI_SUM, win);
	MPI_Win_unlock(0, win);
	MPI_Barrier(MPI_COMM_WORLD);
	printf("rank %d: %d wrong, sum %d\\n", rank, wrong, window[0]);
	MPI_Win_free(&win);
	return MPI_Finalize();
}
"""

# Sends lists of 30 segments to a shared receive queue, while its CQ gets another size, until it has
# no receive; then to a peer that is not connected; then fills a CQ. Prints statuses, errors
# and events.
RETRIES = """
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

context = Context(name="mlx5_0")
pd, cq = PD(context), CQ(context, 15)
region = MR(pd, 8192, e.IBV_ACCESS_LOCAL_WRITE)
region.write("".join(chr(65 + i) * 7 for i in range(30)), 210)
most = context.query_device().max_sge
srq = SRQ(pd, SrqInitAttr(SrqAttr(max_wr=4, max_sge=most)))

def connect(near, far):
    attributes = QPAttr(port_num=1)
    attributes.path_mtu, attributes.dest_qp_num = e.IBV_MTU_1024, far.qp_num
    attributes.min_rnr_timer, attributes.rnr_retry = 12, 3
    attributes.timeout, attributes.retry_cnt = 10, 1
    attributes.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
    route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
    attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
    near.to_rts(attributes)

def send(queue, count):
    segments = [SGE(region.buf + 7 * i, 5, region.lkey) for i in range(most)]
    queue.post_send(SendWR(num_sge=most, sg=segments, send_flags=e.IBV_SEND_SIGNALED))
    found = []
    while len(found) < count:
        found += cq.poll(4)[1]
    print(*((each.status, each.status and hex(each.vendor_err)) for each in found))

def event():
    found = context.get_async_event()
    print(found.event_type)
    found.ack()

a, b = (QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, srq=shared,
                          cap=QPCap(4, 4, most, 1))) for shared in (None, srq))
connect(a, b)
connect(b, a)
segments = [SGE(region.buf + 4096 + 20 * i, 3 + i, region.lkey) for i in range(most)]
for _ in range(2):
    srq.post_recv(RecvWR(num_sge=most, sg=segments))
srq.modify(SrqAttr(srq_limit=2), e.IBV_SRQ_LIMIT)
send(a, 2)
event()
cq.resize(63)
send(a, 2)
print(b"".join(region.read(3 + i, 4096 + 20 * i) for i in range(5)).decode())
send(a, 1)
b.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
event()
a, far = (QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(4, 4, most, 1)))
          for _ in range(2))
connect(a, far)
send(a, 1)
full = QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=CQ(context, 1), rcq=cq, cap=QPCap(4, 4, 1, 1)))
connect(full, full)
for _ in range(3):  # the CQ has places for two
    nothing = [SGE(region.buf, 0, region.lkey)]
    flags = e.IBV_SEND_SIGNALED
    wr = SendWR(num_sge=1, sg=nothing, opcode=e.IBV_WR_RDMA_WRITE, send_flags=flags)
    full.post_send(wr)
event()
event()
"""
RETRIED = """\
(0, 0) (0, 0)
15
(0, 0) (0, 0)
AAAAABBBBBCCCCCDDDDDEEEEE
(13, '0x87')
16
(12, '0x81')
0
1
"""

# Fills a receive queue; gives a region other rights and another domain while a connection uses it.
PYVERBS = """
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr, QPInitAttrEx
from pyverbs.srq import SRQ, SrqInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

context = Context(name="mlx5_0")
pd, cq = PD(context), CQ(context, 64)
LOCAL, REMOTE = e.IBV_ACCESS_LOCAL_WRITE, e.IBV_ACCESS_REMOTE_WRITE
attributes = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_recv_wr=3))
ends = [QP(pd, attributes) for _ in range(2)]
region = MR(pd, 4096, LOCAL | REMOTE)
rkey, segment = region.rkey, SGE(region.buf, 64, region.lkey)

def connect():
    for end in ends:
        end.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
    for near, far in (ends, ends[::-1]):
        attributes = QPAttr(port_num=1)
        attributes.path_mtu, attributes.dest_qp_num = e.IBV_MTU_1024, far.qp_num
        route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
        attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        attributes.qp_access_flags = LOCAL | REMOTE
        near.to_rts(attributes)

def statuses(count, opcode):
    wr = SendWR(num_sge=1, sg=[segment], opcode=opcode)
    if opcode == e.IBV_WR_RDMA_WRITE:
        wr.set_wr_rdma(rkey, region.buf)
    ends[0].post_send(wr)
    found = []
    while len(found) < count:
        found += cq.poll()[1]
    return [completion.status for completion in found]

def receive():
    ends[1].post_recv(RecvWR(num_sge=1, sg=[segment]))

connect()
print(statuses(1, e.IBV_WR_RDMA_WRITE))
region.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=LOCAL)
print(statuses(1, e.IBV_WR_RDMA_WRITE))
connect()
most = ends[1].query(e.IBV_QP_CAP)[0].cap.max_recv_wr
for _ in range(most):
    receive()
try:
    receive()
except PyverbsRDMAError as error:
    print(most, error.error_code)
region.rereg(e.IBV_REREG_MR_CHANGE_PD, pd=PD(context))
segment = SGE(region.buf, 64, MR(pd, 64, LOCAL).lkey)
SRQ(pd, SrqInitAttr())
flags = 2  # IBV_QP_CREATE_BLOCK_SELF_MCAST_LB
fields = {"scq": cq, "rcq": cq, "pd": pd, "create_flags": flags}
mask = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_CREATE_FLAGS
QP(context, QPInitAttrEx(qp_type=e.IBV_QPT_UD, comp_mask=mask, **fields))
source = MR(pd, 64, LOCAL)
segment = SGE(source.buf, 64, source.lkey)
print(statuses(5, e.IBV_WR_SEND))
"""
SEEN = """\
[0]
[10]
4 12
[11, 4, 5, 5, 5]
"""


# For programs with connections within one process.
CONNECTIONS = """
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

context = Context(name="mlx5_0")
pd, cq = PD(context), CQ(context, 15)
region = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)

def connected(timeout):
    a, b = (QP(pd, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(4, 4, 1, 1)))
            for _ in range(2))
    for near, far in ((a, b), (b, a)):
        attributes = QPAttr(port_num=1)
        attributes.path_mtu, attributes.dest_qp_num = e.IBV_MTU_1024, far.qp_num
        attributes.timeout, attributes.retry_cnt = timeout, 1
        attributes.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE
        route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
        attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        near.to_rts(attributes)
    return a, b

def post(queue):
    wr = SendWR(num_sge=1, sg=[SGE(region.buf, 8, region.lkey)], opcode=e.IBV_WR_RDMA_WRITE,
                send_flags=e.IBV_SEND_SIGNALED)
    wr.set_wr_rdma(region.rkey, region.buf + 8)
    queue.post_send(wr)

def end():
    while not (found := cq.poll()[1]):
        pass
    return found[0].status

def event():
    found = context.get_async_event()
    found.ack()
    return found.event_type, int(context.query_port(1).state)
"""

# The port goes down with the second write. Prints statuses, and events with the port's state.
FLAP = """
patient, hasty = connected(0), connected(8)
post(patient[0])
print(end())
post(patient[0])  # the port goes down
print(*event(), cq.poll()[0])
post(hasty[0])
print(end())
print(*event(), end())
post(patient[0])
print(end())
"""
FLAPPED = """\
0
10 1 0
12
9 4 0
0
"""

# The port goes down with the first write, and a rule delays the second one for longer.
DELAY = """
import time
first, second = connected(0), connected(0)
post(first[0])
begin = time.monotonic()
post(second[0])
print(context.query_port(1).state, end(), end(), time.monotonic() - begin >= 0.6)
"""

# Sends to two shared receive queues of XRC by turns, over one connection; then names a queue of
# another domain, one that is closed, and memory of the other queue's protection domain.
XRC = """
import os, tempfile
import pyverbs.enums as e
from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttrEx
from pyverbs.srq import SRQ, SrqInitAttrEx
from pyverbs.wr import RecvWR, SGE, SendWR
from pyverbs.xrcd import XRCD, XRCDInitAttr

context = Context(name="mlx5_0")
pd, other, cq = PD(context), PD(context), CQ(context, 64)
DOMAIN = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS
file = tempfile.TemporaryFile()

def domain(flags):
    return XRCD(context, XRCDInitAttr(DOMAIN, flags, file.fileno()))

def queue(pd, domain):
    attributes = SrqInitAttrEx(max_wr=100)
    attributes.srq_type, attributes.pd, attributes.xrcd = e.IBV_SRQT_XRC, pd, domain
    attributes.cq = CQ(context, 64)
    mask = e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD | e.IBV_SRQ_INIT_ATTR_CQ
    attributes.comp_mask = mask | e.IBV_SRQ_INIT_ATTR_XRCD
    return SRQ(context, attributes), attributes.cq, MR(pd, 4096, 15)

def connect():
    for near, far in ((sender, receiver), (receiver, sender)):
        attributes = QPAttr(port_num=1)
        attributes.path_mtu, attributes.dest_qp_num = e.IBV_MTU_1024, far.qp_num
        attributes.qp_access_flags = 15
        route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
        attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        near.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        near.to_rts(attributes)

def end(cq):
    while not (found := cq.poll()[1]):
        pass
    return found[0].status, found[0].byte_len

def post(number, opcode=e.IBV_WR_SEND, to=None):
    segment = SGE(source.buf, 8, source.lkey)
    wr = SendWR(num_sge=1, sg=[segment], opcode=opcode, send_flags=e.IBV_SEND_SIGNALED)
    wr.set_qp_type_xrc(number)
    if to:
        wr.set_wr_rdma(to.rkey, to.buf)
    sender.post_send(wr)
    return end(cq)[0]

try:
    domain(0)
except PyverbsRDMAError as error:
    print(error.error_code)
xrcd, same = domain(os.O_CREAT), domain(0)
try:
    domain(os.O_CREAT | os.O_EXCL)
except PyverbsRDMAError as error:
    print(error.error_code)
queues = queue(pd, xrcd), queue(other, same)
strange = XRCD(context, XRCDInitAttr(DOMAIN, os.O_CREAT, -1))
stranger = queue(pd, strange)
attributes = QPInitAttrEx(qp_type=e.IBV_QPT_XRC_SEND, pd=pd, scq=cq, cap=QPCap(8, 0, 1, 0),
                          comp_mask=e.IBV_QP_INIT_ATTR_PD)
sender = QP(context, attributes)
receiver = QP(context, QPInitAttrEx(qp_type=e.IBV_QPT_XRC_RECV, xrcd=xrcd,
                                    comp_mask=e.IBV_QP_INIT_ATTR_XRCD))
source = MR(pd, 64, e.IBV_ACCESS_LOCAL_WRITE)
connect()
for srq, _, region in queues:
    for i in range(70):
        srq.post_recv(RecvWR(wr_id=i, num_sge=1, sg=[SGE(region.buf + 8 * i, 8, region.lkey)]))
wrong = 0
for i in range(70):
    for number, (srq, receives, region) in enumerate(queues):
        source.write(f"{number} {i:06}", 8)
        wrong += post(srq.get_srq_num()) != 0
        wrong += end(receives) != (0, 8)
        wrong += region.read(8, 8 * i).decode() != f"{number} {i:06}"
print(wrong, "wrong")
for srq, _, region in queues:
    print(post(srq.get_srq_num(), e.IBV_WR_RDMA_WRITE, region), region.read(8, 0).decode())
print(post(queues[0][0].get_srq_num(), e.IBV_WR_RDMA_WRITE, queues[1][2]))
connect()
print(post(stranger[0].get_srq_num()))
connect()
closed = queues[1][0].get_srq_num()
print(post(closed, e.IBV_WR_RDMA_WRITE, queues[1][2]))
queues[1][0].close()
print(post(closed, e.IBV_WR_RDMA_WRITE, queues[1][2]))
receiver.close()
for srq in queues[0][0], stranger[0]:
    srq.close()
for opened in xrcd, same, strange:
    opened.close()
"""
NAMED = """\
11
22
0 wrong
0 1 000069
0 1 000069
10
9
0
9
"""


@pytest.mark.parametrize(
    ("transport", "test"),
    [("rc_x", "ucp_put_bw"), ("rc_v", "ucp_put_bw"), ("ud_x", "tag_bw"), ("ud_v", "tag_bw")],
)
def test_ucx_runs(transport, test, home, monkeypatch):
    monkeypatch.setenv("UCX_TLS", transport)
    monkeypatch.setenv("UCX_NET_DEVICES", "mlx5_0:1")
    program = ["ucx_perftest", "-t", test, "-n", "50", "-s", "65536"]
    with pair(home, *program) as both:
        outputs = [each.communicate(timeout=60)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], outputs
    assert "Final:                    50" in outputs[1], outputs
    assert "ERROR" not in "".join(outputs)


@pytest.mark.parametrize("transport", ["rc_x", "ud_v"])
def test_open_mpi_finds_the_words_that_were_sent(transport, home, tmp_path, monkeypatch):
    monkeypatch.setenv("UCX_TLS", f"{transport},self")
    monkeypatch.setenv("UCX_NET_DEVICES", "mlx5_0:1")
    program = tmp_path / "program"
    subprocess.run(["mpicc", "-x", "c", "-", "-o", program], input=MPI, text=True, check=True)
    options = ["--allow-run-as-root", "--oversubscribe", "-n", "2"]
    for layer in "pml", "osc":
        options += ["--mca", layer, "ucx"]
    done = cli.run(home, "mlx5", "run", "--", "mpirun", *options, program)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "rank 0: 0 wrong, sum 2",
        "rank 1: 0 wrong, sum 0",
    ]


@pytest.mark.parametrize(("provider", "endpoint"), [("verbs;ofi_rxd", "rdm"), ("verbs", "msg")])
def test_libfabric_finds_the_bytes_that_were_sent(provider, endpoint, home):
    command = ["fi_pingpong", "-p", provider, "-e", endpoint, "-c", "-I", "20", "-S", "4096"]
    with pair(home, *command, ports=("-B", "-P")) as both:
        outputs = [each.communicate(timeout=60)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], outputs
    assert "4k      20      =20" in outputs[1], outputs


def test_pyverbs_sees_retries_lists_and_events(home):
    done = cli.run(home, "mlx5", "run", "--", "/usr/bin/python3", "-c", RETRIES)
    assert done.stdout == RETRIED, done.stderr


def test_pyverbs_sees_keys_change(home):
    done = cli.run(home, "mlx5", "run", "--", "/usr/bin/python3", "-c", PYVERBS)
    assert done.stdout == SEEN, done.stderr


def test_pyverbs_names_a_queue_in_each_entry_of_xrc(home):
    done = cli.run(home, "mlx5", "run", "--", "/usr/bin/python3", "-c", XRC)
    assert done.stdout == NAMED, done.stderr
    assert not done.stderr


def test_pyverbs_sees_a_port_go_down_and_up(home):
    rule = "flap,skip=1,count=1,delay_us=4e6"
    done = cli.run(
        home, "mlx5", "run", "--fault", rule, "--", "/usr/bin/python3", "-c", CONNECTIONS + FLAP
    )
    assert done.stdout == FLAPPED, done.stderr


def test_a_port_that_is_down_does_not_shorten_a_delay(home):
    rules = "flap,count=1,delay_us=3e5", "delay,count=1,delay_us=6e5"
    options = [word for rule in rules for word in ("--fault", rule)]
    program = ["/usr/bin/python3", "-c", CONNECTIONS + DELAY]
    done = cli.run(home, "mlx5", "run", *options, "--", *program)
    assert done.stdout == "1 0 0 True\n", done.stderr
