# SPDX-License-Identifier: Apache-2.0
"""Programs of the distribution's rdma-core, unmodified, with the adapter in software."""

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processes import cli
from support.processes.rdma_pair import pair

from dgkit import software_adapter
from dgkit.cli import main
from dgkit.errors import NativeError

# Sends the kernel's commands by write(2), and prints what each of them returns.
COMMANDS = """
import ctypes, errno, os, struct, sys

fd = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
room = ctypes.create_string_buffer(512)
at = ctypes.addressof(room)
GET_CONTEXT, ALLOC_PD, DEALLOC_PD, REG_MR, CREATE_CQ, CREATE_QP = 0, 3, 4, 9, 18, 24

def send(command, body=b"", in_words=None, out_words=64):
    words = (8 + len(body)) // 4 if in_words is None else in_words
    try:
        os.write(fd, struct.pack("<IHH", command, words, out_words) + body)
    except OSError as error:
        return errno.errorcode[error.errno]
    return 0

def reg_mr(start, length, pd, access):
    return send(REG_MR, struct.pack("<QQQQII", at, start, length, start, pd, access))

context = struct.pack("<QIIIIBBHIQ", at, 16, 4, 0, 0, 1, 0, 0, 0, 3)
print("no context", send(ALLOC_PD, struct.pack("<Q", at)))
print("context", send(GET_CONTEXT, context))
print("second context", send(GET_CONTEXT, context))
print("unknown", send(49), send(200), send(1 << 30))
print("length", send(ALLOC_PD, struct.pack("<Q", at), in_words=3))
print("too short", send(ALLOC_PD), send(ALLOC_PD, struct.pack("<Q", at), out_words=0))
print("response", send(ALLOC_PD, struct.pack("<Q", 8)))
print("pd", send(ALLOC_PD, struct.pack("<Q", at)))
pd = struct.unpack_from("<I", room)[0]
print("unused handle", send(DEALLOC_PD, struct.pack("<I", pd + 1)))
print("mr", reg_mr(at, 512, pd, 7), reg_mr(at, 512, pd + 1, 7), reg_mr(at, 512, pd, 2))
print("address", reg_mr(4096, 4096, pd, 1), reg_mr(2**64 - 4096, 8192, pd, 1))
print("pd in use", send(DEALLOC_PD, struct.pack("<I", pd)))
cq = struct.pack("<QQIIiIQQIBBHHHI", at, 0, 7, 0, -1, 0, at, at, 32, *[0] * 6)
print("cq size", send(CREATE_CQ, cq))
cq = struct.pack("<QQIIiIQQIBBHHHI", at, 0, 7, 0, -1, 0, 4096, at, 64, *[0] * 6)
print("cq address", send(CREATE_CQ, cq))
qp = struct.pack("<QQIIII5I4B", at, 0, pd, 99, 99, 0, 1, 1, 1, 1, 0, 0, 2, 0, 0)
print("qp handles", send(CREATE_QP, qp + bytes(72)))
sys.stdout.flush()
pid = os.fork()
if not pid:
    print("child", send(ALLOC_PD, struct.pack("<Q", at)))
    fd = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
    print("its own", send(GET_CONTEXT, context), send(ALLOC_PD, struct.pack("<Q", at)))
    pd = struct.unpack_from("<I", room)[0]
    print("its mr", reg_mr(at, 512, pd, 7), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""
ANSWERS = """\
no context EINVAL
context 0
second context EINVAL
unknown ENOTSUP ENOTSUP EINVAL
length EINVAL
too short ENOSPC ENOSPC
response EFAULT
pd 0
unused handle ENOENT
mr 0 EINVAL EINVAL
address EFAULT EFAULT
pd in use EBUSY
cq size EINVAL
cq address EFAULT
qp handles EINVAL
child EIO
its own 0 0
its mr 0
"""

# Makes objects of each kind, while those of the others are there, until 64 are refused; destroys
# all, and makes one of each.
LIMITS = """
import ctypes, errno, os, struct

fd = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
room = ctypes.create_string_buffer(512)
at = ctypes.addressof(room)
memory = ctypes.create_string_buffer(3 << 12)
ring = ctypes.addressof(memory) + 4095 & ~4095

def send(command, body):
    os.write(fd, struct.pack("<IHH", command, (8 + len(body)) // 4, 128) + body)
    return struct.unpack_from("<I", room)[0]

def fill(name, command, body):
    made, errors = [], []
    while len(errors) < 64:
        try:
            made.append(send(command, body))
        except OSError as error:
            errors.append(error.errno)
    print(name, len(made), *{errno.errorcode[each] for each in errors}, flush=True)
    return made

send(0, struct.pack("<QIIIIBBHIQ", at, 16, 4, 0, 0, 1, 0, 0, 0, 3))
pd = send(3, struct.pack("<Q", at))
cq = struct.pack("<QQIIiIQQII16x", at, 0, 15, 0, -1, 0, ring, ring + 4096, 64, 0)
number = send(18, cq)
qp = struct.pack("<QQ9I4B", at, 0, pd, number, number, 0, 4, 0, 1, 1, 0, 0, 4, 0, 0)
qp += struct.pack("<QQ6IQIIQ", ring + 2048, ring + 4104, 4, *[0] * 9)
srq = struct.pack("<QQ4IQQ4I", at, 0, pd, 3, 1, 0, ring, ring + 4112, 0, 0, 0, 0)
mr = struct.pack("<QQQQII", at, ring, 64, ring, pd, 7)
kinds = [
    ("qp", 24, qp, 27), ("srq", 32, srq, 35), ("cq", 18, cq, 20),
    ("mw", 14, struct.pack("<QIB3x", at, pd, 1), 16), ("mr", 9, mr, 13),
    ("ah", 5, struct.pack("<QQII20xB3x4xBBBx", at, 0, pd, 0, 0, 0, 1, 1), 8),
    ("xrcd", 37, struct.pack("<QiI", at, -1, 0o100), 38), ("pd", 3, struct.pack("<Q", at), 4),
]
made = [fill(*kind[:3]) for kind in kinds]
for (*_, command), handles in zip(kinds, made):
    for handle in handles:
        answered = command in (20, 27, 35)
        send(command, struct.pack("<QII", at, handle, 0) if answered else struct.pack("<I", handle))
print(*[send(command, body) > 0 for _, command, body, _ in kinds])
"""
LIMITED = """\
qp 1024 ENOMEM
srq 1024 ENOMEM
cq 8191 ENOMEM
mw 8176 ENOMEM
mr 0 ENOMEM
ah 8192 ENOMEM
xrcd 1024 ENOMEM
pd 8191 ENOMEM
True True True True True True True True
"""

# Two queue pairs fail by a doorbell that jumps; one of them is destroyed, and its CQ, before the
# program has read their events.
EVENTS = """
import ctypes, os, select, struct

fd = os.open("/dev/infiniband/uverbs0", os.O_RDWR)
room = ctypes.create_string_buffer(512)
at = ctypes.addressof(room)
memory = ctypes.create_string_buffer(5 << 13)
rings = ctypes.addressof(memory) + 4095 & ~4095
GET_CONTEXT, ALLOC_PD, CREATE_CHANNEL, CREATE_CQ, DESTROY_CQ = 0, 3, 17, 18, 20
CREATE_QP, MODIFY_QP, DESTROY_QP, INIT, RTR, RTS = 24, 26, 27, 1, 2, 3

def send(command, body):
    os.write(fd, struct.pack("<IHH", command, (8 + len(body)) // 4, 128) + body)
    return struct.unpack_from("<I", room)[0]

def modify(qp, state, mask):
    numbers = qp, mask, *[0] * 7, state, *[0] * 7, 1, *[0] * 7
    send(MODIFY_QP, bytes(64) + struct.pack("<7I2H16B", *numbers))

def failed(number):
    buffer = rings + (number << 13)
    cq_record, qp_record = buffer + 4096, buffer + 4104
    body = struct.pack("<QQIIiIQQII16x", at, number, 15, 0, channel, 0, buffer, cq_record, 64, 0)
    cq = send(CREATE_CQ, body)
    body = struct.pack("<QQ9I4B", at, number, pd, cq, cq, 0, 4, 0, 1, 1, 0, 0, 4, 0, 0)
    body += struct.pack("<QQ6IQIIQ", buffer + 2048, qp_record, 4, *[0] * 9)
    qp = send(CREATE_QP, body)
    for state, mask in (INIT, 0x71), (RTR, 1), (RTS, 0x10001):
        modify(qp, state, mask)
    ctypes.c_uint32.from_address(cq_record + 4).value = 0  # armed
    ctypes.c_uint16.from_address(qp_record + 6).value = 100 << 8
    for readable in events, channel:
        while not select.select([readable], [], [], 60)[0]:
            raise TimeoutError(readable)
    return cq, qp

events = send(GET_CONTEXT, struct.pack("<QIIIIBBHIQ", at, 16, 4, 0, 0, 1, 0, 0, 0, 3))
pd = send(ALLOC_PD, struct.pack("<Q", at))
channel = send(CREATE_CHANNEL, struct.pack("<Q", at))
first = failed(1)
print(*[len(select.select([each], [], [], 0)[0]) for each in (events, channel)])
send(DESTROY_QP, struct.pack("<QII", at, first[1], 0))
send(DESTROY_CQ, struct.pack("<QII", at, first[0], 0))
print(*[len(select.select([each], [], [], 0)[0]) for each in (events, channel)])
second, third = failed(2), failed(3)
send(DESTROY_QP, struct.pack("<QII", at, second[1], 0))
send(DESTROY_CQ, struct.pack("<QII", at, second[0], 0))
print(*[struct.unpack_from("<Q", os.read(each, 16))[0] for each in (events, channel)])
"""

# Registers whole pages, which become shared with the adapter's other processes, and lets a child
# use them while they are registered, and after that while another thread runs.
CHILDREN = """
import ctypes, mmap, os, threading

verbs = ctypes.CDLL("libibverbs.so.1")
for name in ("get_device_list", "open_device", "alloc_pd", "reg_mr"):
    getattr(verbs, f"ibv_{name}").restype = ctypes.c_void_p
devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
pd = ctypes.c_void_p(verbs.ibv_alloc_pd(context))
SIZE = 1 << 22
pages = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages)))

def register():
    return ctypes.c_void_p(verbs.ibv_reg_mr(pd, address, ctypes.c_size_t(SIZE), 7))

def shared():
    with open("/proc/self/maps") as file:
        return "memfd:dgkit-mlx5" in file.read()

def child():
    # Returns what the child sees of the parent's last write, and the parent of the child's.
    pages[0] = pages[-1] = 1
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.read(reader, 1)
        seen = max(pages[0], pages[-1])
        pages[0] = 3
        os._exit(seen)
    pages[0] = pages[-1] = 2
    os.write(writer, b"x")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), pages[0]

region = register()
print("registered", shared(), child())
end = threading.Event()
thread = threading.Thread(target=end.wait)
thread.start()
verbs.ibv_dereg_mr(region)
print("with a thread", child())
end.set()
thread.join()
while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # join() returns before its end
    os.sched_yield()
region = register()
verbs.ibv_dereg_mr(region)
print("without", shared(), child())
"""
# Opens the adapter as a plugin's code does, which sees a libibverbs that the program does not.
PLUGIN = """
import ctypes, os

verbs = ctypes.CDLL("libibverbs.so.1", os.RTLD_LOCAL | os.RTLD_NOW)
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
open_device = ctypes.CDLL(None).ibv_open_device  # the library that is preloaded has it
open_device.restype = ctypes.c_void_p
print(bool(open_device(ctypes.c_void_p(verbs.ibv_get_device_list(None)[0]))))
"""

# Takes a queue pair of each kind of connection to INIT, with an attribute that only a reliable one
# has, and without.
CONNECTIONS = """
import ctypes, errno, struct

verbs = ctypes.CDLL("libibverbs.so.1")
for name in ("get_device_list", "open_device", "alloc_pd", "create_cq", "create_qp"):
    getattr(verbs, f"ibv_{name}").restype = ctypes.c_void_p
devices = ctypes.cast(verbs.ibv_get_device_list(None), ctypes.POINTER(ctypes.c_void_p))
context = ctypes.c_void_p(verbs.ibv_open_device(ctypes.c_void_p(devices[0])))
pd = ctypes.c_void_p(verbs.ibv_alloc_pd(context))
cq = verbs.ibv_create_cq(context, 16, None, None, 0)
INIT, PKEY_INDEX_PORT_ACCESS, RNR_TIMER = 1, 1 << 4 | 1 << 5 | 1 << 3, 1 << 15
for name, kind in ("RC", 2), ("UC", 3):
    settings = struct.pack("<4Q5IiI4x", 0, cq, cq, 0, 1, 1, 1, 1, 0, kind, 0)
    qp = ctypes.c_void_p(verbs.ibv_create_qp(pd, settings))
    attributes = struct.pack("<I124x2B14x", INIT, 12, 1)  # min_rnr_timer, port_num
    for mask in 1 | PKEY_INDEX_PORT_ACCESS | RNR_TIMER, 1 | PKEY_INDEX_PORT_ACCESS:
        print(name, errno.errorcode.get(verbs.ibv_modify_qp(qp, attributes, mask), 0))
"""
STATES = """\
RC 0
RC 0
UC EINVAL
UC 0
"""
SEEN = """\
registered True (1, 2)
with a thread (1, 2)
without False (1, 2)
"""

# Finds the adapter by the functions of the C library that take a path, also by those of programs
# that were built with a release before 2.33, or fortified.
PATHS = """
import ctypes, os

libc = ctypes.CDLL(None)
for name in ("fopen", "realpath", "__realpath_chk", "canonicalize_file_name", "opendir"):
    getattr(libc, name).restype = ctypes.c_char_p
room = ctypes.create_string_buffer(4096)
adapter, pci = b"/sys/class/infiniband/mlx5_0", b"/sys/devices/pci00ff:00/00ff:03:00.0"
node, file = b"/dev/infiniband/uverbs0", adapter + b"/node_type"
for suffix in "", "64":
    calls = {
        f"stat{suffix}": (node, room), f"__xstat{suffix}": (1, node, room),
        f"fstatat{suffix}": (-100, node, room, 0), f"__fxstatat{suffix}": (1, -100, node, room, 0),
        f"lstat{suffix}": (adapter, room), f"__lxstat{suffix}": (1, adapter, room),
    }
    for name, arguments in calls.items():
        assert getattr(libc, name)(*arguments) == 0, name
        with_link = "lx" in name or "lst" in name
        expected = os.lstat(adapter) if with_link else os.stat(node)
        inode = int.from_bytes(room[8:16], "little")
        assert inode == expected.st_ino, name
    assert getattr(libc, f"fopen{suffix}")(file, b"r"), suffix
    for name, arguments in {"open": (file, 0), "__open": (file, 0)}.items():
        call = f"{name}{suffix}" + ("_2" if name == "__open" else "")
        fd = getattr(libc, call)(*arguments)
        assert os.read(fd, 99) == b"1: CA\\n", call
    fd = getattr(libc, f"__openat{suffix}_2")(-100, file, 0)
    assert os.read(fd, 99) == b"1: CA\\n"
assert os.stat(node).st_rdev == os.makedev(1, 5)
assert libc.access(file, os.R_OK) == libc.eaccess(file, os.R_OK) == 0
assert libc.faccessat(-100, file, os.R_OK, 0) == 0
assert libc.statx(-100, file, 0, 0xFFF, room) == 0
assert libc.realpath(adapter + b"/device", None) == pci
assert libc.__realpath_chk(adapter + b"/device", room, 4096) == pci
assert libc.canonicalize_file_name(b"/sys/bus/pci/devices/00ff:03:00.0") == pci
assert libc.canonicalize_file_name(b"/sys/class/pci_bus/00ff:03/../../00ff:03:00.0") == pci
size = libc.readlink(adapter, room, 4096)
assert room[:size] == b"../.." + pci[4:] + b"/infiniband/mlx5_0"
assert libc.__readlink_chk(adapter, room, 4096, 4096) == size
assert sorted(os.listdir("/dev/infiniband")) == ["rdma_cm", "uverbs0"]
assert libc.scandir(adapter, ctypes.byref(ctypes.c_void_p()), None, None) > 5
os.chdir(adapter)
assert os.getcwd() == "/sys" + pci[4:].decode() + "/infiniband/mlx5_0"
assert open("ports/1/gids/0").read() == open(adapter + b"/ports/1/gids/0").read()
assert os.path.exists("/sys/class/net/lo") and not os.path.exists(adapter + b"x")
print("seen")
"""

# Exits with 7, without a C library.
STATIC = """
void _start(void)
{
#ifdef __x86_64__
	__asm__("mov $60, %eax; mov $7, %edi; syscall");
#else
	__asm__("mov x8, #93; mov x0, #7; svc #0");
#endif
}
"""


@pytest.mark.parametrize("program", [
    "ib_write_lat -x 0", "ib_read_lat -x 0", "ib_send_lat -x 0", "ib_send_lat -x 0 -e",
    "ib_write_bw -x 0", "ib_write_bw -x 0 -s 1048576", "ib_send_bw -x 0", "ib_atomic_bw -x 0",
    "ib_write_lat -x 0 -c UC", "ib_send_bw -x 0 -c UC", "ib_send_bw -x 0 --use-srq",
    "ib_send_lat -x 0 -c UD", "ib_send_bw -x 0 -c UD -s 1024", "ib_send_lat -x 0 -c XRC",
    "ib_write_bw -x 0 -c XRC",
])  # fmt: skip
def test_perftest_runs(program, home):
    with pair(home, *program.split(), "-n", "50") as both:
        outputs = [each.communicate(timeout=60)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], outputs
    assert re.search(r"^ \d+ +50 +\d", outputs[1], re.MULTILINE), outputs[1]


@pytest.mark.parametrize("program", [
    "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong", "ibv_ud_pingpong",
])  # fmt: skip
@pytest.mark.parametrize(
    ("options", "cqe_size"),
    [([], "64"), (["-e"], "128"), (["-s", "3000"], "64"), (["-s", "203"], "64")],
    ids=["polls", "sleeps", "memory_that_only_its_process_writes", "message_that_has_its_bytes"],
)
def test_pingpong_finds_the_bytes_that_were_sent(program, options, cqe_size, home, monkeypatch):
    monkeypatch.setenv("MLX5_CQE_SIZE", cqe_size)
    with pair(home, program, "-g", "0", "-c", "-n", "50", *options) as both:
        outputs = [each.communicate(timeout=60)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], outputs
    for text in outputs:
        assert "50 iters in" in text
        assert "invalid data" not in text


def test_xsrq_pingpong_ends_with_success(home):
    with pair(home, "ibv_xsrq_pingpong", "-g", "0", "-n", "50") as both:
        outputs = [each.communicate(timeout=60)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], outputs
    assert all(output.endswith("success\n") for output in outputs), outputs


def test_a_killed_server_ends_the_client_with_an_error(home):
    with pair(home, "ib_read_lat", "-x", "0", "-n", "50000000") as (server, client):
        cli.until(lambda: "libdgkit-mlx5" in Path(f"/proc/{client.pid}/maps").read_text())
        before = cli.cpu_seconds(client.pid)
        cli.until(lambda: cli.cpu_seconds(client.pid) > before + 0.5)  # it polls
        os.kill(server.pid, signal.SIGKILL)
        output = client.communicate(timeout=20)[0]
    assert client.returncode
    # IBV_WC_RETRY_EXC_ERR, or IBV_WC_WR_FLUSH_ERR if there was no request when the server ended
    assert re.search(r"Failed status (12|5):", output), output


def test_info_shows_who_is_on_the_network(home):
    def info():
        return json.loads(cli.run(home, "mlx5", "info", "--json").stdout)

    before = info()
    assert before["usable"]
    assert before["processes"] == []
    assert [each["gid"] for each in before["adapters"]] == [software_adapter.GID]
    assert Path(before["rdma_core"]["libraries"]["libibverbs.so.1"]).exists()
    assert "no program has the adapter open" in cli.run(home, "mlx5", "info").stdout
    program = "ib_write_bw", "-x", "0", "-D", "60", "-q", "3"
    with pair(home, *program, server_options=["--adapters", "2"]) as both:
        cli.until(lambda: [p["queue_pairs"] for p in info()["processes"]] == [3, 3])
        found = info()["processes"]
        assert [each["device"] for each in info()["adapters"]] == ["mlx5_0", "mlx5_1"]
        text = cli.run(home, "mlx5", "info").stdout
        os.kill(both[0].pid, signal.SIGKILL)
        both[0].wait()
        after = info()["processes"]
    assert {process["pid"] for process in found} == {each.pid for each in both}
    for process in found:
        assert process["regions"] == 1
        assert process["program"].startswith("ib_write_bw -x 0")
        assert f"pid {process['pid']}: 3 queue pairs, 1 region: ib_write_bw -x 0" in text
    assert [process["pid"] for process in after] in ([], [both[1].pid])


def counters(home):
    """Return what a program reads in /sys, of mlx5_0 and mlx5_1."""
    read = "cd /sys/class/infiniband; grep . $PWD/*/ports/1/*counters/*"
    done = cli.run(home, "mlx5", "run", "--adapters", "2", "--", "sh", "-c", read)
    found = re.findall(r"(mlx5_\d)/ports/1/\w+/(\w+):(\d+)$", done.stdout, re.MULTILINE)
    assert len(found) == 2 * 20, done.stderr
    each = {name: {} for name, _, _ in found}
    for name, counter, value in found:
        each[name][counter] = int(value)
    return each["mlx5_0"], each["mlx5_1"]


@pytest.mark.parametrize(
    ("program", "size", "packets"),
    [("ib_write_bw -x 0 -s 9000", 50 * 9000, 3), ("ibv_ud_pingpong -g 0 -c", 50 * 1024, 1)],
)
def test_two_adapters_reach_each_other(program, size, packets, home):
    two = "--adapters", "2"
    program = [*program.split(), "-n", "50", "-d", "mlx5_0"]
    with pair(home, *program, arguments=["-d", "mlx5_1"], options=two, server_options=two) as both:
        server, client = (each.communicate(timeout=60)[0] for each in both)
    assert [each.returncode for each in both] == [0, 0], server + client
    assert re.search("local.*(127:00:00:|::ffff:127.0.0.)0?1", server, re.DOTALL), server
    assert re.search("local.*(127:00:00:|::ffff:127.0.0.)0?2", client, re.DOTALL), client
    assert "invalid data" not in server + client
    near, far = counters(home)
    acknowledged = 50 * (packets == 3)
    assert far["port_xmit_data"] == near["port_rcv_data"] == size // 4
    assert far["port_xmit_packets"] == near["port_rcv_packets"] == 50 * packets
    answers = acknowledged or 50  # of the pingpong
    assert near["port_xmit_packets"] == far["port_rcv_packets"] == answers
    assert near["rx_write_requests"] == acknowledged


def test_the_first_adapter_counts_for_all_other_addresses_of_the_machine(home):
    program = "ib_write_bw", "-R", "-n", "50", "-s", "4096"
    with pair(home, *program, address="127.1.0.2") as both:
        output = both[1].communicate(timeout=60)[0]
    assert both[1].returncode == 0, output
    near, far = counters(home)
    assert near["port_rcv_data"] == near["port_xmit_data"] >= 50 * 4096 // 4
    assert not any(far.values())


def test_info_says_what_to_install(monkeypatch, capsys):
    def load(name, *_):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert main(["mlx5", "info"]) == 3
    assert "apt install ibverbs-providers" in capsys.readouterr().out


def test_wrong_commands_get_the_errors_of_the_kernel(home):
    done = cli.run(home, "mlx5", "run", "--", sys.executable, "-c", COMMANDS)
    assert done.stdout == ANSWERS, done.stderr


def test_the_provider_verbs_moves_bytes(home):
    program = (
        "import dgkit\n"
        "with dgkit.connect(provider='verbs') as session:\n"
        "    region = session.empty('1M')\n"
        "    session.write(region, b'by libibverbs', offset=5000)\n"
        "    print(bytes(session.read(region, 13, offset=5000)))\n"
    )
    trace = Path(home, "trace")
    command = "mlx5", "run", "--trace", trace, "--", sys.executable, "-c", program
    done = cli.run(home, *command)
    assert done.stdout == "b'by libibverbs'\n", done.stderr
    assert "op=UMR completion=ok" in trace.read_text()  # a memory window was bound


def test_objects_beyond_the_limits_are_refused(home):
    done = cli.run(home, "mlx5", "run", "--", sys.executable, "-c", LIMITS)
    assert done.stdout == LIMITED, done.stderr


def test_a_destroyed_object_takes_its_unread_events_with_it(home):
    done = cli.run(home, "mlx5", "run", "--", sys.executable, "-c", EVENTS)
    assert done.stdout == "1 1\n0 0\n3 3\n", done.stderr


def test_programs_find_the_adapter_in_sys(home):
    done = cli.run(home, "mlx5", "run", "--", sys.executable, "-c", PATHS)
    assert done.stdout == "seen\n", done.stderr
    for command in ["ls", "-lL", "/sys/class/infiniband"], ["ls", "-l", "/sys/class/infiniband/"]:
        done = cli.run(home, "mlx5", "run", "--", *command)
        assert "mlx5_0" in done.stdout
        assert done.stderr == ""
    done = cli.run(home, "mlx5", "run", "--", "cat", "/sys/class/infiniband/mlx5_0/device/vendor")
    assert done.stdout == "0x15b3\n"


def test_a_plugin_may_have_loaded_libibverbs_for_itself_alone(home):
    done = cli.run(home, "mlx5", "run", "--", sys.executable, "-c", PLUGIN)
    assert done.stdout == "True\n", done.stderr


def test_an_unreliable_connection_has_no_attributes_of_a_reliable_one(home):
    done = cli.run(home, "mlx5", "run", "--", sys.executable, "-c", CONNECTIONS)
    assert done.stdout == STATES, done.stderr


def test_a_child_has_memory_of_its_own(home):
    done = cli.run(home, "mlx5", "run", "--", sys.executable, "-c", CHILDREN)
    assert done.stdout == SEEN, done.stderr


def polls(process):
    """Return whether a process uses its CPU for half a second more: it waits for a completion."""
    cli.until(lambda: "libdgkit-mlx5" in Path(f"/proc/{process.pid}/maps").read_text())
    before = cli.cpu_seconds(process.pid)
    cli.until(lambda: process.poll() is not None or cli.cpu_seconds(process.pid) > before + 0.5)
    return process.poll() is None


@pytest.mark.parametrize(
    ("program", "syndrome", "status", "count"),
    [("ib_write_bw", 0x15, 12, 9), ("ib_write_bw", 0x04, 4, 9), ("ib_read_lat", 0x14, 11, 10)],
)
def test_an_entry_ends_with_the_syndrome_of_a_rule(program, syndrome, status, count, home):
    rule = f"error,skip=9,count=1,syndrome={syndrome:#x},vendor=0x83"
    with pair(home, program, "-x", "0", "-n", "50", options=["--fault", rule]) as (_, client):
        output = client.communicate(timeout=60)[0]
    assert client.returncode != 0
    assert re.search(rf"Failed status {status}: wr_id 0 syndrom 0x83\b", output), output
    assert re.search(rf"ccnt={count}\b", output), output  # a latency test counts the error, too
    found, _ = counters(home)
    assert found["req_cqe_error"] - found["req_cqe_flush_error"] == 1
    assert found["local_ack_timeout_err"] == (syndrome == 0x15)
    info = json.loads(cli.run(home, "mlx5", "info", "--json").stdout)
    assert info["adapters"][0]["counters"] == found


@pytest.mark.parametrize(
    ("program", "rule"),
    [
        ("ib_read_lat", "lose,skip=9,count=1"),
        ("ib_write_lat", "drop,ops=write,skip=9,count=1"),
        ("ib_send_lat", "lose,ops=receive,skip=9,count=1"),
    ],
)
def test_a_lost_completion_or_write_lets_a_program_wait_for_ever(program, rule, home):
    with pair(home, program, "-x", "0", "-n", "50", options=["--fault", rule]) as (_, client):
        assert polls(client), client.communicate()[0]


def test_a_corrupted_message_has_a_wrong_byte(home):
    rule = "corrupt,ops=send,skip=9,count=1"
    program = ["ibv_rc_pingpong", "-g", "0", "-c", "-n", "50"]
    with pair(home, *program, options=["--fault", rule]) as both:
        server, client = (each.communicate(timeout=60)[0] for each in both)
    assert "invalid data in page 0" in server
    assert "invalid data" not in client


def test_a_delayed_entry_is_late(home):
    rule = "delay,ops=read,count=20,delay_us=100000"
    start = time.monotonic()
    with pair(home, "ib_read_lat", "-x", "0", "-n", "50", options=["--fault", rule]) as (_, client):
        output = client.communicate(timeout=60)[0]
    assert client.returncode == 0, output
    assert time.monotonic() - start > 2


def test_a_peer_that_dies_ends_the_other_side(home):
    rule = "die,ops=receive,skip=9"
    program = ["ib_send_lat", "-x", "0", "-n", "5000"]
    with pair(home, *program, options=["--fault", rule]) as (server, client):
        assert client.wait(60) == -signal.SIGKILL
        output = server.communicate(timeout=60)[0]
    assert server.returncode != 0, output


@pytest.mark.parametrize(("rule", "why"), [
    ("boom", "the action is 'boom'; it must be one of error, delay"),
    ("error,syndrom=3", "error has no field 'syndrom'; it must be one of ops, count"),
    ("error,syndrome=256", "syndrome is '256'; it must be from 1 to 255"),
    ("lose,syndrome=1", "lose has no field 'syndrome'"),
    ("drop,ops=receive", "ops has 'receive'; for drop it must be one of atomic, read, send, write"),
    ("delay,delay_us=nan", "delay_us is 'nan'; it must be from 0"),
    ("lose,probability=2", "probability is '2'; it must be from 0 to 1"),
    ("lose,every=0", "every is '0'; it must be from 1"),
    ("lose,min_size=2,max_size=1", "min_size is more than max_size"),
])  # fmt: skip
def test_a_wrong_rule_is_refused_before_the_program_starts(rule, why, tmp_path, capsys):
    started = tmp_path / "started"
    assert main(["mlx5", "run", "--fault", rule, "--", "touch", str(started)]) == 2
    assert f"rule {rule!r}: {why}" in capsys.readouterr().err
    assert not started.exists()


def test_without_rdma_core_it_says_what_to_install(monkeypatch, capsys):
    def load(name, *_):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert main(["mlx5", "run", "--", "true"]) == 3
    assert "apt install ibverbs-providers" in capsys.readouterr().err


def test_env_prints_what_run_sets(capsys):
    assert main(["mlx5", "env"]) == 0
    exports = dict(re.findall(r"export (\w+)=(.*)", capsys.readouterr().out))
    assert exports == software_adapter.environment()
    assert exports["CUDA_MODULE_LOADING"] == "EAGER"  # or NCCL hangs: see native/mlx5/README.md
    assert exports["CUDA_DEVICE_MAX_COPY_CONNECTIONS"] == "32"  # the same


@pytest.mark.parametrize(
    ("name", "choice"),
    [("CUDA_MODULE_LOADING", "LAZY"), ("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "8")],
)
def test_a_choice_of_cuda_s_environment_is_kept(monkeypatch, name, choice):
    monkeypatch.setenv(name, choice)
    assert software_adapter.environment()[name] == choice


def test_a_program_is_needed(capsys):
    assert main(["mlx5", "run"]) == 2
    assert main(["mlx5", "run", "--", "/nonexistent"]) == 127
    assert "no such program" in capsys.readouterr().err


def test_a_static_program_is_told_that_it_does_not_see_the_adapter(tmp_path, home):
    program = tmp_path / "static"
    build = ["cc", "-static", "-nostdlib", "-x", "c", "-", "-o", program]
    subprocess.run(build, input=STATIC, text=True, check=True)
    done = cli.run(home, "mlx5", "run", "--", program)
    assert f"{program} does not see the adapter: it is linked statically" in done.stderr
    assert done.returncode == 7, done.stderr
    done = cli.run(home, "mlx5", "run", "--", sys.executable, "-c", "")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_setuid_program_is_told_that_it_does_not_see_the_adapter(tmp_path, monkeypatch):
    program = tmp_path / "program"
    shutil.copy(shutil.which("true"), program)
    program.chmod(0o4755)
    assert software_adapter.why_hidden(str(program)) is None
    monkeypatch.setattr(os, "getuid", lambda: program.stat().st_uid + 1)
    assert "(setuid)" in software_adapter.why_hidden(str(program))


@pytest.mark.parametrize("separator", [" ", ":"])
def test_dgkit_may_be_installed_in_a_path_that_ld_preload_cannot_have(
    separator, home, tmp_path, monkeypatch
):
    library = tmp_path / f"my{separator}folder" / software_adapter.library_path().name
    library.parent.mkdir()
    shutil.copy(software_adapter.library_path(), library)
    monkeypatch.setattr(software_adapter, "library_path", lambda: library)
    monkeypatch.setenv("XDG_RUNTIME_DIR", home)
    for _ in range(2):  # the second time the link is there
        seen = os.environ | software_adapter.environment()
        done = subprocess.run(["ibv_devinfo"], env=seen, capture_output=True, text=True, check=True)
        assert "mlx5_0" in done.stdout
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(library.parent))
    with pytest.raises(NativeError, match="XDG_RUNTIME_DIR"):
        software_adapter.environment()
